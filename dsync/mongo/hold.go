package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Extend and Publish change only the caller's own hold. That makes no room for waiters, so these
// pipelines do not settle the key. Their filter is the _id alone, since any other filter costs the
// server more; so the record may be one that does not have the claim, or has no claims yet.

// Extend implements [driver.Store].
func (s *Store) Extend(ctx context.Context, c driver.Claim) (driver.Holder, error) {
	var r keyRecord
	var err error
	if c.Lease > 0 {
		_, err = s.modify(ctx, modify{
			query:  bson.D{e("_id", keyID(c.Key))},
			update: pipeline(s.shapes.extend, bson.D{e("mine", c.ID), e("t", c.Token), e("lease", millis(c.Lease))}),
			fields: bson.D{e("_id", 0), e("h", 1), e("now", now)},
		}, &r)
	}
	if err != nil {
		return driver.Holder{}, failure("extend", err)
	}
	h, ok := r.state(c.Key).Holder(c.ID)
	if !ok || h.Token != c.Token || !h.Until.After(r.Now) {
		return driver.Holder{}, fmt.Errorf("mongo: extend: %w", driver.ErrNotHeld)
	}
	return h, nil
}

// extending moves the end of the claim to now + lease, unless it is later, if the claim holds the
// key with that token and no end of it has come.
func extending() []bson.D {
	end := op("$max", "$$this.e", op("$add", now, "$_.lease"))
	granted := op("$eq", "$$this.t", "$_.t")
	return []bson.D{set(
		e("h", guard(op("$ifNull", each("$h", op("$cond", op("$and", mine(), granted, holds()),
			op("$mergeObjects", "$$this", bson.D{e("e", end)}), "$$this")), "$$REMOVE"))),
		e("_", "$$REMOVE"),
	)}
}

// maxValue is the maximum size of a published value or a result, in bytes. It is part of the
// key's record, and servers before 5.0 log the whole record with every change.
const maxValue = 64 << 10

// Publish implements [driver.Store].
func (s *Store) Publish(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
	r, held, err := s.publish(ctx, keyID(c.Key), c, seq, value)
	switch {
	case err != nil:
		return nil, failure("publish", err)
	case !held:
		return nil, fmt.Errorf("mongo: publish: %w", driver.ErrNotHeld)
	}
	return s.sendable(r.change(c.Key)), nil
}

func (s *Store) publish(ctx context.Context, id string, c driver.Claim, seq int64, value []byte) (r keyRecord, held bool, err error) {
	if len(value) > maxValue {
		return keyRecord{}, false, fmt.Errorf("%w: the value has %d bytes; it may have at most %d", driver.ErrRefused, len(value), maxValue)
	}
	_, err = s.modify(ctx, modify{
		query:  bson.D{e("_id", id)},
		update: pipeline(s.shapes.publish, bson.D{e("mine", c.ID), e("seq", seq), e("value", bson.Binary{Data: value})}),
		fields: bson.D{e("_id", 0), e("h", 1), e("o", 1), e("now", now)},
	}, &r)
	if err != nil {
		return keyRecord{}, false, err
	}
	h, held := r.state(c.Key).Holder(c.ID)
	return r, held && (h.Until.IsZero() || h.Until.After(r.Now)), nil
}

// publishing stores the value, if the claim holds the key, its end has not come, and it has not
// published a later value.
func publishing() []bson.D {
	overtaken := op("$and", op("$eq", "$v.t", "$_.t"), op("$gt", "$v.s", "$_.seq"))
	return []bson.D{
		set(e("_.t", guard(ownToken()))),
		set(
			e("v", op("$cond", op("$and", "$_.t", op("$not", overtaken)),
				bson.D{e("t", "$_.t"), e("s", "$_.seq"), e("b", "$_.value")}, "$v")),
			e("_", "$$REMOVE"),
		),
	}
}
