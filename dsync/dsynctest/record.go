package dsynctest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	maxAhead  = 8    // waiters in State.WaitersAhead, except for Load
	maxShown  = 1000 // sessions that Sessions returns, keys that Keys returns
	maxWoken  = 1000 // waiters that are notified when a key is sealed
	maxFormer = 16   // former limits, including any that were never in force
)

// A record is a [Memory]'s record of one key.
type record struct {
	kind    driver.Kind
	limit   int64
	former  []int64 // former limits of this kind, the latest last
	token   int64   // token of the latest grant, or a greater one reserved for its holder
	term    int64   // grants while the kind was KindElection
	holders []driver.Holder
	queue   []waiting
	queued  map[string]bool // the ids of the claims in queue, so that joining need not search it
	used    time.Time       // time of the last change

	published map[int64]value // the holders' values, by token

	sealed int64 // the greatest tick that has succeeded
	result []byte
}

func newRecord() *record {
	return &record{queued: make(map[string]bool), published: make(map[int64]value)}
}

func (r *record) clone() *record {
	c := *r
	c.holders, c.queue = slices.Clone(r.holders), slices.Clone(r.queue)
	c.queued, c.published = maps.Clone(r.queued), maps.Clone(r.published)
	return &c
}

// An effect describes what a command did to a record, for the reply and the notices.
type effect struct {
	changed  bool
	joined   bool          // an Acquire has put its claim into the queue
	left     bool          // a Release has found its claim
	kept     bool          // a Release with Keep has set the end of the hold
	holder   driver.Holder // the hold after an Extend
	granted  []grant
	crowded  bool            // the queue is not empty after the command
	woken    []driver.Waiter // waiters that must request their claims again
	yielding []driver.Holder // holders that should yield to the first waiter
}

// A grant is a new holder with its term.
type grant struct {
	driver.Holder
	term int64 // 0 unless the kind is KindElection
}

// waiting is a claim in the queue.
type waiting struct {
	driver.Waiter
	tick  int64
	yield bool
	value string
}

// A value is a value published by a holder.
type value struct {
	bytes []byte // not nil
	seq   int64
}

// edit does what [Memory.Edit] does to the record. If it returns an error, nothing has changed.
func (r *record) edit(e driver.Edit, now time.Time) (fx effect, err error) {
	switch {
	case e.Acquire != nil:
		fx, err = r.join(*e.Acquire, e.Release, now)
	case e.Release != nil:
		fx, err = r.leave(*e.Release, now)
	case e.Extend != nil:
		fx, err = r.extend(e.Extend.Claim, now)
	case e.Publish != nil:
		fx, err = r.publish(*e.Publish, now)
	case e.Resize != nil:
		fx, err = r.resize(*e.Resize)
	case e.Forget != nil:
		fx = r.forget(*e.Forget, now)
	}
	if err != nil {
		return effect{}, err
	}
	if fx.changed || fx.joined {
		fx.granted = r.settle(now)
	}
	if len(fx.woken) > 0 { // a seal wakes waiters instead of sending notices of grants
		fx.granted = nil
	}
	triedOnly := e.Acquire != nil && !e.Acquire.Wait && r.dequeue(e.Acquire.Claim.ID)
	if fx.changed = fx.changed || len(fx.granted) > 0 || fx.joined != triedOnly; fx.changed {
		r.used = now
	}
	maps.DeleteFunc(r.published, func(token int64, _ value) bool {
		return !slices.ContainsFunc(r.holders, func(h driver.Holder) bool { return h.Token == token })
	})
	fx.crowded = len(r.queue) > 0
	switch {
	case !fx.crowded:
	case fx.kept:
		fx.woken = []driver.Waiter{r.queue[0].Waiter}
	case e.Acquire != nil && r.queue[0].Claim == e.Acquire.Claim.ID: // each request of the claim repeats this, because a notice may be lost
		fx.yielding = without(r.holders, func(h driver.Holder) bool { return !h.Yield })
	}
	return fx, nil
}

// join executes an Acquire. It first drops ended holds, the claims of expired sessions and, if leave is not nil,
// the claim that leave releases. Then it puts j's claim into the queue, if the claim may join.
func (r *record) join(j driver.Acquire, leave *driver.Release, now time.Time) (fx effect, err error) {
	c := j.Claim
	hasExpired := func(session string) bool { return slices.Contains(j.Expired, session) }
	leaves := func(claim string) bool { return leave != nil && claim == leave.Claim.ID }
	holders := without(r.holders, func(h driver.Holder) bool {
		if h.Until.IsZero() {
			return hasExpired(h.Session) || leaves(h.Claim)
		}
		return h.Ended(now) || leaves(h.Claim)
	})
	queue := r.queue
	if len(j.Expired) > 0 || leave != nil {
		queue = without(queue, func(w waiting) bool { return hasExpired(w.Session) || leaves(w.Claim) })
	}

	inUse := len(holders)+len(queue) > 0
	waits := r.queued[c.ID] && !hasExpired(c.Session)
	holds := slices.ContainsFunc(holders, func(h driver.Holder) bool { return h.Claim == c.ID })
	if !waits && !holds && !r.suits(c, inUse) {
		return effect{}, r.mismatch(c.Key, c.Kind, c.Limit)
	}
	joins := !waits && !holds && !now.After(j.NotAfter) && !r.over(c.Tick)
	if joins && len(queue) >= driver.MaxQueue {
		return effect{}, fmt.Errorf("dsynctest: %w: %d claims wait for key %q, which is the most allowed", driver.ErrRefused, driver.MaxQueue, c.Key)
	}

	fx.changed = len(holders) != len(r.holders) || len(queue) != len(r.queue)
	fx.left = leave != nil && (r.queued[leave.Claim.ID] || slices.ContainsFunc(r.holders, func(h driver.Holder) bool { return leaves(h.Claim) }))
	if len(queue) != len(r.queue) {
		clear(r.queued)
		for _, w := range queue {
			r.queued[w.Claim] = true
		}
	}
	r.holders, r.queue = holders, queue
	if fx.joined = joins; joins {
		r.enqueue(c)
	}
	return fx, nil
}

// over reports whether the key is sealed up to the tick or a later one.
func (r *record) over(tick int64) bool { return r.sealed > 0 && tick <= r.sealed }

// suits reports whether the kind and limit of the claim are the key's, or the key is not in use and can take them
// over. If the claim's tick is over, only the kind matters.
func (r *record) suits(c driver.Claim, inUse bool) bool {
	switch {
	case r.over(c.Tick):
		return c.Kind == r.kind
	case r.knows(c):
		return c.Weight <= r.limit
	}
	return !inUse && r.sealed == 0
}

// knows reports whether the claim has the key's limit or a former one.
func (r *record) knows(c driver.Claim) bool {
	return c.Kind == r.kind && (c.Limit == r.limit || slices.Contains(r.former, c.Limit))
}

func (r *record) mismatch(key string, kind driver.Kind, limit int64) error {
	return &driver.MismatchError{Key: key, Kind: r.kind, WantKind: kind, Limit: r.limit, WantLimit: limit}
}

// enqueue adds a claim to the queue. The claim must suit the key.
func (r *record) enqueue(c driver.Claim) {
	if !r.knows(c) { // the key is free
		r.kind, r.limit, r.former = c.Kind, c.Limit, nil
	}
	w := waiting{driver.Waiter{Claim: c.ID, Session: c.Session, Weight: c.Weight}, c.Tick, c.Yield, c.Value}
	later := func(w waiting) bool { return c.Tick > 0 && w.tick > c.Tick }
	switch {
	case c.First:
		r.queue = slices.Insert(r.queue, 0, w)
	case slices.ContainsFunc(r.queue, later):
		r.queue = slices.Concat(without(r.queue, later), []waiting{w}, without(r.queue, func(o waiting) bool { return !later(o) }))
	default:
		r.queue = append(r.queue, w)
	}
	r.queued[c.ID] = true
}

// settle grants waiting claims in order, until one does not fit.
func (r *record) settle(now time.Time) (granted []grant) {
	var sum int64
	for _, h := range r.holders {
		sum += h.Weight
	}
	for len(r.queue) > 0 && r.queue[0].Weight <= r.limit-sum {
		w := r.queue[0]
		r.queue[0] = waiting{}
		r.queue = r.queue[1:]
		delete(r.queued, w.Claim)

		r.token = max(r.token+driver.TokenStep, now.UnixMilli()*driver.TokenStep)
		h := driver.Holder{Claim: w.Claim, Session: w.Session, Weight: w.Weight, Token: r.token, Since: now, Yield: w.yield}
		if w.yield && w.Weight == r.limit {
			r.token += driver.TokenRoom - driver.TokenStep
		}
		r.holders = append(r.holders, h)
		if w.value != "" {
			r.published[h.Token] = value{bytes: []byte(w.value)}
		}
		g := grant{Holder: h}
		if r.kind == driver.KindElection {
			r.term++
			g.term = r.term
		}
		granted = append(granted, g)
		sum += w.Weight
	}
	return granted
}

// dequeue removes a claim from the queue and reports whether it was there.
func (r *record) dequeue(claim string) bool {
	if !r.queued[claim] {
		return false
	}
	delete(r.queued, claim)
	i := r.position(claim)
	r.queue = slices.Delete(r.queue, i, i+1)
	return true
}

// position returns the index of a claim that is in the queue. It searches from the end, because most calls are
// about a claim that has just joined.
func (r *record) position(claim string) int {
	i := len(r.queue) - 1
	for r.queue[i].Claim != claim {
		i--
	}
	return i
}

// without returns s without the elements for which drop is true. It returns a copy, or s itself if there is nothing
// to drop, and never changes s, because callers of the store may have parts of it.
func without[E any](s []E, drop func(E) bool) []E {
	if !slices.ContainsFunc(s, drop) {
		return s
	}
	var kept []E
	for _, e := range s {
		if !drop(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// ceilMilli rounds up to the millisecond, the resolution of the store's clock. Rounding down could turn a short
// lease into 0, which would mean that the hold has no end.
func ceilMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// leave releases a claim or, with Keep, sets the end of its hold.
func (r *record) leave(l driver.Release, now time.Time) (fx effect, err error) {
	claim, keeps := l.Claim.ID, l.Keep > 0 && l.Seal <= 0
	i := slices.IndexFunc(r.holders, func(h driver.Holder) bool { return h.Claim == claim })
	if l.Successor != "" && !keeps && l.Seal <= 0 {
		switch {
		case i < 0:
			return effect{}, nil
		case !r.queued[l.Successor]:
			return effect{}, fmt.Errorf("dsynctest: %w: claim %s, the successor of %s", driver.ErrNotWaiting, l.Successor, claim)
		}
		r.toHead(l.Successor)
	}
	switch {
	case i < 0:
		fx.left = r.dequeue(claim)
		fx.changed = fx.left
	case keeps:
		fx.kept = r.keep(&r.holders[i], now.Add(ceilMilli(l.Keep)))
		fx.left, fx.changed = true, fx.kept
	default:
		h := r.holders[i]
		r.holders = slices.Delete(r.holders, i, i+1)
		fx.left, fx.changed = true, true
		if l.Seal > r.sealed && !h.Ended(now) {
			fx.woken = r.seal(l.Seal, l.Result)
		}
	}
	return fx, nil
}

// toHead moves a claim that is in the queue to the head of the queue.
func (r *record) toHead(claim string) {
	i := r.position(claim)
	w := r.queue[i]
	r.queue = slices.Insert(slices.Delete(r.queue, i, i+1), 0, w)
}

// keep sets the end of a hold, unless the hold has an earlier end, and reports whether it did. The hold stays with
// its session, to show who held the key.
func (r *record) keep(h *driver.Holder, end time.Time) bool {
	if !h.Until.IsZero() && !end.Before(h.Until) {
		return false
	}
	h.Until = end
	return true
}

// seal seals the key up to the tick. It returns the waiters to be notified: those whose ticks are over, and the
// first of the others.
func (r *record) seal(tick int64, result []byte) (woken []driver.Waiter) {
	r.sealed, r.result = tick, slices.Clone(result)
	stay := without(r.queue, func(w waiting) bool { return r.over(w.tick) })
	for _, w := range r.queue[:min(len(r.queue), maxWoken)] {
		if r.over(w.tick) || w.Claim == stay[0].Claim {
			woken = append(woken, w.Waiter)
		}
	}
	r.queue = stay
	clear(r.queued)
	for _, w := range stay {
		r.queued[w.Claim] = true
	}
	return woken
}

// extend sets the end of a hold.
func (r *record) extend(c driver.Claim, now time.Time) (fx effect, err error) {
	for i := range r.holders {
		h := &r.holders[i]
		if h.Claim != c.ID || h.Token != c.Token || h.Ended(now) || c.Lease <= 0 {
			continue
		}
		if end := now.Add(ceilMilli(c.Lease)); end.After(h.Until) {
			h.Until, fx.changed = end, true
		}
		fx.holder = *h
		return fx, nil
	}
	return effect{}, notHeldError(c)
}

// publish stores the value of a claim that holds the key.
func (r *record) publish(p driver.Publish, now time.Time) (fx effect, err error) {
	for _, h := range r.holders {
		if h.Claim != p.Claim.ID || h.Ended(now) {
			continue
		}
		if p.Seq > r.published[h.Token].seq {
			r.published[h.Token], fx.changed = value{append([]byte{}, p.Value...), p.Seq}, true
		}
		return fx, nil
	}
	return effect{}, notHeldError(p.Claim)
}

// resize sets the limit.
func (r *record) resize(z driver.Resize) (fx effect, err error) {
	if z.Kind != r.kind && (len(r.holders)+len(r.queue) > 0 || r.sealed > 0) {
		return effect{}, r.mismatch(z.Key, z.Kind, z.Limit)
	}
	for _, w := range r.queue {
		if w.Weight > z.Limit {
			return effect{}, fmt.Errorf("dsynctest: %w: claim %s waits for %d of key %q, which is more than limit %d",
				driver.ErrRefused, w.Claim, w.Weight, z.Key, z.Limit)
		}
	}
	former := r.formerWith(z.Kind, z.From, z.Limit)
	fx.changed = z.Kind != r.kind || z.Limit != r.limit || !slices.Equal(former, r.former)
	r.kind, r.limit, r.former = z.Kind, z.Limit, former
	return fx, nil
}

// forget removes ended holds and, if the key is then unused, everything else except its kind, limit and token.
func (r *record) forget(f driver.Forget, now time.Time) (fx effect) {
	holders := without(r.holders, func(h driver.Holder) bool { return h.Ended(now) })
	fx.left = len(holders)+len(r.queue) == 0 && r.token == f.Token
	fx.changed = len(holders) != len(r.holders) || fx.left && (r.sealed > 0 || r.term > 0 || len(r.former) > 0)
	r.holders = holders
	if fx.left {
		r.sealed, r.result, r.term, r.former = 0, nil, 0, nil
	}
	return fx
}

// formerWith returns the former limits that the key will have after a Resize to kind and limit, the latest last. If
// the key's kind changes, its own former limits are forgotten.
func (r *record) formerWith(kind driver.Kind, from, limit int64) []int64 {
	var former []int64
	if kind == r.kind {
		former = without(r.former, func(n int64) bool { return n == limit })
	}
	know := func(n int64) {
		if n > 0 && n != limit && !slices.Contains(former, n) {
			former = append(former[:len(former):len(former)], n)
		}
	}
	if kind != r.kind || from != r.limit {
		know(from)
	}
	if kind == r.kind {
		know(r.limit)
	}
	return former[max(0, len(former)-maxFormer):]
}

// holdersOf returns the holders that belong to a session, as a query with [driver.KeyQuery].Session shows them.
func (r *record) holdersOf(session string) (own []driver.Holder) {
	for _, h := range r.holders {
		if h.Session == session {
			own = append(own, driver.Holder{Claim: h.Claim, Session: session, Token: h.Token})
		}
	}
	return own
}

// state returns the record's State as seen by a claim ("" for none). most is the largest number of waiters that it
// may show.
func (r *record) state(key, claim string, now time.Time, most int) driver.State {
	s := driver.State{
		Key:     key,
		Now:     now,
		Kind:    r.kind,
		Limit:   r.limit,
		Token:   r.token,
		Holders: slices.Clone(r.holders),
		Waiting: len(r.queue),
	}
	if r.kind == driver.KindElection {
		s.Term = r.term
	}
	if r.sealed > 0 {
		s.Sealed, s.Value = r.sealed, append([]byte{}, r.result...)
	} else {
		for _, h := range r.holders {
			if v, ok := r.published[h.Token]; ok {
				s.Value = slices.Clone(v.bytes)
			}
		}
	}
	from, to := 0, min(len(r.queue), most)
	if r.queued[claim] {
		i := r.position(claim)
		s.Position = i + 1
		from, to = max(0, i-most), i
	}
	for _, w := range r.queue[from:to] {
		s.WaitersAhead = append(s.WaitersAhead, w.Waiter)
	}
	return s
}

// idle reports whether a record can be deleted. Nobody may hold the key or wait for it, and the record must not
// have changed since old. The key must not be sealed, because a seal is permanent, nor have counted terms, because
// the count would start over. And old must be later than the time in the last token, which is ahead of the clock
// after several grants in a millisecond. Otherwise a new record could begin with a smaller token.
func (r *record) idle(old time.Time) bool {
	return r.sealed == 0 && r.term == 0 && len(r.holders) == 0 && len(r.queue) == 0 &&
		r.used.Before(old) && r.token+driver.TokenStep <= old.UnixMilli()*driver.TokenStep
}
