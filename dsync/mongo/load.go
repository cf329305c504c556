package mongo

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A facet comes with the server's time even if nothing was found. A find could
// project the time into what it finds only.
func facet(project bson.D, find ...bson.D) []bson.D {
	return append(find,
		bson.D{e("$facet", bson.D{e("found", bson.A{bson.D{e("$project", project)}})})},
		set(e("now", now)),
	)
}

// A reading is what a facet found, and when.
type reading[T any] struct {
	Now   time.Time `bson:"now"`
	Found []T       `bson:"found"`
}

// readFacet runs the stages of a facet. A mongos answers nothing at all as long as the
// database does not exist; its time comes by hello then.
func readFacet[T any](ctx context.Context, s *Store, majority bool, stages []bson.D) (reading[T], error) {
	var r []reading[T]
	if err := s.aggregate(ctx, &r, majority, stages...); err != nil {
		return reading[T]{}, err
	}
	if len(r) == 0 {
		v, err := s.hello(ctx)
		return reading[T]{Now: v.now}, err
	}
	return r[0], nil
}

// Load implements [dsync.Store].
func (s *Store) Load(ctx context.Context, key string) (dsync.State, error) {
	st, err := s.load(ctx, keyID(key), key, maxShown)
	if err != nil {
		return dsync.State{}, failure("load", err)
	}
	return st, nil
}

func (s *Store) load(ctx context.Context, id, key string, shown int) (dsync.State, error) {
	project := append(seen(), e("f", 1), e("ahead", op("$slice", list("$q"), shown)))
	r, err := readFacet[keyRecord](ctx, s, true, facet(project, bson.D{e("$match", bson.D{e("_id", id)})}))
	if err != nil || len(r.Found) == 0 {
		return dsync.State{Key: key, Now: r.Now}, err
	}
	return r.Found[0].known(key)
}

// known is the state of a record that was read. What writes guards itself.
func (r *keyRecord) known(key string) (dsync.State, error) {
	if r.Format > formatVersion {
		return dsync.State{}, fmt.Errorf("%w: the record of the key %q has format %d, and this version knows %d; use the newer version of this library that wrote it",
			dsync.ErrRefused, key, r.Format, formatVersion)
	}
	return r.state(key), nil
}
