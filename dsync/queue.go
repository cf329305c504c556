package dsync

import (
	"container/list"
	"context"
	"errors"
	"time"
)

// A queue is the line of this process for one key, first come first served. It
// lets in as many as fit into the key, of a semaphore all, and of them one at a
// time to the store's line; who comes when a hold can be shared or handed on needs
// no store at all. It exists while someone is let in. Its fields are guarded by the
// session's mu.
type queue struct {
	s       *Session
	key     string
	kind    Kind
	limit   int64     // that of the first that came
	used    int64     // weight of those let in: that hold, ask, or lingers
	asks    bool      // one of them stands in the store's line, or is about to
	keen    bool      // readers would have shared a hold for longer than a turn
	asker   asker     // who asks
	holder  *hold     // who was granted last, while it holds
	shared  *hold     // of readers: the hold that others may share
	sealed  error     // a *sealedError: what those who wait need not ask for
	waiting list.List // of *entrant

	parked *hold       // a hold that lingers: nobody's
	idle   time.Time   // since when
	linger *time.Timer // ends it; nil: not running
}

// An asker is who asks the store, in its line.
type asker struct {
	since  time.Time
	weight int64
}

// An entrant waits in a queue.
type entrant struct {
	want
	ready chan *hold // room for one: a hold, or nil for the right to ask the store
}

// enter waits until w may ask the store, or has a hold of this process's: shared,
// or handed on. Who asked must call asked. An error is ctx's, ErrClosed, or a
// *MismatchError.
func (s *Session) enter(ctx context.Context, w want) (*hold, error) {
	s.mu.Lock()
	q, err := s.queue(w)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	if q.waiting.Len() == 0 || w.first {
		if h, ok := q.admit(w, true); ok {
			s.mu.Unlock()
			return h, nil
		}
	}
	place := q.line(&entrant{w, make(chan *hold, 1)})
	e := place.Value.(*entrant)
	if w.first {
		q.press()
	}
	s.mu.Unlock()

	select {
	case h := <-e.ready:
		return h, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.closing:
		err = ErrClosed
	}
	s.mu.Lock()
	select {
	case h := <-e.ready:
		// ctx ended first, or the session: pass on what came after.
		if h == nil {
			q.asks = false
			q.leave(w.weight)
		}
		s.mu.Unlock()
		if h != nil {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = h.unlock(Outcome{}).wait(ended) // it goes on in the background
		}
	default:
		q.waiting.Remove(place)
		q.next()
		s.mu.Unlock()
	}
	return nil, err
}

// line puts e in line: before all others if it is to be first, and else before those
// that are not if it had its turn already and gave it up.
func (q *queue) line(e *entrant) *list.Element {
	if e.first {
		return q.waiting.PushFront(e)
	}
	if e.back {
		for place := q.waiting.Front(); place != nil; place = place.Next() {
			if !place.Value.(*entrant).first {
				return q.waiting.InsertBefore(e, place)
			}
		}
	}
	return q.waiting.PushBack(e)
}

// forced reports whether the next in line wants the key by force.
func (q *queue) forced() bool {
	place := q.waiting.Front()
	return place != nil && place.Value.(*entrant).first
}

// press has those of this process that hold the key give it up, and who asks for it
// step aside.
func (q *queue) press() {
	for _, h := range q.s.holds {
		switch {
		case h.q != q:
		case h.state == asking:
			h.notify()
		default:
			h.drain(ErrRevoked)
		}
	}
}

// tryEnter is enter without waiting for anyone; it waits while this process gives up
// what lingers here for another use, which nobody has. If it can't be, ok is false and
// holder is who holds here, nil while it is not granted.
func (s *Session) tryEnter(ctx context.Context, w want) (h, holder *hold, ok bool, err error) {
	for again := false; ; again = true {
		s.mu.Lock()
		q, err := s.queue(w)
		if err != nil {
			s.mu.Unlock()
			return nil, nil, false, err
		}
		idle := q.parked
		if q.waiting.Len() == 0 {
			h, ok = q.admit(w, false)
		}
		if ok || again || idle == nil || q.parked == idle {
			holder = q.holder
			s.mu.Unlock()
			return h, holder, ok, nil
		}
		idle.passed = make(chan struct{})
		s.mu.Unlock()
		if err := s.pause(ctx, idle.passed, s.attemptTime()); err != nil {
			return nil, nil, false, err
		}
	}
}

// sealed returns what the queue for w knows of a seal.
func (s *Session) sealed(w want) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[w.key].sealed
}

// queue returns the queue for w. s.mu must be held.
func (s *Session) queue(w want) (*queue, error) {
	if s.presence != nil {
		s.presence.expiredAt(w.began) // what lingers may be lost
	}
	q := s.queues[w.key]
	switch {
	case q == nil:
		q = &queue{s: s, key: w.key, kind: w.kind, limit: w.limit}
		s.queues[w.key] = q
	case q.kind != w.kind:
		return nil, &MismatchError{Key: w.key, Kind: q.kind, WantKind: w.kind, Limit: q.limit, WantLimit: w.limit}
	}
	return q, nil
}

// admit lets w in if it fits, to ask the store, or with a hold. lines says that it
// would stand in the store's line.
func (q *queue) admit(w want, lines bool) (h *hold, ok bool) {
	if h := q.shared; h != nil && w.shares {
		if h.joinable() {
			h.sharers++
			return h, true
		}
		q.keen = q.keen || h.state == held && !h.yielded
	}
	if h := q.parked; h != nil {
		q.parked = nil
		if w.like(h) {
			return h.handOver(w), true
		}
		h.dropParked()
		return nil, false
	}
	// How much of a semaphore is left only the store knows, as its size can change;
	// who waits for this process's own holds keeps its place among processes there.
	full := w.kind != KindSemaphore && q.used > 0 && q.used+w.weight > w.limit
	if lines && q.asks || full {
		return nil, false
	}
	q.used += w.weight
	if lines {
		q.asks, q.asker = true, asker{w.began, w.weight}
	}
	return nil, true
}

// asked is called by who asked the store with w, when it was granted, or has given
// up for err.
func (s *Session) asked(w want, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[w.key]
	q.asks = false
	if errors.As(err, new(*sealedError)) {
		q.sealed = err
	}
	if err == nil {
		q.next()
	} else {
		q.leave(w.weight)
	}
}

// leave gives back what was let in. s.mu must be held.
func (q *queue) leave(weight int64) {
	q.used -= weight
	q.next()
}

// next lets in who can be. s.mu must be held.
func (q *queue) next() {
	for place := q.waiting.Front(); place != nil; place = q.waiting.Front() {
		e := place.Value.(*entrant)
		h, ok := q.admit(e.want, true)
		if !ok {
			return
		}
		q.waiting.Remove(place)
		e.ready <- h
	}
	if q.used == 0 && !q.asks { // who asks was granted, and has lost that again: see asked
		if q.linger != nil {
			q.linger.Stop()
		}
		delete(q.s.queues, q.key)
	}
}
