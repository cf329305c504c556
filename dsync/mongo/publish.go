package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxValue is how many bytes a published value or a result may have. It is part of the key's
// record, which servers before 5.0 log whole with every change.
const maxValue = 64 << 10

// Publish implements [dsync.Store].
func (s *Store) Publish(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
	held, err := s.publish(ctx, keyID(c.Key), c, seq, value)
	switch {
	case err != nil:
		return failure("publish", err)
	case !held:
		return fmt.Errorf("mongo: publish: %w", dsync.ErrNotHeld)
	}
	return nil
}

func (s *Store) publish(ctx context.Context, id string, c dsync.Claim, seq int64, value []byte) (held bool, err error) {
	if len(value) > maxValue {
		return false, fmt.Errorf("%w: the value has %d bytes; it may have %d", dsync.ErrRefused, len(value), maxValue)
	}
	var r keyRecord
	_, err = s.modify(ctx, modify{
		query:  bson.D{e("_id", id), e("h.a", c.ID)},
		update: pipeline(s.shapes.publish, bson.D{e("mine", c.ID), e("seq", seq), e("value", bson.Binary{Data: value})}),
		fields: bson.D{e("_id", 0), e("h", 1), e("now", now)},
	}, &r)
	if err != nil {
		return false, err
	}
	h, held := r.state(c.Key).Holder(c.ID)
	return held && (h.Until.IsZero() || h.Until.After(r.Now)), nil
}
