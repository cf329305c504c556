package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// editResize performs a Resize.
func (s *store) editResize(ctx context.Context, z driver.Resize) (driver.Edited, error) {
	r, err := s.resize(ctx, keyID(z.Key), z)
	switch {
	case err != nil:
		return driver.Edited{}, failure("resize", err)
	case r.Kind != string(z.Kind):
		return driver.Edited{}, fmt.Errorf("mongo: resize: %w", &driver.MismatchError{
			Key: z.Key, Kind: driver.Kind(r.Kind), WantKind: z.Kind, Limit: r.Limit, WantLimit: z.Limit,
		})
	case r.Limit != z.Limit:
		return driver.Edited{}, fmt.Errorf("mongo: resize: %w: a waiting claim has a weight greater than the limit %d", driver.ErrRefused, z.Limit)
	}
	return driver.Edited{Notices: s.sendable(append(r.grants(z.Key, ""), r.changed(z.Key)...))}, nil
}

func (s *store) resize(ctx context.Context, id string, z driver.Resize) (r keyRecord, err error) {
	former := []int64{}
	if z.From > 0 && z.From != z.Limit {
		former = append(former, z.From)
	}
	_, err = s.modify(ctx, modify{
		query:  bson.D{e("_id", id)},
		update: pipeline(theShapes().resize, bson.D{e("y", string(z.Kind)), e("c", z.Limit), e("from", former)}),
		fields: theShapes().resized,
		upsert: true,
	}, &r)
	return r, err
}

// resizing sets the key's limit. It keeps the previous limit, and those in "from", as former limits, the latest last.
// It changes nothing if the key is in use as another kind, or if a waiter needs more than the new limit.
func resizing() []bson.D {
	had := op("$cond", op("$and", "$_.same", op("$ne", "$c", "$_.c")), bson.A{"$c"}, bson.A{})
	former := op("$cond", op("$setIsSubset", "$_.more", "$_.p"),
		"$_.p", // keep the order of known limits, so that a repeated command writes nothing
		op("$slice", op("$concatArrays",
			filter("$_.p", op("$not", op("$in", "$$this", op("$concatArrays", "$_.more", bson.A{"$_.c"})))),
			"$_.more"), -maxFormer))
	return []bson.D{
		clean(filter(list("$h"), holds()), list("$q"), was(limits()), e("_.same", op("$eq", "$y", "$_.y"))),
		set(
			e("_.ok", op("$and",
				op("$or", "$_.same", op("$and", op("$eq", claims(), bson.A{bson.A{}, bson.A{}}), op("$not", "$done"))),
				op("$lte", op("$max", "$q.w"), "$_.c"))),
			// If the key had another kind, its limits do not apply.
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
