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
	leave, err := h.enterLane(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	if g, err := h.mayAsk(wait); g != nil || err != nil {
		s.mu.Unlock()
		leave()
		return nil, g, err
	}
	dead := s.deadLocked(h.ahead)
	h.named = dead
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
	ch := send(s, "Acquire", leave, func(ctx context.Context) (*State, error) {
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

// mayAsk returns the grant that was learnt meanwhile, or why no attempt is to be
// made. s.mu must be held.
func (h *hold) mayAsk(wait bool) (*granted, error) {
	switch {
	case h.granted != nil:
		return h.granted, nil
	case h.state != asking:
		return nil, ErrClosed
	case h.p.expired():
		return nil, errOver
	case wait && !h.claim.First && h.q.forced():
		return nil, errAside
	}
	return nil, nil
}

// enterLane waits until the attempt may be sent, one that is repeated in a lane for
// polls first, and returns what leaves the lanes. It ends early when a grant is
// learnt, which mayAsk then finds.
func (h *hold) enterLane(ctx context.Context) (leave func(), err error) {
	s := h.s
	if h.asks == 0 {
		return h.lane(ctx, s.lanes)
	}
	leavePolls, err := h.lane(ctx, s.pollLanes)
	if err != nil {
		return nil, err
	}
	leaveAll, err := h.lane(ctx, s.lanes)
	if err != nil {
		leavePolls()
		return nil, err
	}
	return func() { leaveAll(); leavePolls() }, nil
}

func (h *hold) lane(ctx context.Context, lanes chan struct{}) (leave func(), err error) {
	s := h.s
	for {
		select {
		case lanes <- struct{}{}:
			return func() { <-lanes }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-h.p.over:
			return nil, errOver
		case <-s.closing:
			return nil, ErrClosed
		case <-h.wake:
			s.mu.Lock()
			g := h.granted
			s.mu.Unlock()
			if g != nil {
				return func() {}, nil
			}
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
	h.joined = g != nil || a.Place > 0
	if g == nil {
		h.ahead = a.sessions(p.id)
	}
	switch {
	case g != nil:
	case a.Sealed:
		err = &sealedError{a.Value}
	case a.Place == 0 && (wait || a.fits(&h.claim)):
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
			o, err := await(ctx, h.s, h.extend())
			if err == nil {
				// The claim may have lapsed since and been granted again: what counts is
				// what the store has now.
				dated := *g
				dated.token, dated.since, dated.until, dated.sent = o.Token, o.Since, o.Until, sent
				g = &dated
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
func (h *hold) extend() <-chan answer[Holder] {
	return call(h.s, "Extend", func(ctx context.Context) (Holder, error) {
		return h.s.store.Extend(ctx, h.claim)
	})
}
