package mongo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Acquire implements [driver.Store]. One command grants at most 1,000 claims; if more fit, the
// next command on the key grants the rest. On servers other than MongoDB the first command on a
// key takes three. If the key is probably free, the Acquire of a claim that may wait begins with
// a short command; if that grants nothing, it writes nothing, and a second command follows.
func (s *Store) Acquire(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
	if c.Weight < 1 || c.Weight > c.Limit {
		// It could never be granted, and would block the queue forever.
		return driver.State{}, nil, fmt.Errorf("mongo: acquire: %w: the claim's weight is %d; it must be from 1 to its limit, %d",
			driver.ErrRefused, c.Weight, c.Limit)
	}
	if c.Replaces != nil {
		return s.replace(ctx, c, wait, expired, notAfter)
	}
	if wait && plain(c) { // a try takes one command, even if it fails
		st, granted, err := s.acquireFree(ctx, c, notAfter)
		if err != nil {
			return driver.State{}, nil, failure("acquire", err)
		}
		if granted {
			st.Final = true     // by now the key has this token, so a copy grants nothing
			return st, nil, nil // no notices: nobody waits, and nobody observes the key
		}
	}
	r, err := s.acquire(ctx, keyID(c.Key), c, wait, expired, notAfter)
	if err != nil {
		return driver.State{}, nil, failure("acquire", err)
	}
	st := r.state(c.Key)
	st.Final = r.polled || st.Sealed
	_, held := st.Holder(c.ID)
	switch {
	case !plain(c):
	case held && st.Waiting == 0 && r.Observed.IsZero():
		s.lastUsed.note(c.Key, c.ID, st.Token)
		s.contended.remove(c.Key)
	default:
		s.contended.add(c.Key)
	}
	if held || st.Position > 0 {
		return st, s.sendable(r.acquired(c)), nil
	}
	if mismatch(c, st, r.Former) {
		return driver.State{}, nil, fmt.Errorf("mongo: acquire: %w", &driver.MismatchError{
			Key: c.Key, Kind: st.Kind, WantKind: c.Kind, Limit: st.Limit, WantLimit: c.Limit,
		})
	}
	if st.Waiting >= maxQueue {
		return driver.State{}, nil, fmt.Errorf("mongo: acquire: %w: %d claims are in the queue for the key, which is the most there may be",
			driver.ErrRefused, st.Waiting)
	}
	return st, s.sendable(r.acquired(c)), nil
}

// replace acquires c and releases the claim that c replaces: with a short hand-over to which c is
// added, if that is possible, and otherwise with the commands of a release and an acquire.
func (s *Store) replace(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
	old := *c.Replaces
	c.Replaces = nil
	if wait && plain(c) && simple(old) && old.Kind == c.Kind && old.Token > 0 && !c.First && len(expired) == 0 {
		s.lastUsed.take(c.Key, old.ID)
		h, done, err := s.handOver(ctx, keyID(c.Key), old, &joiner{c, s.claimRecord(c), notAfter})
		if err != nil {
			return driver.State{}, nil, failure("acquire", err)
		}
		if done {
			if h.First == nil && h.Before.Observed.IsZero() {
				s.lastUsed.note(c.Key, c.ID, h.token)
			} else {
				s.contended.add(c.Key)
			}
			st := h.state(c)
			st.Final = true // of a copy: old is gone, so its condition is not met
			return st, s.sendable(append(h.grant(c), h.Before.change(c.Key)...)), nil
		}
	}
	_, released, err := s.Release(ctx, old, driver.ReleaseOptions{})
	if err != nil {
		return driver.State{}, nil, err
	}
	st, notices, err := s.Acquire(ctx, c, wait, expired, notAfter)
	if err != nil {
		return driver.State{}, released, err // a repeated release would not have these notices
	}
	for i := range released {
		n := &released[i]
		n.Crowded = n.Type == driver.NoticeGrant && st.Waiting > 0 // c joined behind it
	}
	return st, append(released, notices...), nil
}

// mismatch reports whether c, which neither holds the key nor waits for it, was refused because
// of its kind or limit. If the key is free and c's limit is new to it, c was only too late.
func mismatch(c driver.Claim, st driver.State, former []int64) bool {
	known := st.Kind == c.Kind && (st.Limit == c.Limit || slices.Contains(former, c.Limit))
	switch {
	case st.Sealed:
		return st.Kind != c.Kind
	case known:
		return c.Weight > st.Limit
	}
	return len(st.Holders)+st.Waiting > 0
}

// claimRecord returns what is recorded of every claim.
func (s *Store) claimRecord(c driver.Claim) bson.D {
	return s.withAddress(bson.D{e("a", c.ID), e("s", c.Session), e("w", c.Weight)}, c.Session)
}

// acquire sends the pipeline and returns the key's record from the reply. For a claim that probably
// waits, it tries a poll before that.
func (s *Store) acquire(ctx context.Context, id string, c driver.Claim, wait bool, expired []string, notAfter time.Time) (r keyRecord, err error) {
	claim := s.claimRecord(c)
	if c.Lease > 0 {
		claim = append(claim, e("d", millis(c.Lease)))
	}
	if c.Yield {
		claim = append(claim, e("l", true))
	}
	var dead bson.D
	if len(expired) > 0 {
		dead = bson.D{e("dead", expired)}
	}
	var early []driver.Notice
	// A claim that was requested before mostly waits, but a Once is mostly sealed by then.
	if wait && c.Repeated && c.Kind != driver.KindOnce {
		r, found, err := s.poll(ctx, id, c, dead)
		if err != nil || found {
			r.polled = true
			return r, err
		}
		early = r.acquired(c)
	}
	shape := s.shapes.acquire[acquiring{expired: len(expired) > 0, first: c.First, try: !wait}]
	scratch := append(bson.D{e("claim", claim), e("y", string(c.Kind)), e("c", c.Limit), e("until", notAfter)}, dead...)
	_, err = s.modify(ctx, modify{
		query:  bson.D{e("_id", id)},
		update: pipeline(shape, scratch),
		fields: seenBy(c.ID),
		upsert: true,
	}, &r)
	if err == nil {
		s.clock.set(r.Now)
	}
	r.early = early
	return r, err
}

// poll sends the pipeline for a claim that waits already, which cannot let it join. It reports
// whether the claim holds the key or waits for it. The filter is the _id alone, though the claim may
// not be there: any other filter costs the server more than the pipeline saves.
func (s *Store) poll(ctx context.Context, id string, c driver.Claim, dead bson.D) (r keyRecord, found bool, err error) {
	shape := s.shapes.acquire[acquiring{expired: len(dead) > 0, poll: true}]
	found, err = s.modify(ctx, modify{query: bson.D{e("_id", id)}, update: pipeline(shape, dead), fields: seenBy(c.ID)}, &r)
	if err != nil || !found {
		return r, false, err
	}
	s.clock.set(r.Now)
	holds := slices.ContainsFunc(r.Holders, func(h holderRecord) bool { return h.Claim == c.ID })
	return r, holds || r.Position > 0, nil
}

// update sends one update statement and reports whether it matched or made a record, and
// whether it changed or made it.
func (s *Store) update(ctx context.Context, statement bson.D) (matched, changed bool, err error) {
	raw, err := s.write(ctx, bson.D{e("update", s.collection), e("updates", bson.A{statement})})
	if err != nil {
		return false, false, err
	}
	return updated(raw)
}

// updated decodes the reply of an update.
func updated(raw bson.Raw) (matched, changed bool, err error) {
	n, ok := raw.Lookup("n").AsInt64OK()
	if !ok {
		return false, false, fmt.Errorf("reply to update without n: %v", raw)
	}
	modified, _ := raw.Lookup("nModified").AsInt64OK()
	_, made := raw.Lookup("upserted").ArrayOK()
	return n > 0, modified > 0 || made, nil
}

// millis returns d in milliseconds, rounded up: the store must not end a lease before its
// holder does.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
