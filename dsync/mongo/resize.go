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
	former := []int64{}
	if from > 0 && from != limit {
		former = append(former, from)
	}
	_, err = s.modify(ctx, modify{
		query:  bson.D{e("_id", id)},
		update: pipeline(s.shapes.resize, bson.D{e("y", string(kind)), e("c", limit), e("from", former)}),
		fields: s.shapes.resized,
		upsert: true,
	}, &r)
	return r, err
}

// resizing sets the key's limit, and keeps the limit before it, and "from", as former limits,
// the latest last. It changes nothing if the key is in use as another kind or a waiter needs
// more.
func resizing() []bson.D {
	had := op("$cond", op("$and", "$_.same", op("$ne", "$c", "$_.c")), bson.A{"$c"}, bson.A{})
	former := op("$cond", op("$setIsSubset", "$_.more", "$_.p"),
		"$_.p", // known limits stay where they are, or a repeated command would write
		op("$slice", op("$concatArrays",
			filter("$_.p", op("$not", op("$in", "$$this", op("$concatArrays", "$_.more", bson.A{"$_.c"})))),
			"$_.more"), -maxFormer))
	return []bson.D{
		clean(filter(list("$h"), holds()), list("$q"), was(limits()), e("_.same", op("$eq", "$y", "$_.y"))),
		set(
			e("_.ok", op("$and",
				op("$or", "$_.same", op("$and", op("$eq", claims(), bson.A{bson.A{}, bson.A{}}), op("$not", "$done"))),
				op("$lte", op("$max", "$q.w"), "$_.c"))),
			// The limits of another kind do not apply to this one.
			e("_.p", op("$cond", "$_.same", list("$p"), bson.A{})),
			e("_.more", op("$concatArrays", op("$setDifference", "$_.from", had), had)),
		),
		set(
			e("y", op("$cond", "$_.ok", "$_.y", "$y")),
			e("c", op("$cond", "$_.ok", "$_.c", "$c")),
			e("p", op("$cond", "$_.ok", let("former", former,
				op("$cond", op("$eq", "$$former", bson.A{}), "$$REMOVE", "$$former")), "$p")),
		),
	}
}
