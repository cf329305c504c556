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
	sent  stamp     // before the send of the attempt that was itself answered with the grant
	first bool      // and that was the only attempt: a fixed lease can be dated by it
}

// ask makes one attempt to acquire, naming those dead that stand in the way by
// the last state, and puts the new state into st. It returns the grant if the
// claim is held.
func (h *hold) ask(ctx context.Context, wait bool, st *State) (*granted, error) {
	s, p := h.s, h.p
	dead := s.dead(s.sessions(*st, p.id))
	s.mu.Lock()
	switch {
	case h.event.Token != 0:
		s.mu.Unlock()
		return &granted{token: h.event.Token, term: h.event.Term}, nil
	case h.state != asking:
		s.mu.Unlock()
		return nil, ErrClosed
	case p.expired():
		s.mu.Unlock()
		return nil, errOver
	}
	h.asks++
	h.again = false
	first := h.asks == 1
	notAfter := p.reached().Add(s.attemptTime())
	s.mu.Unlock()

	sent := stampNow()
	ch := call(s, "Acquire", func(ctx context.Context) (State, error) {
		return s.store.Acquire(ctx, h.claim, wait, dead, notAfter)
	})
	for {
		select {
		case a := <-ch:
			if a.err != nil {
				if !isAnswer(a.err) {
					h.unanswered(notAfter, nil)
				}
				return nil, a.err
			}
			return h.answered(a.v, wait, st, granted{sent: sent, first: first})
		case <-h.wake:
			s.mu.Lock()
			e := h.event
			s.mu.Unlock()
			if e.Token != 0 {
				h.unanswered(notAfter, ch)
				return &granted{token: e.Token, term: e.Term}, nil
			}
		case <-ctx.Done():
			h.unanswered(notAfter, ch)
			return nil, ctx.Err()
		case <-p.over:
			h.unanswered(notAfter, ch)
			return nil, errOver
		case <-s.closing:
			h.unanswered(notAfter, ch)
			return nil, ErrClosed
		}
	}
}

// unanswered notes that an attempt which is void after notAfter was not answered,
// or not yet.
func (h *hold) unanswered(notAfter time.Time, inflight <-chan answer[State]) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if notAfter.After(h.void) {
		h.void = notAfter
	}
	if inflight != nil {
		h.inflight = inflight
	}
}

// answered takes in the state that an attempt was answered with.
func (h *hold) answered(a State, wait bool, st *State, g granted) (*granted, error) {
	s, p := h.s, h.p
	*st = a
	s.mu.Lock()
	defer s.mu.Unlock()
	p.saw(a.Now)
	for _, o := range a.Holders {
		if o.Session == p.id && o.Until.IsZero() && s.holds[o.Claim] == nil {
			p.orphan(Claim{Key: a.Key, ID: o.Claim, Session: p.id})
		}
	}
	if o, ok := a.Holder(h.claim.ID); ok {
		g.token, g.term, g.since, g.until = o.Token, a.Term, o.Since, o.Until
		return &g, nil
	}
	if wait && a.Place == 0 {
		return nil, errLate
	}
	return nil, nil
}

// accept begins the hold. A fixed lease must be dated first: unless the grant
// answered the only attempt, nobody here knows when it was made, so an Extend has
// to succeed, and counts.
func (h *hold) accept(ctx context.Context, g granted) error {
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
