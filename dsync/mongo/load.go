package mongo

import (
	"context"
	"errors"
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

// Load implements [dsync.Store].
func (s *Store) Load(ctx context.Context, key string) (dsync.State, error) {
	st, err := s.load(ctx, keyID(key), key)
	if err != nil {
		return dsync.State{}, failure("load", err)
	}
	return st, nil
}

func (s *Store) load(ctx context.Context, id, key string) (dsync.State, error) {
	var r []struct {
		Now   time.Time   `bson:"now"`
		Found []keyRecord `bson:"found"`
	}
	project := append(seen(), e("f", 1), e("ahead", op("$slice", list("$q"), maxShown)))
	if err := s.aggregate(ctx, &r, true, facet(project, bson.D{e("$match", bson.D{e("_id", id)})})...); err != nil {
		return dsync.State{}, err
	}
	if len(r) != 1 {
		return dsync.State{}, errors.New("no reading: is the collection gone?")
	}
	if len(r[0].Found) == 0 {
		return dsync.State{Key: key, Now: r[0].Now}, nil
	}
	found := r[0].Found[0]
	if found.Format > formatVersion {
		return dsync.State{}, fmt.Errorf("%w: the key's record has format %d, and this version knows %d; use the newer version of this library that wrote it",
			dsync.ErrRefused, found.Format, formatVersion)
	}
	return found.state(key), nil
}
