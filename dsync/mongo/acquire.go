package mongo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// editAcquire executes an Acquire.
func (s *store) editAcquire(ctx context.Context, j driver.Acquire) (driver.Edited, error) {
	c := j.Claim
	if j.Wait && plain(c) { // a try skips this, because it must send only one command
		st, granted, err := s.acquireFree(ctx, j)
		if err != nil {
			return driver.Edited{}, failure("acquire", err)
		}
		if granted {
			st.Final = true                      // the key's token has changed, so a late copy grants nothing
			return driver.Edited{State: st}, nil // no notices: nobody waits, and nobody observes the key
		}
	}
	r, err := s.acquire(ctx, keyID(c.Key), j)
	if err != nil {
		return driver.Edited{}, failure("acquire", err)
	}
	st := r.state(c.Key)
	st.Final = r.polled || st.Over(c.Tick)
	_, held := st.Holder(c.ID)
	switch {
	case !plain(c):
	case held && st.Waiting == 0 && r.Observed.IsZero():
		s.lastUsed.note(c.Key, c.ID, st.Token)
		s.contended.remove(c.Key)
	default:
		s.contended.add(c.Key, st.Waiting)
	}
	switch {
	case held || st.Position > 0:
	case mismatch(c, st, r.Former):
		return driver.Edited{}, fmt.Errorf("mongo: acquire: %w", &driver.MismatchError{
			Key: c.Key, Kind: st.Kind, WantKind: c.Kind, Limit: st.Limit, WantLimit: c.Limit,
		})
	case st.Waiting >= driver.MaxQueue:
		return driver.Edited{}, fmt.Errorf("mongo: acquire: %w: the key's queue is full, with %d claims",
			driver.ErrRefused, st.Waiting)
	}
	return driver.Edited{State: st, Notices: s.sendable(r.acquired(c))}, nil
}

// editReplace executes a Release with an Acquire. If possible, it sends one short hand-over that also adds the
// claim of the Acquire. Otherwise it sends the commands of the Release and then those of the Acquire.
func (s *store) editReplace(ctx context.Context, l driver.Release, j driver.Acquire) (driver.Edited, error) {
	old, c := l.Claim, j.Claim
	if j.Wait && plain(c) && simple(old) && old.Kind == c.Kind && old.Token > 0 && !c.First && len(j.Expired) == 0 {
		s.lastUsed.take(c.Key, old.ID)
		h, done, err := s.handOver(ctx, keyID(c.Key), old, &joiner{c, s.claimRecord(c), j.NotAfter})
		if err != nil {
			return driver.Edited{}, failure("acquire", err)
		}
		if done {
			if h.First == nil && h.Before.Observed.IsZero() {
				s.lastUsed.note(c.Key, c.ID, h.token)
			} else {
				s.contended.add(c.Key, h.left)
			}
			st := h.state(c)
			st.Final = true // a late copy changes nothing, because it requires that the old claim still holds the key
			return driver.Edited{State: st, Found: true, Notices: s.sendable(append(h.grant(c), h.Before.change(c.Key)...))}, nil
		}
	}
	left, err := s.editRelease(ctx, l)
	if err != nil {
		return driver.Edited{}, err
	}
	joined, err := s.editAcquire(ctx, j)
	if err != nil {
		return driver.Edited{Notices: left.Notices}, err // the notices must not be lost: a repeated Release would not return them
	}
	for i := range left.Notices {
		n := &left.Notices[i]
		n.Crowded = n.Type == driver.NoticeGrant && joined.State.Waiting > 0 // others now wait behind the claim that was granted
	}
	return driver.Edited{State: joined.State, Found: left.Found, Notices: append(left.Notices, joined.Notices...)}, nil
}

// mismatch reports whether c was refused because of its kind, limit or weight. c neither holds the key nor waits for
// it. If the key is free, not sealed, and never had c's kind and limit, then c could have joined. So it was refused
// because its request came after its NotAfter.
func mismatch(c driver.Claim, st driver.State, former []int64) bool {
	known := st.Kind == c.Kind && (st.Limit == c.Limit || slices.Contains(former, c.Limit))
	switch {
	case st.Over(c.Tick):
		return st.Kind != c.Kind
	case known:
		return c.Weight > st.Limit
	}
	return len(st.Holders)+st.Waiting > 0 || st.Sealed > 0
}

// claimRecord returns c's record in the queue, without the fields for Lease and Yield.
func (s *store) claimRecord(c driver.Claim) bson.D {
	r := bson.D{e("a", c.ID), e("s", c.Session), e("w", c.Weight)}
	if c.Value != "" {
		r = append(r, e("b", bson.Binary{Data: []byte(c.Value)}))
	}
	if c.Tick > 0 {
		r = append(r, e("k", c.Tick))
	}
	return s.withAddress(r, c.Session)
}

// acquire sends the pipeline and returns the key's record from the reply. For a claim that is probably waiting
// already, it tries a poll first.
func (s *store) acquire(ctx context.Context, id string, j driver.Acquire) (r keyRecord, err error) {
	c := j.Claim
	claim := s.claimRecord(c)
	if c.Lease > 0 {
		claim = append(claim, e("d", millis(c.Lease)))
	}
	if c.Yield {
		claim = append(claim, e("l", true))
	}
	var dead bson.D
	if len(j.Expired) > 0 {
		dead = bson.D{e("dead", j.Expired)}
	}
	var early []driver.Notice
	// A claim that is requested again is usually in the queue already. A run's claim usually is not, because its tick is
	// over by then.
	if j.Wait && j.Repeated && (c.Tick == 0 || c.Kind == driver.KindElection) {
		r, found, err := s.poll(ctx, id, c, dead)
		if err != nil || found {
			r.polled = true
			return r, err
		}
		early = r.acquired(c)
	}
	shape := theShapes().acquire[acquiring{expired: len(dead) > 0, first: c.First, try: !j.Wait, tick: c.Tick > 0}]
	scratch := append(bson.D{e("claim", claim), e("y", string(c.Kind)), e("c", c.Limit), e("until", j.NotAfter)}, dead...)
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

// poll sends a pipeline that never adds c to the queue, because c probably waits already. It reports whether c holds
// the key or waits for it. The filter has only the _id: the condition that the record has c would cost the server more
// than it saves.
func (s *store) poll(ctx context.Context, id string, c driver.Claim, dead bson.D) (r keyRecord, found bool, err error) {
	shape := theShapes().acquire[acquiring{expired: len(dead) > 0, poll: true}]
	found, err = s.modify(ctx, modify{query: bson.D{e("_id", id)}, update: pipeline(shape, dead), fields: seenBy(c.ID)}, &r)
	if err != nil || !found {
		return r, false, err
	}
	s.clock.set(r.Now)
	holds := slices.ContainsFunc(r.Holders, func(h holderRecord) bool { return h.Claim == c.ID })
	return r, holds || r.Position > 0, nil
}

// update sends one update statement without upsert. matched reports whether the statement matched a record. changed
// reports whether it changed one.
func (s *store) update(ctx context.Context, statement bson.D) (matched, changed bool, err error) {
	raw, err := s.write(ctx, updating(s.collection, statement))
	if err != nil {
		return false, false, err
	}
	return updated(raw)
}

func updating(collection string, statement bson.D) bson.D {
	return bson.D{e("update", collection), e("updates", bson.A{statement})}
}

// updated decodes the reply to an update.
func updated(raw bson.Raw) (matched, changed bool, err error) {
	n, ok := raw.Lookup("n").AsInt64OK()
	if !ok {
		return false, false, fmt.Errorf("reply to update without n: %v", raw)
	}
	modified, _ := raw.Lookup("nModified").AsInt64OK()
	return n > 0, modified > 0, nil
}

// millis returns d in milliseconds, rounded up, so that the store does not end a lease before its holder does.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
