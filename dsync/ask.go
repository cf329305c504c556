package dsync

import (
	"context"
	"errors"
	"time"
)

// errLate: the request came to the store after the time up to which it counted.
var errLate = errors.New("dsync: the request came too late to count")

// A granted is how a claim was learnt to be held.
type granted struct {
	token int64
	term  int64
	since time.Time // the store's clock, if it was told
	until time.Time // of a fixed lease
	sent  stamp     // before the send of what was itself answered with until: its deadline counts from that
	first bool      // and that was the only attempt: a fixed lease can be dated by it
	start time.Time // when the hold began here
}

// ask makes one attempt to acquire, naming those dead that stand in the way by
// the last state. It returns the grant if the claim is held, else the new state.
func (h *hold) ask(ctx context.Context, wait bool) (*State, *granted, error) {
	s, p := h.s, h.p
	dead := s.dead(h.ahead)
	s.mu.Lock()
	switch {
	case h.granted != nil:
		s.mu.Unlock()
		return nil, h.granted, nil
	case h.state != asking:
		s.mu.Unlock()
		return nil, nil, ErrClosed
	case p.expired():
		s.mu.Unlock()
		return nil, nil, errOver
	case wait && !h.claim.First && h.q.forced():
		s.mu.Unlock()
		return nil, nil, errAside
	}
	h.asks++
	h.again = false
	h.watched = 0
	if p.watch.ready {
		h.watched = p.watch.number
	}
	first := h.asks == 1
	p.watch.asks++
	p.watch.moment++
	moment := p.watch.moment
	notAfter := p.reached().Add(s.attemptTime())
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		p.watch.asks--
		s.mu.Unlock()
	}()

	sent := stampNow()
	ch := call(s, "Acquire", func(ctx context.Context) (*State, error) {
		st, err := s.store.Acquire(ctx, h.claim, wait, dead, notAfter)
		return &st, err
	})
	for {
		select {
		case a := <-ch:
			if a.err != nil {
				if !isAnswer(a.err) {
					h.unanswered(notAfter, nil)
				}
				return nil, nil, a.err
			}
			g, err := h.answered(a.v, moment, wait)
			if g != nil {
				g.sent, g.first = sent, first
			} else {
				h.ahead = a.v.sessions(p.id)
			}
			return a.v, g, err
		case <-h.wake:
			s.mu.Lock()
			g := h.granted
			s.mu.Unlock()
			if g != nil {
				h.unanswered(notAfter, ch)
				return nil, g, nil
			}
		case <-ctx.Done():
			h.unanswered(notAfter, ch)
			return nil, nil, ctx.Err()
		case <-p.over:
			h.unanswered(notAfter, ch)
			return nil, nil, errOver
		case <-s.closing:
			h.unanswered(notAfter, ch)
			return nil, nil, ErrClosed
		}
	}
}

// unanswered notes that an attempt which is void after notAfter was not answered,
// or not yet.
func (h *hold) unanswered(notAfter time.Time, inflight <-chan answer[*State]) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.lone = h.void.IsZero() && inflight != nil
	if notAfter.After(h.void) {
		h.void = notAfter
	}
	if inflight != nil {
		h.inflight = inflight
	}
}

// answered takes in the state that an attempt of moment was answered with.
func (h *hold) answered(a *State, moment uint64, wait bool) (g *granted, err error) {
	s, p := h.s, h.p
	s.mu.Lock()
	defer s.mu.Unlock()
	p.saw(a.Now)
	h.place = a.Place
	for i := range a.Holders {
		o := &a.Holders[i]
		if o.Claim == h.claim.ID {
			g = &granted{token: o.Token, term: a.Term, since: o.Since, until: o.Until}
		} else if o.Until.IsZero() {
			p.releaseUnknown(a.Key, o.Session, o.Claim, moment)
		}
	}
	for _, w := range a.Ahead {
		p.releaseUnknown(a.Key, w.Session, w.Claim, moment)
	}
	switch {
	case g != nil:
	case a.Sealed:
		err = &sealedError{a.Value}
	case wait && a.Place == 0:
		err = errLate
	}
	return g, err
}

// accept begins the hold. A fixed lease must be dated first: unless the grant
// answered the only attempt, nobody here knows when it was made, so an Extend has
// to succeed, and counts.
func (h *hold) accept(ctx context.Context, g *granted) error {
	if h.claim.Lease > 0 && !g.first {
		retry := h.s.backoff()
		for {
			sent := stampNow()
			until, err := await(ctx, h.s, h.extend())
			if err == nil {
				g.until, g.sent = until, sent
				break
			}
			if errors.Is(err, ErrNotHeld) {
				return errOver
			}
			if final(ctx, err) {
				return err
			}
			if err := h.sleep(ctx, retry.next()); err != nil {
				return err
			}
		}
	}
	return h.grant(g)
}

// extend sends one Extend.
func (h *hold) extend() <-chan answer[time.Time] {
	return call(h.s, "Extend", func(ctx context.Context) (time.Time, error) {
		return h.s.store.Extend(ctx, h.claim)
	})
}
