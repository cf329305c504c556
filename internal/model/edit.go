package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// maxAhead is the most waiters that the State in a reply shows.
const maxAhead = 8

// An edit is one edit of a record in progress.
type edit struct {
	Record
	now     time.Time
	changed bool
	found   bool          // a Release has found its claim, or a Forget its key
	kept    bool          // a Release with Keep has set the end of the hold
	extends driver.Holder // the hold after an Extend
	granted []Holder
	woken   []Waiter // waiters that must request the key again
}

// Edit makes one edit of the record at the time now, by the store's clock, and returns the record after it. It does
// what [driver.Store] says of its method Edit. After an error, the record is unchanged.
func (r Record) Edit(e driver.Edit, now time.Time) (after Record, did Effect, err error) {
	if err := e.Check(); err != nil {
		return r, Effect{}, err
	}
	w := edit{Record: r, now: now}
	own := ""
	switch {
	case e.Acquire != nil:
		own = e.Acquire.Claim.ID
		err = w.acquire(*e.Acquire, e.Release)
	case e.Release != nil:
		err = w.release(*e.Release)
	case e.Extend != nil:
		err = w.extend(*e.Extend)
	case e.Publish != nil:
		err = w.publish(*e.Publish)
	case e.Resize != nil:
		err = w.resize(*e.Resize)
	case e.Forget != nil:
		w.forget(*e.Forget)
	}
	if err != nil {
		return r, Effect{}, err
	}
	if w.changed {
		w.LastChange = now
	}
	did = Effect{Edited: driver.Edited{Found: w.found, Holder: w.extends, Notices: w.notices(e)}, Changed: w.changed}
	if own != "" {
		did.State = w.State(e.Key(), own, now, maxAhead)
	}
	return w.Record, did, nil
}

// Discard removes a claim, as a Release without options does. But it leaves a hold that has an end, because such a hold
// is a lease or was kept on purpose.
func (r Record) Discard(c driver.Claim, now time.Time) (after Record, did Effect) {
	if h, _ := r.Holder(c.ID); !h.Until.IsZero() {
		return r, Effect{}
	}
	after, did, _ = r.Edit(driver.Edit{Release: &driver.Release{Claim: c}}, now) // such a Release has no error
	return after, did
}

// MayAnswerEarly reports whether a store may answer the Release before the Release is committed (see
// [driver.Release].Early), if nobody observes the key.
func (r Record) MayAnswerEarly(l driver.Release) bool {
	return l.Early && l.Keep <= 0 && l.Seal <= 0 && l.Successor == "" && len(r.Queue) == 0 && r.holder(l.Claim.ID) >= 0
}

// acquire makes an Acquire. If leave is not nil, acquire also removes the claim that leave releases.
func (w *edit) acquire(j driver.Acquire, leave *driver.Release) error {
	c := j.Claim
	expired := func(session string) bool { return slices.Contains(j.Expired, session) }
	leaves := func(claim string) bool { return leave != nil && claim == leave.Claim.ID }
	w.found = leave != nil && (w.holder(leave.Claim.ID) >= 0 || w.Position(leave.Claim.ID) > 0)
	before := w.Record
	w.Holders = without(w.Holders, func(h Holder) bool {
		return leaves(h.Claim) || h.Ended(w.now) || h.Until.IsZero() && expired(h.Session)
	})
	if len(j.Expired) > 0 || leave != nil {
		w.Queue = without(w.Queue, func(o Waiter) bool { return leaves(o.Claim) || expired(o.Session) })
	}
	w.changed = len(w.Holders) != len(before.Holders) || len(w.Queue) != len(before.Queue)

	there := w.holder(c.ID) >= 0 || w.Position(c.ID) > 0
	switch {
	case there:
	case !w.suits(c):
		return w.mismatch(c.Key, c.Kind, c.Limit)
	case w.now.After(j.NotAfter) || w.Over(c.Tick):
	case len(w.Queue) >= driver.MaxQueue:
		return fmt.Errorf("%w: %d claims wait for key %q, which is the most allowed", driver.ErrRefused, driver.MaxQueue, c.Key)
	default:
		w.enqueue(c)
	}
	w.settle()
	if i := w.Position(c.ID); i > 0 && !j.Wait {
		w.changed = w.changed || there
		w.Queue = slices.Concat(w.Queue[:i-1], w.Queue[i:])
	} else {
		w.changed = w.changed || len(w.Queue) != len(before.Queue)
	}
	return nil
}

// suits reports whether the kind and limit of the claim are the key's, or the key is free and can take them over. If
// the claim's tick is over, only the kind matters.
func (w *edit) suits(c driver.Claim) bool {
	switch {
	case w.Over(c.Tick):
		return c.Kind == w.Kind
	case w.knows(c):
		return c.Weight <= w.Limit
	}
	return !w.InUse() && w.Sealed == 0
}

// knows reports whether the claim has the key's limit or a former one.
func (w *edit) knows(c driver.Claim) bool {
	return c.Kind == w.Kind && (c.Limit == w.Limit || slices.Contains(w.Former, c.Limit))
}

func (w *edit) mismatch(key string, kind driver.Kind, limit int64) error {
	return &driver.MismatchError{Key: key, Kind: w.Kind, WantKind: kind, Limit: w.Limit, WantLimit: limit}
}

// enqueue adds a claim to the queue. The claim must suit the key.
func (w *edit) enqueue(c driver.Claim) {
	if !w.knows(c) { // the key is free
		w.Kind, w.Limit, w.Former = c.Kind, c.Limit, nil
	}
	o := Waiter{driver.Waiter{Claim: c.ID, Session: c.Session, Weight: c.Weight, Tick: c.Tick}, c.Yield, c.Value}
	later := func(o Waiter) bool { return c.Tick > 0 && o.Tick > c.Tick }
	switch {
	case c.First:
		w.Queue = slices.Concat([]Waiter{o}, w.Queue)
	case slices.ContainsFunc(w.Queue, later):
		w.Queue = slices.Concat(without(w.Queue, later), []Waiter{o}, without(w.Queue, func(o Waiter) bool { return !later(o) }))
	default:
		w.Queue = append(w.Queue, o)
	}
}

// release releases a claim or, with Keep, sets the end of its hold.
func (w *edit) release(l driver.Release) error {
	claim, keeps := l.Claim.ID, l.Keep > 0 && l.Seal <= 0
	i := w.holder(claim)
	if l.Successor != "" && !keeps && l.Seal <= 0 {
		switch {
		case i < 0:
			return nil
		case w.Position(l.Successor) == 0:
			return fmt.Errorf("%w: claim %s, the successor of %s", driver.ErrNotWaiting, l.Successor, claim)
		}
		w.toHead(l.Successor)
	}
	switch {
	case i < 0:
		n := w.Position(claim)
		if w.found = n > 0; !w.found {
			return nil
		}
		w.Queue = slices.Concat(w.Queue[:n-1], w.Queue[n:])
	case keeps:
		w.found = true
		if w.kept = w.keep(i, w.now.Add(ceilMilli(l.Keep))); !w.kept {
			return nil
		}
	default:
		h := w.Holders[i]
		w.found = true
		w.Holders = slices.Concat(w.Holders[:i], w.Holders[i+1:])
		if l.Seal > w.Sealed && !h.Ended(w.now) {
			w.seal(l.Seal, l.Result)
		}
	}
	w.changed = true
	w.settle()
	return nil
}

// toHead moves a waiter to the head of the queue.
func (w *edit) toHead(claim string) {
	i := w.Position(claim) - 1
	w.Queue = slices.Concat(w.Queue[i:i+1], w.Queue[:i], w.Queue[i+1:])
}

// keep sets the end of a hold, unless the hold already has an end that is not later. It reports whether it has set the
// end. The hold stays with its session, to show who held the key.
func (w *edit) keep(i int, end time.Time) bool {
	if h := w.Holders[i]; !h.Until.IsZero() && !end.Before(h.Until) {
		return false
	}
	w.change(i, func(h *Holder) { h.Until = end })
	return true
}

// change changes one hold in a copy of the holders.
func (w *edit) change(i int, f func(*Holder)) {
	w.Holders = slices.Clone(w.Holders)
	f(&w.Holders[i])
}

// seal seals the key up to the tick, and removes the waiters whose ticks are over. Of the first maxWoken waiters, it
// wakes the removed ones and the first that remains.
func (w *edit) seal(tick int64, result []byte) {
	w.Sealed, w.Result = tick, slices.Clone(result)
	stay := without(w.Queue, func(o Waiter) bool { return w.Over(o.Tick) })
	for _, o := range w.Queue[:min(len(w.Queue), maxWoken)] {
		if w.Over(o.Tick) || o.Claim == stay[0].Claim {
			w.woken = append(w.woken, o)
		}
	}
	w.Queue = stay
}

// settle grants the key to waiters in order, until one does not fit.
func (w *edit) settle() {
	free := w.Limit
	for _, h := range w.Holders {
		free -= h.Weight
	}
	w.Holders = slices.Clip(w.Holders)
	for len(w.Queue) > 0 && w.Queue[0].Weight <= free {
		o := w.Queue[0]
		w.Queue = w.Queue[1:]
		free -= o.Weight

		w.Token = max(w.Token+driver.TokenStep, w.now.UnixMilli()*driver.TokenStep)
		h := Holder{Holder: driver.Holder{Claim: o.Claim, Session: o.Session, Weight: o.Weight, Token: w.Token, Since: w.now, Yield: o.Yield}}
		if o.Yield && o.Weight == w.Limit {
			w.Token += driver.TokenRoom - driver.TokenStep
		}
		if w.Kind == driver.KindElection {
			w.Term++
			h.Term = w.Term
		}
		if o.Value != "" {
			h.Value = []byte(o.Value)
		}
		w.Holders = append(w.Holders, h)
		w.granted, w.changed = append(w.granted, h), true
	}
}

// ceilMilli rounds up to the millisecond, the resolution of the store's clock. Rounding down could turn a short lease
// into 0, but 0 means that the hold has no end.
func ceilMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
