package dsync

import (
	"errors"
	"fmt"
	"time"
)

// live compares the clock and reports whether the hold goes on. It is what every
// look at the hold begins with: a process that was frozen past its deadline must
// not see a hold in the moment before its timers run.
func (h *hold) live() bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.look(time.Now())
}

// look is live for a clock that was read a moment ago. s.mu must be held.
func (h *hold) look(now time.Time) bool {
	if h.state != held {
		return false
	}
	if h.claim.Lease > 0 {
		h.lapseLocked()
	} else {
		h.p.expiredAt(now)
	}
	return h.state == held
}

// glanceLater has the session look at its holds soon, and now and then after that for
// as long as it has any. Timers stand still while the machine sleeps, and would tell
// whoever waits for the end of a hold as much later. s.mu must be held.
func (s *Session) glanceLater() {
	if s.glance == nil && !s.finished {
		s.glance = time.AfterFunc(s.opt.Grace/2, s.glanceAtHolds)
	}
}

// glanceAtHolds compares the clock for all holds.
func (s *Session) glanceAtHolds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.presence != nil {
		s.presence.expiredAt(now)
	}
	for _, h := range s.holds {
		if h.leased() {
			h.look(now)
		}
	}
	s.glance = nil
	if len(s.holds) > 0 {
		s.glanceLater()
	}
}

// leaseLeft returns what is left of a fixed lease by the local clock. s.mu must
// be held.
func (h *hold) leaseLeft() time.Duration {
	return holdTime(h.claim.Lease, h.s.opt.Margin, h.s.opt.Grace) - h.sent.elapsed()
}

// lapse is what the timer of a fixed lease calls.
func (h *hold) lapse() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if !h.lapseLocked() && (h.state == held || h.state == told) {
		h.timer.Reset(h.leaseLeft()) // extended in the meantime
	}
}

// lapseLocked ends a fixed lease if its time is over by the local clock. s.mu
// must be held.
func (h *hold) lapseLocked() bool {
	if h.leaseLeft() > 0 {
		return false
	}
	h.lose(fmt.Errorf("its lease of %v is over", h.claim.Lease))
	return true
}

// extended takes in that the Extend sent at sent moved the end to until. s.mu must be
// held.
func (h *hold) extended(sent stamp, until time.Time) {
	if h.state != held || until.Before(h.until) {
		return
	}
	h.sent, h.until = sent, until // lapse sets the timer anew
}

// leave gives the hold's place in the queue back, once. s.mu must be held.
func (h *hold) leave() {
	if h.left || h.q == nil {
		return
	}
	h.left = true
	if h.q.holder == h {
		h.q.holder = nil
	}
	if h.q.shared == h {
		h.q.shared = nil
	}
	h.q.leave(h.claim.Weight)
}

// loss returns why the hold was lost, nil if it was not.
func (h *hold) loss() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.cause
}

// why returns why the hold is over.
func (h *hold) why() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.cause == nil {
		return fmt.Errorf("%w: it was released", ErrLost)
	}
	return h.cause
}

// lose ends the hold by loss: Lost closes, and nothing more is sent for it. s.mu
// must be held.
func (h *hold) lose(cause error) {
	switch h.state {
	case asking:
		h.notify() // who asks gives it up
		return
	case held:
		h.tell(cause)
	case parked:
		h.leave()
	case told:
	default:
		return
	}
	h.state = gone
	if h.claim.Lease > 0 {
		// The store has it still. In its holder's grace nobody here may take it for a
		// claim that nobody knows, and release it.
		h.timer.Stop()
		h.timer = time.AfterFunc(h.s.opt.Grace, h.unknow)
		h.leave()
		return
	}
	delete(h.s.holds, h.claim.ID)
}

// unknow ends the record of a lease that is over.
func (h *hold) unknow() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	delete(h.s.holds, h.claim.ID)
}

// free notes that the holder is done. s.mu must be held.
func (h *hold) free() {
	if !h.done {
		h.done = true
		delete(h.s.overdue, h)
		if h.freed != nil {
			close(h.freed)
		}
	}
}

// whenFreed returns a channel that is closed when the holder said that it is done.
// s.mu must be held.
func (h *hold) whenFreed() <-chan struct{} {
	if h.done {
		return closedChan
	}
	if h.freed == nil {
		h.freed = make(chan struct{})
	}
	return h.freed
}

// tell ends the hold by notice: Lost closes, and the claim is kept until its
// holder says that it is done, or the grace is over. s.mu must be held.
func (h *hold) tell(cause error) {
	if h.state != held {
		return
	}
	s := h.s
	h.state = told
	h.cause = fmt.Errorf("%w: %w", ErrLost, cause)
	h.finish()
	if h.claim.Lease == 0 { // a fixed lease needs no release
		s.overdue[h] = time.Now()
	}
	if h.draining {
		s.info("dsync: hold ended", "key", h.claim.Key, "token", h.token, "cause", cause)
	} else {
		s.warn("dsync: hold lost", "key", h.claim.Key, "token", h.token, "cause", cause)
	}
	s.each(func(l *Hooks) {
		if l.Lost != nil {
			loss := Loss{
				Key: h.claim.Key, Kind: h.claim.Kind, Token: h.token, Cause: h.cause, Held: h.age(time.Now()),
				Drained: h.draining && !errors.Is(cause, ErrRevoked),
			}
			s.report(func() { l.Lost(loss) })
		}
	})
	if h.auto || h.draining {
		h.drainLocked()
	}
}

// reportRelease tells that the holder is done with what it held until now. s.mu
// must be held.
func (h *hold) reportRelease(now time.Time) {
	h.s.each(func(l *Hooks) {
		if l.Released != nil {
			release := Release{Key: h.claim.Key, Kind: h.claim.Kind, Token: h.token, Held: h.age(now)}
			h.s.report(func() { l.Released(release) })
		}
	})
}

// age returns for how long it has been held, as far as that is known.
func (h *hold) age(now time.Time) time.Duration {
	if h.began.IsZero() {
		return 0
	}
	return now.Sub(h.began)
}

// drain ends the hold with cause: it is released when its holder is done, or the
// grace is over. s.mu must be held.
func (h *hold) drain(cause error) {
	if h.state == held {
		h.draining = true
		h.tell(cause)
	}
}
