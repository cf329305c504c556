package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Resize implements [dsync.Store]. The last 16 limits that a key had are known. On
// servers other than MongoDB the first command on a key takes three.
func (s *Store) Resize(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
	if limit < 1 {
		return fmt.Errorf("mongo: resize: %w: the limit is %d; it must be at least 1", dsync.ErrRefused, limit)
	}
	r, err := s.resize(ctx, keyID(key), kind, from, limit)
	switch {
	case err != nil:
		return failure("resize", err)
	case r.Kind != string(kind):
		return fmt.Errorf("mongo: resize: %w", &dsync.MismatchError{
			Key: key, Kind: dsync.Kind(r.Kind), WantKind: kind, Limit: r.Limit, WantLimit: limit,
		})
	case r.Limit != limit:
		return fmt.Errorf("mongo: resize: %w: a claim in line has a greater weight than %d", dsync.ErrRefused, limit)
	}
	return nil
}

func (s *Store) resize(ctx context.Context, id string, kind dsync.Kind, from, limit int64) (r keyRecord, err error) {
	_, err = s.modify(ctx, modify{
		query: bson.D{e("_id", id)},
		update: pipeline(s.shapes.resize, bson.D{
			e("dead", bson.A{}), e("y", string(kind)), e("c", limit), e("from", from),
		}),
		fields: bson.D{e("_id", 0), e("y", 1), e("c", 1), e("p", 1)},
		upsert: true,
	}, &r)
	return r, err
}
