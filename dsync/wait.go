package dsync

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errOver: the claim can't be granted any more, since its session was lost or
// its lease lapsed before it was dated. Ask again with a new one.
var errOver = errors.New("dsync: the claim was lost while asking")

// errLate: the request came to the store after the time up to which it counted.
var errLate = errors.New("dsync: the request came too late to count")

// acquire waits for the turn in this process, and for w. On error it has neither.
func (s *Session) acquire(ctx context.Context, w want) (*hold, error) {
	err := s.enter(ctx, w.key)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, waitError(ctx, nil)
	case err != nil:
		return nil, err
	}
	h, err := s.wait(ctx, w)
	if err != nil {
		s.leave(w.key)
	}
	return h, err
}

// tryAcquire acquires w if it is free, here and everywhere; else the error is a
// *HeldError.
func (s *Session) tryAcquire(ctx context.Context, w want) (*hold, error) {
	if here, ok := s.tryEnter(w.key); !ok {
		return nil, s.heldHere(w.key, here)
	}
	h, err := s.try(ctx, w)
	if err != nil {
		s.leave(w.key)
	}
	return h, err
}

// wait acquires w: it stands in the store's line until it is granted. It goes on
// through failures of the store and losses of the session. An error is ctx's,
// with the store's last error added, ErrClosed, or an answer of the store that
// waiting can't mend.
func (s *Session) wait(ctx context.Context, w want) (*hold, error) {
	retry := s.backoff()
	var last error // of the store
	for {
		p, err := s.present(ctx)
		if err == nil {
			var h *hold
			if h, err = p.wait(ctx, w, &last); err == nil {
				return h, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, waitError(ctx, last)
		case errors.Is(err, errOver):
			continue
		case final(ctx, err):
			return nil, err
		}
		last = err
		if err := s.sleep(ctx, retry.next()); errors.Is(err, ErrClosed) {
			return nil, err
		}
	}
}

// final reports whether err ends a wait, and is not a failure of the store that
// repeating may mend.
func final(ctx context.Context, err error) bool {
	return ctx.Err() != nil || isAnswer(err) || errors.Is(err, ErrClosed) || errors.Is(err, errOver)
}

// waitError returns why ctx ended, with the store's last error if there is one:
// who waited for an unreachable store should see that it was.
func waitError(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil {
		err = fmt.Errorf("%w (the store's last error: %w)", err, last)
	}
	return err
}

// wait stands in line with one claim until it is granted or given up.
func (p *presence) wait(ctx context.Context, w want, last *error) (_ *hold, err error) {
	h, err := p.newHold(w)
	if err != nil {
		return nil, err
	}
	defer func() { h.settled(true, err) }()
	retry := p.s.backoff()
	var st State
	for {
		g, err := h.ask(ctx, true, &st)
		if g != nil {
			return h, h.accept(ctx, *g)
		}
		if err == nil {
			err = h.rest(ctx, st)
		}
		switch {
		case err == nil:
			retry.reset()
			continue
		case final(ctx, err):
			return nil, err
		}
		*last = err
		if err := h.sleep(ctx, retry.next()); err != nil {
			return nil, err
		}
	}
}

// try acquires w if it is free, else the error is a *HeldError. A try that only
// sessions that have lapsed stand in the way of buries them and asks once more:
// programs that only ever try must get over a crash too.
func (s *Session) try(ctx context.Context, w want) (*hold, error) {
	for {
		p, err := s.present(ctx)
		if err != nil {
			return nil, err
		}
		h, err := p.try(ctx, w)
		if !errors.Is(err, errOver) {
			return h, err
		}
	}
}

func (p *presence) try(ctx context.Context, w want) (_ *hold, err error) {
	s := p.s
	h, err := p.newHold(w)
	if err != nil {
		return nil, err
	}
	defer func() { h.settled(false, err) }()
	var st State
	for again := false; ; again = true {
		g, err := h.ask(ctx, false, &st)
		if err != nil {
			return nil, err
		}
		if g != nil {
			return h, h.accept(ctx, *g)
		}
		ids := s.sessions(st, p.id)
		if err := s.look(ctx, ids); err != nil {
			return nil, err
		}
		dead := len(s.dead(ids)) > 0
		if buried, err := s.bury(ctx, ids); err != nil {
			return nil, err
		} else if !dead && !buried || again {
			return nil, s.heldError(st)
		}
	}
}

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

// rest waits in line until there is reason to ask again: an event for the claim,
// the watch being ready, the end of a holder's fixed lease, the death of a
// session that stands ahead, or the time of the next poll.
func (h *hold) rest(ctx context.Context, st State) error {
	s, p := h.s, h.p
	p.join(h)
	ids := s.sessions(st, p.id)
	if len(s.dead(ids)) > 0 {
		return nil
	}
	if err := s.look(ctx, ids); err != nil {
		return err
	}
	poll := stampNow()
	s.mu.Lock()
	pause := p.pollTime(st.Place)
	for _, o := range st.Holders {
		if !o.Until.IsZero() {
			pause = min(pause, max(0, o.Until.Sub(p.reached()))+s.stagger(st.Place))
		}
	}
	s.mu.Unlock()
	for stagger := s.stagger(st.Place); ; {
		left := pause - poll.elapsed()
		if left <= 0 {
			return nil
		}
		d := min(left, s.soonest(ids, left)+stagger)
		woken, err := h.nap(ctx, d)
		if woken || err != nil {
			return err
		}
		if dead, err := s.bury(ctx, ids); dead || err != nil {
			return err
		}
	}
}

// pollTime returns when the waiter at place asks again though nothing was pushed
// to it. s.mu must be held.
func (p *presence) pollTime(place int) time.Duration {
	const pushed, polled = 5 * time.Second, 250 * time.Millisecond
	d := p.s.opt.Poll
	switch {
	case d > 0:
	case p.watch.ready:
		d = pushed
	default:
		d = polled
	}
	return jitter(d*time.Duration(min(max(place, 1), 4)), 0.2)
}

// nap sleeps for d and reports whether an event ended it.
func (h *hold) nap(ctx context.Context, d time.Duration) (woken bool, err error) {
	h.s.mu.Lock()
	again := h.again || h.event.Token != 0
	h.s.mu.Unlock()
	if again {
		return true, nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-h.wake:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-h.p.over:
		return false, errOver
	case <-h.s.closing:
		return false, ErrClosed
	}
}

// sleep waits before a retry.
func (h *hold) sleep(ctx context.Context, d time.Duration) error {
	_, err := h.nap(ctx, d)
	return err
}
