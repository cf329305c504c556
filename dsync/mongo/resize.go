package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Resize implements [driver.Store]. The last 16 former limits of a key are known. On servers
// other than MongoDB the first command on a key takes three.
func (s *Store) Resize(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
	if limit < 1 {
		return nil, fmt.Errorf("mongo: resize: %w: the limit is %d; it must be at least 1", driver.ErrRefused, limit)
	}
	r, err := s.resize(ctx, keyID(key), kind, from, limit)
	switch {
	case err != nil:
		return nil, failure("resize", err)
	case r.Kind != string(kind):
		return nil, fmt.Errorf("mongo: resize: %w", &driver.MismatchError{
			Key: key, Kind: driver.Kind(r.Kind), WantKind: kind, Limit: r.Limit, WantLimit: limit,
		})
	case r.Limit != limit:
		return nil, fmt.Errorf("mongo: resize: %w: a waiting claim has a greater weight than %d", driver.ErrRefused, limit)
	}
	return s.sendable(append(r.grants(key, ""), r.changed(key)...)), nil
}

func (s *Store) resize(ctx context.Context, id string, kind driver.Kind, from, limit int64) (r keyRecord, err error) {
	_, err = s.modify(ctx, modify{
		query: bson.D{e("_id", id)},
		update: pipeline(s.shapes.resize, bson.D{
			e("dead", bson.A{}), e("y", string(kind)), e("c", limit), e("from", from),
		}),
		fields: s.shapes.resized,
		upsert: true,
	}, &r)
	return r, err
}

// resizing sets the key's limit, and keeps the limit before it, and "from", as former limits,
// the latest last. It changes nothing if the key is in use as another kind or a waiter needs
// more.
func resizing() []bson.D {
	same := op("$eq", "$y", "$_.y")
	free := op("$and", op("$eq", size("$h", "$q"), 0), op("$not", op("$ifNull", "$done", false)))
	from := op("$cond", op("$or", op("$lt", "$_.from", 1), op("$in", "$_.from", bson.A{"$_.c", "$_.was.c"})),
		bson.A{}, bson.A{"$_.from"})
	had := op("$cond", op("$and", op("$ne", "$_.was.c", nil), op("$ne", "$_.was.c", "$_.c")), bson.A{"$_.was.c"}, bson.A{})
	former := let("more", op("$concatArrays", from, had), op("$cond",
		// Known limits stay where they are, or a repeated command would write.
		op("$and", op("$eq", "$_.was.c", "$_.c"), op("$setIsSubset", "$$more", "$_.was.p")),
		"$_.was.p",
		op("$slice", op("$concatArrays",
			filter("$_.was.p", op("$not", op("$or", op("$eq", "$$x", "$_.c"), op("$in", "$$x", "$$more")))),
			"$$more"), -maxFormer)))
	record := bson.D{e("y", "$y"), e("c", "$c"), e("p", list("$p"))}
	return []bson.D{
		set(
			cleaned(),
			e("_.ok", op("$and", op("$or", same, free),
				op("$lte", op("$ifNull", op("$max", "$q.w"), int64(0)), "$_.c"))),
			e("_.old", record),
			// The limits of another kind do not apply to this one.
			e("_.was.c", op("$cond", same, op("$ifNull", "$c", nil), nil)),
			e("_.was.p", op("$cond", same, list("$p"), bson.A{})),
		),
		set(
			e("y", op("$cond", "$_.ok", "$_.y", "$y")),
			e("c", op("$cond", "$_.ok", "$_.c", "$c")),
			e("p", op("$cond", "$_.ok", let("former", former,
				op("$cond", op("$eq", "$$former", bson.A{}), "$$REMOVE", "$$former")), "$p")),
			e("f", op("$cond", "$_.ok", formatVersion, "$f")),
		),
		set(e("_.resized", op("$ne", "$_.old", record))),
	}
}
