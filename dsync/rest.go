package dsync

import (
	"context"
	"math/rand/v2"
	"time"
)

// rest waits in line until there is reason to ask again: an event for the claim,
// the watch being ready, the end of a holder's fixed lease, the death of a
// session that stands ahead, or the time of the next poll.
func (h *hold) rest(ctx context.Context, st *State) error {
	s, p := h.s, h.p
	s.mu.Lock()
	p.join(h)
	s.mu.Unlock()
	if h.pressed != nil {
		if err := p.revokeHolders(ctx, st, h.pressed); err != nil {
			return err
		}
	}
	if h.newlyDead() {
		return nil
	}
	if err := s.look(ctx, h.ahead); err != nil {
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
		d := min(left, s.soonest(h.ahead, left)+stagger)
		again, err := h.nap(ctx, d)
		if again || err != nil {
			return err
		}
		if err := s.bury(ctx, h.ahead); err != nil || h.newlyDead() {
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

// nap sleeps for at most d and reports whether there is reason to ask again. All that
// ends it but ctx comes through one channel: each more that a goroutine waits for
// takes a hundred bytes, of every waiter.
func (h *hold) nap(ctx context.Context, d time.Duration) (again bool, err error) {
	if again, err := h.news(); again || err != nil {
		return again, err
	}
	t := time.AfterFunc(d, h.rouse)
	defer t.Stop()
	select {
	case <-h.wake:
		return h.news()
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// news reports whether there is reason to ask again that was not reported yet. An
// error is why not to.
func (h *hold) news() (again bool, err error) {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ends():
		return false, ErrClosed
	case h.p.cause != nil:
		return false, errOver
	}
	again, h.again = h.again, false
	return again, nil
}

// sleep waits before a retry.
func (h *hold) sleep(ctx context.Context, d time.Duration) error {
	_, err := h.nap(ctx, d)
	return err
}

// stagger returns how much later than the first in line the one at place looks
// whether those ahead have died: the further back, the later and the more
// jittered, so that a crash does not make a thousand waiters call at once.
func (s *Session) stagger(place int) time.Duration {
	back := time.Duration(min(max(place-1, 0), 50))
	step := s.opt.TTL / 100
	return back*step + time.Duration(rand.Int64N(int64(back*step)+1))
}
