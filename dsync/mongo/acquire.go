package mongo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Acquire implements [dsync.Store]. One write grants at most 1,000 claims: where
// more fit at once, the rest is granted by the next command on the key. On
// servers other than MongoDB the first command on a key takes three. Who waits for a
// key that was to be expected free, for which there is a short command, and is not,
// takes one more, which writes nothing.
func (s *Store) Acquire(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
	if c.Weight < 1 || c.Weight > c.Limit {
		// It could never be granted, and would block the line for ever.
		return dsync.State{}, fmt.Errorf("mongo: acquire: %w: the claim's weight is %d; it must be from 1 to its limit, %d",
			dsync.ErrRefused, c.Weight, c.Limit)
	}
	plain := simple(c) && c.Kind != dsync.KindElection // whose terms are counted
	if wait && plain {                                 // a try is one command, also where it fails
		st, ok, err := s.acquireQuiet(ctx, c, notAfter)
		if err != nil {
			return dsync.State{}, failure("acquire", err)
		}
		if ok {
			return st, nil
		}
	}
	st, former, err := s.acquire(ctx, keyID(c.Key), c, wait, dead, notAfter)
	if err != nil {
		return dsync.State{}, failure("acquire", err)
	}
	_, held := st.Holder(c.ID)
	if held && st.Waiting == 0 && plain {
		s.quiet.note(c.Key, c.ID, st.Token)
	}
	if held || st.Place > 0 {
		return st, nil
	}
	if mismatch(c, st, former) {
		return dsync.State{}, fmt.Errorf("mongo: acquire: %w", &dsync.MismatchError{
			Key: c.Key, Kind: st.Kind, WantKind: c.Kind, Limit: st.Limit, WantLimit: c.Limit,
		})
	}
	if st.Waiting >= maxLine {
		return dsync.State{}, fmt.Errorf("mongo: acquire: %w: %d claims are in line for the key, which is the most there may be",
			dsync.ErrRefused, st.Waiting)
	}
	return st, nil
}

// acquireQuiet tries the short command, if it is likely to do.
func (s *Store) acquireQuiet(ctx context.Context, c dsync.Claim, notAfter time.Time) (st dsync.State, ok bool, err error) {
	last, ok := s.quiet.take(c.Key, "")
	if !ok {
		return dsync.State{}, false, nil
	}
	reached := s.clock.reached().Truncate(time.Millisecond) // as in the record
	token := after(last, reached)
	if ok, err = s.acquireShort(ctx, keyID(c.Key), c, token, reached, notAfter); !ok {
		return dsync.State{}, false, err
	}
	s.quiet.note(c.Key, c.ID, token)
	return dsync.State{
		Key: c.Key, Now: reached, Kind: c.Kind, Limit: c.Limit, Token: token,
		Holders: []dsync.Holder{{Claim: c.ID, Session: c.Session, Weight: c.Weight, Token: token, Since: reached}},
	}, true, nil
}

// mismatch reports whether that is why c, which neither holds nor is in line, is
// not. A key that is free, and whose limit was never c's, c was only late for.
func mismatch(c dsync.Claim, st dsync.State, former []int64) bool {
	known := st.Kind == c.Kind && (st.Limit == c.Limit || slices.Contains(former, c.Limit))
	switch {
	case st.Sealed:
		return st.Kind != c.Kind
	case known:
		return c.Weight > st.Limit
	}
	return len(st.Holders)+st.Waiting > 0
}

// acquire returns the state and the key's former limits.
func (s *Store) acquire(ctx context.Context, id string, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (st dsync.State, former []int64, err error) {
	claim := bson.D{e("a", c.ID), e("s", c.Session), e("w", c.Weight)}
	if c.Lease > 0 {
		claim = append(claim, e("d", millis(c.Lease)))
	}
	if c.Yield {
		claim = append(claim, e("l", true))
	}
	shape := s.shapes.acquireTry
	if wait {
		shape = s.shapes.acquireWait
	}
	if dead == nil {
		dead = []string{} // a nil slice is encoded as null
	}
	var r keyRecord
	_, err = s.modify(ctx, modify{
		query: bson.D{e("_id", id)},
		update: pipeline(shape, bson.D{
			e("mine", c.ID), e("claim", claim), e("dead", dead),
			e("y", string(c.Kind)), e("c", c.Limit), e("until", notAfter), e("first", c.First),
		}),
		fields: s.seenBy(c.ID),
		upsert: true,
	}, &r)
	if err == nil {
		s.clock.told(r.Now)
	}
	return r.state(c.Key), r.Former, err
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
		e("_id", 0), e("h", 1), e("t", 1), e("y", 1), e("c", 1), e("n", 1), e("v", 1), e("p", 1), e("done", 1),
		e("now", now), e("waiting", op("$size", list("$q"))),
	}
}

// Release implements [dsync.Store]. It takes one command more, which writes nothing,
// for a hold of a Mutex or an election that has a claim of another sort behind it, a
// fixed lease or one that lingers, and for a Mutex's that has published a value.
func (s *Store) Release(ctx context.Context, c dsync.Claim, o dsync.Outcome) (found bool, err error) {
	token, quiet := s.quiet.take(c.Key, c.ID)
	if simple(c) && c.Token > 0 && o.Keep <= 0 && !o.Seal {
		found, err = s.releaseShort(ctx, keyID(c.Key), c)
		if found && quiet {
			s.quiet.note(c.Key, "", token)
		}
	}
	if err == nil && !found {
		found, err = s.release(ctx, keyID(c.Key), c, o)
	}
	if err != nil {
		return false, failure("release", err)
	}
	return found, nil
}

// release seals where both is asked for: what is sealed can't be held.
func (s *Store) release(ctx context.Context, id string, c dsync.Claim, o dsync.Outcome) (found bool, err error) {
	shape, scratch := s.shapes.release, bson.D{e("mine", c.ID), e("dead", bson.A{})}
	switch {
	case o.Seal && len(o.Result) > maxValue:
		return false, fmt.Errorf("%w: the result has %d bytes; it may have %d", dsync.ErrRefused, len(o.Result), maxValue)
	case o.Seal:
		shape, scratch = s.shapes.seal, append(scratch, e("result", bson.Binary{Data: o.Result}))
	case o.Keep > 0:
		shape, scratch = s.shapes.keep, append(scratch, e("keep", millis(o.Keep)))
	}
	found, _, err = s.update(ctx, bson.D{
		e("q", bson.D{e("_id", id), e("$or", bson.A{
			bson.D{e("h.a", c.ID)}, bson.D{e("q.a", c.ID)},
		})}),
		e("u", pipeline(shape, scratch)),
	})
	return found, err
}

// update sends one update statement and reports whether it matched a record, and
// changed it.
func (s *Store) update(ctx context.Context, statement bson.D) (matched, changed bool, err error) {
	raw, err := s.write(ctx, bson.D{e("update", s.collection), e("updates", bson.A{statement})})
	if err != nil {
		return false, false, err
	}
	return updated(raw)
}

// updated reads the reply of an update.
func updated(raw bson.Raw) (matched, changed bool, err error) {
	n, ok := raw.Lookup("n").AsInt64OK()
	if !ok {
		return false, false, fmt.Errorf("reply of update without n: %v", raw)
	}
	modified, _ := raw.Lookup("nModified").AsInt64OK()
	return n > 0, modified > 0, nil
}

// Extend implements [dsync.Store].
func (s *Store) Extend(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
	var r keyRecord
	_, err := s.modify(ctx, modify{
		query:  bson.D{e("_id", keyID(c.Key)), e("h.a", c.ID)},
		update: pipeline(s.shapes.extend, bson.D{e("mine", c.ID), e("lease", millis(c.Lease))}),
		fields: bson.D{e("_id", 0), e("h", 1), e("now", now)},
	}, &r)
	if err != nil {
		return dsync.Holder{}, failure("extend", err)
	}
	h, ok := r.state(c.Key).Holder(c.ID)
	if !ok || !h.Until.After(r.Now) {
		return dsync.Holder{}, fmt.Errorf("mongo: extend: %w", dsync.ErrNotHeld)
	}
	return h, nil
}

// millis rounds up: a lease that the store lets go earlier than its holder does
// would be nobody's.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
