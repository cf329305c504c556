package engine

import (
	"container/list"
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A queue is this process's FIFO queue for one key. It admits as many callers as fit into the
// key; for a semaphore it admits all. One admitted caller at a time has the turn to request the
// key from the store. A caller that can share a hold, or is handed one off, does not need the
// store. A queue exists while anybody is admitted. The session's mu guards its fields.
type queue struct {
	s             *Session
	key           string
	kind          driver.Kind
	limit         int64     // as given by the first caller
	used          int64     // shares of admitted callers, which request or hold, and of a lingering claim: see share
	turn          turn      // to request the key from the store
	readersWaited bool      // readers had to wait because a shared hold had used up its time, not because others waited
	holder        *Hold     // the last hold; nil when its slot is free, or its claim lingers
	shared        *Hold     // the hold that further readers may share
	sealed        error     // a *SealedError, which callers get without a request
	waiting       list.List // of *entrant

	lingering *claim      // granted but unused
	idle      time.Time   // since when it is unused
	linger    *time.Timer // ends the lingering; nil: not running
}

// A turn records the weight that the caller with the turn wants, and since when. The zero turn
// is free.
type turn struct {
	since  time.Time
	weight int64
}

func (t turn) taken() bool { return t.weight > 0 }

// An entrant is a caller that waits in a queue.
type entrant struct {
	w     Want
	ready chan admission // capacity 1
}

// An admission is what a caller that waited in a queue gets: a hold, or the turn, or the turn with
// a claim whose first attempt is under way.
type admission struct {
	h *Hold
	c *claim
}

// enter waits until w has the turn to request the key from the store, or gets a hold of this
// process, shared or handed off. With the turn it also returns the claim to request, if it did
// not have to wait and the session is registered already, or if the claim replaces another. The
// caller must end its turn with [claim.begin] or [Session.leaveTurn]. The error is ctx's,
// ErrClosed, or a *MismatchError.
func (s *Session) enter(ctx context.Context, w *Want) (*Hold, *claim, error) {
	s.mu.Lock()
	q, err := s.queue(w)
	if err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	if q.waiting.Len() == 0 || w.First {
		if h, ok := q.admit(w); ok {
			var c *claim
			if sl := s.lease; h == nil && sl != nil && q.sealed == nil && !s.ends() {
				c = sl.newClaim(q, w)
			}
			s.mu.Unlock()
			return h, c, nil
		}
	}
	elem := q.insert(&entrant{*w, make(chan admission, 1)})
	e := elem.Value.(*entrant)
	if w.First {
		q.windDownAll()
	}
	s.mu.Unlock()

	select {
	case a := <-e.ready:
		return a.h, a.c, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.closing:
		err = ErrClosed
	}
	s.mu.Lock()
	select {
	case a := <-e.ready:
		// ctx or the session ended first. Release the hold or the turn that came after that.
		s.mu.Unlock()
		if a.h != nil {
			// The release goes on in the background.
			_ = a.h.Unlock(driver.Leave{}).Wait(EndedContext(context.Background(), err))
			break
		}
		if a.c != nil {
			a.c.abandon()
		}
		s.leaveTurn(w, err)
	default:
		q.waiting.Remove(elem)
		q.next()
		s.mu.Unlock()
	}
	return nil, nil, err
}

// insert puts e into the queue: at the front if it has First, behind those with First if it has
// already had the turn and gave it up, and otherwise at the end.
func (q *queue) insert(e *entrant) *list.Element {
	if e.w.First {
		return q.waiting.PushFront(e)
	}
	if e.w.back {
		for elem := q.waiting.Front(); elem != nil; elem = elem.Next() {
			if !elem.Value.(*entrant).w.First {
				return q.waiting.InsertBefore(e, elem)
			}
		}
	}
	return q.waiting.PushBack(e)
}

// forceWaits reports whether the next in the queue wants the key by force.
func (q *queue) forceWaits() bool {
	elem := q.waiting.Front()
	return elem != nil && elem.Value.(*entrant).w.First
}

// windDownAll asks the holders in this process to give up the key, and makes the caller that
// requests it step aside.
func (q *queue) windDownAll() {
	for _, c := range q.s.claims {
		switch {
		case c.queue != q:
		case c.state == pending:
			c.requestAgain()
		case c.hold != nil:
			c.hold.windDown(ErrRevoked, true)
		}
	}
}

// tryEnter is enter without waiting for other callers. It does wait for the release of a claim
// that lingers here and cannot be reused, since nobody uses that. If w cannot enter, ok is false
// and holder is the hold in this process, or nil if there is none.
func (s *Session) tryEnter(ctx context.Context, w *Want) (h, holder *Hold, ok bool, err error) {
	for again := false; ; again = true {
		s.mu.Lock()
		q, err := s.queue(w)
		if err != nil {
			s.mu.Unlock()
			return nil, nil, false, err
		}
		idle := q.lingering
		if q.waiting.Len() == 0 {
			h, ok = q.admit(w)
		}
		if ok || again || idle == nil || q.lingering == idle {
			holder = q.holder
			s.mu.Unlock()
			return h, holder, ok, nil
		}
		idle.released = make(chan struct{})
		s.mu.Unlock()
		if err := s.waitFor(ctx, idle.released, nil, s.attemptTime()); err != nil {
			return nil, nil, false, err
		}
	}
}

// queue returns the queue for w. s.mu must be held.
func (s *Session) queue(w *Want) (*queue, error) {
	if s.lease != nil {
		s.lease.expiredAt(w.began) // a lingering claim may be lost by now
	}
	q := s.queues[w.Key]
	switch {
	case q == nil:
		q = &queue{s: s, key: w.Key, kind: w.Kind, limit: w.Limit}
		s.queues[w.Key] = q
	case q.kind != w.Kind:
		return nil, &driver.MismatchError{Key: w.Key, Kind: q.kind, WantKind: w.Kind, Limit: q.limit, WantLimit: w.Limit}
	}
	return q, nil
}

// admit admits w if possible: with a hold of this process, or else with the turn, which a try
// does not need. s.mu must be held.
func (q *queue) admit(w *Want) (h *Hold, ok bool) {
	if h := q.shared; h != nil && w.Shares {
		if h.joinable() {
			h.sharers++
			return h, true
		}
		q.readersWaited = q.readersWaited || h.state == live && !h.c.othersWait
	}
	if c := q.lingering; c != nil {
		q.lingering = nil
		if w.like(c) {
			return c.handOff(w), true
		}
		c.release(driver.Leave{})
		return nil, false
	}
	// Only the store knows how much of a semaphore is left, because its size can change. And
	// a caller that waits there for holds of this process keeps its position among processes.
	full := w.Kind != driver.KindSemaphore && q.used > 0 && w.Weight > w.Limit-q.used
	if full || !w.try && q.turn.taken() {
		return nil, false
	}
	q.used += q.share(w.Weight)
	if !w.try {
		q.turn = turn{w.began, w.Weight}
	}
	return nil, true
}

// requested ends the turn of a caller whose claim was granted. s.mu must be held.
func (q *queue) requested() {
	q.turn = turn{}
	q.next()
}

// leaveTurn ends the turn of a caller that gave up for err.
func (s *Session) leaveTurn(w *Want, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[w.Key]
	if !w.try {
		q.turn = turn{}
		if errors.As(err, new(*SealedError)) {
			q.sealed = err
		}
	}
	q.leave(w.Weight)
}

// leave frees what a caller of that weight took when it was admitted. s.mu must be held.
func (q *queue) leave(weight int64) {
	q.used -= q.share(weight)
	q.next()
}

// share returns how much of the queue a caller of that weight takes. A semaphore's queue admits all
// callers and counts them, because the sum of their weights can overflow.
func (q *queue) share(weight int64) int64 {
	if q.kind == driver.KindSemaphore {
		return 1
	}
	return weight
}

// next admits callers from the front of the queue, as long as they can be admitted. s.mu must be
// held.
func (q *queue) next() {
	for elem := q.waiting.Front(); elem != nil; elem = q.waiting.Front() {
		e := elem.Value.(*entrant)
		h, ok := q.admit(&e.w)
		if !ok {
			return
		}
		q.waiting.Remove(elem)
		e.ready <- admission{h: h}
	}
	if q.used == 0 {
		if q.linger != nil {
			q.linger.Stop()
		}
		delete(q.s.queues, q.key)
	}
}

// notifiedTurn is how long a claim may be kept beyond its turn if the session would be notified of
// others that wait. It bounds what a lost notice costs them.
const notifiedTurn = 5 * time.Second

// notifiedOfOthers reports whether the session would be notified if others waited.
func (c *claim) notifiedOfOthers() bool {
	l := &c.lease.listener
	return c.listener != 0 && l.ready && c.listener == l.number
}

// mayKeep reports whether the claim may be kept for another use in this process. It may be kept
// until d after its grant, or for at least notifiedTurn if the session would be notified of others
// that wait, but not once they do.
func (c *claim) mayKeep(d time.Duration, now time.Time) bool {
	if c.othersWait {
		return false
	}
	if c.notifiedOfOthers() {
		d = max(d, notifiedTurn)
	}
	return now.Sub(c.grant.start) < d
}

// joinable reports whether another reader may share the hold. s.mu must be held.
func (h *Hold) joinable() bool {
	now := time.Now()
	turn := h.c.s.opt.HandOffTime
	return turn > 0 && h.state == live && h.c.lease.leftAt(now) > 0 && h.c.mayKeep(turn, now)
}

// like reports whether w could be served by c, given that c is granted and not lost.
func (w *Want) like(c *claim) bool {
	r := &c.request
	return w.exclusive() && w.Kind == r.Kind && w.Weight == r.Weight && w.Limit == r.Limit &&
		w.Lease == 0 && r.Lease == 0 && !w.auto && !c.auto
}

// exclusive reports whether w takes all of the key. That is never certain for a semaphore: its
// size can grow, and by the time of a hand-off others may hold a part, with a greater token, or
// may be waiting in the store's queue, where they came first.
func (w *Want) exclusive() bool { return w.Weight == w.Limit && w.Kind != driver.KindSemaphore }

// reuse hands off the claim, whose hold is done, to the next caller in this process, or keeps it
// for a while if nobody waits here. It reports whether it did; it does not if other processes
// must get their turn. s.mu must be held.
func (c *claim) reuse(now time.Time) bool {
	s, q := c.s, c.queue
	if c.token >= c.lastToken || c.shares {
		return false
	}
	if elem := q.waiting.Front(); elem != nil {
		e := elem.Value.(*entrant)
		turn := now.Sub(c.grant.start) < s.opt.HandOffTime && c.handOffs < s.opt.MaxHandOffs
		if !e.w.like(c) || !turn && !(s.opt.Linger > 0 && c.mayKeep(s.opt.HandOffTime, now)) {
			return false
		}
		q.waiting.Remove(elem)
		e.ready <- admission{h: c.handOff(&e.w)}
		return true
	}
	if !c.request.Yield || !c.mayKeep(max(s.opt.HandOffTime, s.opt.Linger), now) {
		return false
	}
	c.hold = nil
	q.lingering, q.idle, q.holder = c, now, nil
	if q.linger == nil {
		q.linger = time.AfterFunc(s.opt.Linger, q.endLinger)
	}
	return true
}

// replace releases the claim, whose hold is done, in the command that requests the key for the
// next caller in this process. So that caller joins the store's queue in the moment in which this
// one leaves. It returns a channel that gets the outcome, or nil if nobody waits here, or the
// command can't be sent at once. s.mu must be held.
func (c *claim) replace() <-chan error {
	s, q := c.s, c.queue
	elem := q.waiting.Front()
	if elem == nil || c.lease != s.lease || s.ends() || c.inflight != nil {
		return nil
	}
	e := elem.Value.(*entrant)
	if !e.w.like(c) {
		return nil
	}
	select {
	case s.lanes <- struct{}{}:
	default:
		return nil
	}
	q.waiting.Remove(elem)
	q.turn = turn{e.w.began, e.w.Weight}
	next := c.lease.newClaim(q, &e.w)
	c.queue, q.holder = nil, nil // its slot is the next claim's
	answered := c.releaseWith(next, func() { <-s.lanes })
	e.ready <- admission{c: next}
	return answered
}

// handOff returns the claim's next hold, with the next token. s.mu must be held.
func (c *claim) handOff(w *Want) *Hold {
	c.handOffs++
	return c.newHold(w.ctx, w.began, c.token+1, true)
}

// endLinger is called by the timer of a lingering claim.
func (q *queue) endLinger() {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	c := q.lingering
	if c == nil {
		q.linger = nil
		return
	}
	if left := q.s.opt.Linger - time.Since(q.idle); left > 0 {
		q.linger.Reset(left)
		return
	}
	q.linger = nil
	c.stopLingering()
}

// stopLingering releases the claim if it lingers. s.mu must be held.
func (c *claim) stopLingering() {
	if c.lingers() {
		c.queue.lingering = nil
		c.release(driver.Leave{})
	}
}
