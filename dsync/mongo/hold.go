package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Extend and Publish change only the caller's own hold, which makes no room for waiters. So their pipelines do not
// settle the key. Their filters use _id alone, because any other filter costs the server more. So the pipelines must
// handle a record without the claim, or without any claims yet.

// editExtend performs an Extend.
func (s *store) editExtend(ctx context.Context, x driver.Extend) (driver.Edited, error) {
	c := x.Claim
	var r keyRecord
	var err error
	if c.Lease > 0 {
		_, err = s.modify(ctx, modify{
			query:  bson.D{e("_id", keyID(c.Key))},
			update: pipeline(theShapes().extend, bson.D{e("mine", c.ID), e("t", c.Token), e("lease", millis(c.Lease)), e("seq", x.Seq)}),
			fields: bson.D{e("_id", 0), e("h", 1), e("now", now)},
		}, &r)
	}
	if err != nil {
		return driver.Edited{}, failure("extend", err)
	}
	h, ok := r.state(c.Key).Holder(c.ID)
	if !ok || h.Token != c.Token || !h.Until.After(r.Now) {
		return driver.Edited{}, fmt.Errorf("mongo: extend: %w", driver.ErrNotHeld)
	}
	return driver.Edited{Holder: h}, nil
}

// extending moves the claim's end to now + lease, unless it already ends later. It does so only if the claim holds
// the key with the given token and has not ended, and neither this Extend nor a later one has been executed.
func extending() []bson.D {
	end := op("$max", "$$this.e", op("$add", now, "$_.lease"))
	granted, overtaken := op("$eq", "$$this.t", "$_.t"), op("$gte", "$$this.x", "$_.seq")
	return changing(bson.D{e("e", end), e("x", "$_.seq")}, mine(), granted, holds(), op("$not", overtaken))
}

// changing sets the given fields of the holder that meets all conditions.
func changing(fields bson.D, conditions ...any) []bson.D {
	return []bson.D{set(
		e("h", guard(op("$ifNull", each("$h", op("$cond", op("$and", conditions...),
			op("$mergeObjects", "$$this", fields), "$$this")), "$$REMOVE"))),
		e("_", "$$REMOVE"),
	)}
}

// editPublish performs a Publish.
func (s *store) editPublish(ctx context.Context, p driver.Publish) (driver.Edited, error) {
	c := p.Claim
	r, held, err := s.publish(ctx, keyID(c.Key), p)
	switch {
	case err != nil:
		return driver.Edited{}, failure("publish", err)
	case !held:
		return driver.Edited{}, fmt.Errorf("mongo: publish: %w", driver.ErrNotHeld)
	}
	return driver.Edited{Notices: s.sendable(r.change(c.Key))}, nil
}

func (s *store) publish(ctx context.Context, id string, p driver.Publish) (r keyRecord, held bool, err error) {
	c := p.Claim
	_, err = s.modify(ctx, modify{
		query:  bson.D{e("_id", id)},
		update: pipeline(theShapes().publish, bson.D{e("mine", c.ID), e("seq", p.Seq), e("value", bson.Binary{Data: p.Value})}),
		fields: bson.D{e("_id", 0), e("h", 1), e("o", 1), e("now", now)},
	}, &r)
	if err != nil {
		return keyRecord{}, false, err
	}
	h, held := r.state(c.Key).Holder(c.ID)
	return r, held && !h.Ended(r.Now), nil
}

// publishing stores the value with the claim, if the claim holds the key, its end has not come, and it has not
// published a later value. The value that a claim was acquired with has no seq, so any Publish replaces it.
func publishing() []bson.D {
	overtaken := op("$gt", "$$this.v", "$_.seq")
	return changing(bson.D{e("v", "$_.seq"), e("b", "$_.value")}, mine(), holds(), op("$not", overtaken))
}
