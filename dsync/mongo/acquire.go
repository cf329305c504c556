package mongo

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Acquire implements [dsync.Store]. One write grants at most 1,000 claims: where
// more fit at once, the rest is granted by the next command on the key. On
// servers other than MongoDB the first command on a key takes three.
func (s *Store) Acquire(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
	st, err := s.acquire(ctx, keyID(c.Key), c, wait, dead, notAfter)
	if err != nil {
		return dsync.State{}, failure("acquire", err)
	}
	if _, held := st.Holder(c.ID); held || st.Place > 0 {
		return st, nil
	}
	switch used := len(st.Holders)+st.Waiting > 0; {
	case used && (st.Kind != c.Kind || st.Limit != c.Limit):
		return dsync.State{}, fmt.Errorf("mongo: acquire: %w", &dsync.MismatchError{
			Key: c.Key, Kind: st.Kind, WantKind: c.Kind, Limit: st.Limit, WantLimit: c.Limit,
		})
	case st.Waiting >= maxLine:
		return dsync.State{}, fmt.Errorf("mongo: acquire: %w: %d claims are in line for the key, which is the most there may be",
			dsync.ErrRefused, st.Waiting)
	}
	return st, nil
}

func (s *Store) acquire(ctx context.Context, id string, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
	claim := bson.D{e("a", c.ID), e("s", c.Session), e("w", c.Weight)}
	if c.Lease > 0 {
		claim = append(claim, e("d", millis(c.Lease)))
	}
	shape := s.shapes.acquireTry
	if wait {
		shape = s.shapes.acquireWait
	}
	if dead == nil {
		dead = []string{} // a nil slice is encoded as null
	}
	var r keyRecord
	_, err := s.modify(ctx, modify{
		query: bson.D{e("_id", id)},
		update: pipeline(shape, bson.D{
			e("mine", c.ID), e("claim", claim), e("dead", dead),
			e("y", string(c.Kind)), e("c", c.Limit), e("until", notAfter),
		}),
		fields: s.seenBy(c.ID),
		upsert: true,
	}, &r)
	return r.state(c.Key), err
}

// seenBy is what a reply carries of a key's record, as the claim sees it.
func (s *Store) seenBy(claim string) bson.D {
	place := op("$indexOfArray", "$q.a", literal(claim))
	return append(seen(),
		e("place", op("$add", place, 1)),
		e("ahead", let("place", place, s.shapes.ahead)))
}

func seen() bson.D {
	return bson.D{
		e("_id", 0), e("h", 1), e("t", 1), e("y", 1), e("c", 1), e("n", 1), e("v", 1),
		e("now", now), e("waiting", op("$size", list("$q"))),
	}
}

// Release implements [dsync.Store].
func (s *Store) Release(ctx context.Context, c dsync.Claim, o dsync.Outcome) (found bool, err error) {
	found, err = s.release(ctx, keyID(c.Key), c, o)
	if err != nil {
		return false, failure("release", err)
	}
	return found, nil
}

func (s *Store) release(ctx context.Context, id string, c dsync.Claim, o dsync.Outcome) (found bool, err error) {
	shape, scratch := s.shapes.release, bson.D{e("mine", c.ID), e("dead", bson.A{})}
	if o.Keep > 0 {
		shape, scratch = s.shapes.keep, append(scratch, e("keep", millis(o.Keep)))
	}
	return s.update(ctx, bson.D{
		e("q", bson.D{e("_id", id), e("$or", bson.A{
			bson.D{e("h.a", c.ID)}, bson.D{e("q.a", c.ID)},
		})}),
		e("u", pipeline(shape, scratch)),
	})
}

// update sends one update statement and reports whether it matched a record.
func (s *Store) update(ctx context.Context, statement bson.D) (matched bool, err error) {
	raw, err := s.write(ctx, bson.D{e("update", s.collection), e("updates", bson.A{statement})})
	if err != nil {
		return false, err
	}
	n, ok := raw.Lookup("n").AsInt64OK()
	if !ok {
		return false, fmt.Errorf("reply of update without n: %v", raw)
	}
	return n > 0, nil
}

// Extend implements [dsync.Store].
func (s *Store) Extend(ctx context.Context, c dsync.Claim) (until time.Time, err error) {
	var r keyRecord
	_, err = s.modify(ctx, modify{
		query:  bson.D{e("_id", keyID(c.Key)), e("h.a", c.ID)},
		update: pipeline(s.shapes.extend, bson.D{e("mine", c.ID), e("lease", millis(c.Lease))}),
		fields: bson.D{e("_id", 0), e("h", 1), e("now", now)},
	}, &r)
	if err != nil {
		return time.Time{}, failure("extend", err)
	}
	h, ok := r.state(c.Key).Holder(c.ID)
	if !ok || !h.Until.After(r.Now) {
		return time.Time{}, fmt.Errorf("mongo: extend: %w", dsync.ErrNotHeld)
	}
	return h.Until, nil
}

// millis rounds up: a lease that the store lets go earlier than its holder does
// would be nobody's.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
