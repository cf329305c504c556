package dsync

import (
	"context"
	"math/rand/v2"
	"time"
)

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

// stagger returns how much later than the first in line the one at place looks
// whether those ahead have died: the further back, the later and the more
// jittered, so that a crash does not make a thousand waiters call at once.
func (s *Session) stagger(place int) time.Duration {
	back := time.Duration(min(max(place-1, 0), 50))
	step := s.opt.TTL / 100
	return back*step + time.Duration(rand.Int64N(int64(back*step)+1))
}
