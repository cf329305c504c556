package dsync

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// unlock ends the hold for its holder: Lost closes, then the claim is released.
// It waits for the answer until ctx ends; the release goes on in the background.
// A hold that was lost before is not released: the error is ErrLost.
func (h *hold) unlock(ctx context.Context, o Outcome) error {
	h.live() // compares the clock
	s := h.s
	s.mu.Lock()
	lost := h.cause
	h.free()
	if h.state != held && h.state != told {
		s.mu.Unlock()
		return lost
	}
	h.state = spent
	if h.timer != nil {
		h.timer.Stop()
	}
	h.end(context.Canceled)
	done := h.retireLocked(o)
	s.mu.Unlock()

	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("the release goes on in the background: %w", ctx.Err())
	}
	if lost != nil {
		return lost
	}
	return err
}

// drainLocked is called when a hold that passes the turn on by itself has ended
// before its release. When its holder says that it is done, or the grace is over,
// it releases the claim, if it is to, and passes the turn on. s.mu must be held.
func (h *hold) drainLocked() {
	s := h.s
	if s.finished {
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		t := time.NewTimer(s.opt.Grace)
		defer t.Stop()
		select {
		case <-h.freed:
		case <-t.C:
		case <-s.base.Done(): // Close did it
		}
		s.mu.Lock()
		var released <-chan error
		if h.state == told && h.draining {
			h.state = spent
			released = h.retireLocked(Outcome{})
		}
		s.mu.Unlock()
		if released != nil {
			<-released
		}
		s.mu.Lock()
		h.leave()
		s.mu.Unlock()
	}()
}

// abandon gives up a claim that was not granted, or not in time. joined says
// whether it may stand in line.
func (h *hold) abandon(joined bool) {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.state != asking {
		return
	}
	h.state = spent
	if joined && h.asks > 0 || !h.void.IsZero() {
		h.retireLocked(Outcome{})
	} else {
		delete(s.holds, h.claim.ID)
	}
}

// retireLocked takes a spent claim out of the store on a goroutine of its own,
// and returns a channel with room for the outcome. s.mu must be held.
func (h *hold) retireLocked(o Outcome) <-chan error {
	s := h.s
	done := make(chan error, 1)
	if s.finished {
		done <- ErrClosed
		return done
	}
	s.retiring.Add(1)
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer s.retiring.Done()
		h.retire(o, done)
	}()
	return done
}

// retire releases the claim until the store has answered, and once more when the
// last of its attempts that were not answered has become void: one that arrives
// after the release would join, and hold under a living session for ever.
func (h *hold) retire(o Outcome, done chan<- error) {
	s := h.s
	began := stampNow()
	s.mu.Lock()
	inflight := h.inflight
	s.mu.Unlock()
	if inflight != nil {
		if a := <-inflight; a.err == nil {
			s.mu.Lock()
			h.p.saw(a.v.Now)
			s.mu.Unlock()
		}
	}
	err := h.release(o)
	done <- err
	if err == nil && h.awaitVoid() {
		o.Keep = max(0, o.Keep-began.elapsed())
		h.release(o)
	}
	s.forget(h)
}

// release sends releases until one is answered, the session is lost, or, when
// the session is closing, one has failed.
func (h *hold) release(o Outcome) error {
	s, p := h.s, h.p
	retry := s.backoff()
	absent, unknown := false, false
	if err := h.moot(); err != nil {
		return err
	}
	for {
		acked := p.acked()
		a := <-call(s, "Release", func(ctx context.Context) (bool, error) { return s.store.Release(ctx, h.claim, o) })
		switch {
		case a.err == nil && (a.v || h.token == 0):
			return nil
		case a.err == nil && absent && unknown:
			return nil // by one of the attempts that were not answered
		case a.err == nil && absent:
			return fmt.Errorf("%w: the store did not know it any more", ErrLost)
		case a.err == nil:
			// Of a claim that was held, believe it when it is said twice, the second
			// time after an acknowledged heartbeat: a deposed primary may say it.
			absent = true
			if err := h.pause(acked, p.s.opt.TTL); err != nil {
				return err
			}
		case isAnswer(a.err):
			return a.err
		default:
			unknown = true
			if err := h.pause(nil, retry.next()); err != nil {
				return errors.Join(err, a.err)
			}
		}
	}
}

// moot returns why there is no use in releasing the claim, or nil: a session that
// was lost is left to lapse with all it held, and a fixed lease, which needs no
// session once it was granted, may be over.
func (h *hold) moot() error {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.claim.Lease == 0 || h.token == 0:
		if h.p.expired() {
			return fmt.Errorf("%w: %w", ErrLost, h.p.cause)
		}
	case h.leaseLeft() <= 0:
		return fmt.Errorf("%w: its lease of %v is over", ErrLost, h.claim.Lease)
	}
	return nil
}

// pause waits for ready or d, or until there is no use in going on.
func (h *hold) pause(ready <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	over := h.p.over
	if h.claim.Lease > 0 {
		over = nil // moot looks in time
	}
	select {
	case <-ready:
	case <-t.C:
	case <-over:
	case <-h.s.closing:
		return ErrClosed
	}
	return h.moot()
}

// awaitVoid waits until no unanswered attempt of the claim can join any more, and
// reports whether there was one, and a release is still of use.
func (h *hold) awaitVoid() bool {
	s, p := h.s, h.p
	for {
		s.mu.Lock()
		void := h.void
		left := void.Sub(p.reached())
		s.mu.Unlock()
		if void.IsZero() {
			return false
		}
		if left < 0 {
			return true
		}
		if h.pause(nil, left+time.Millisecond) != nil {
			return false
		}
	}
}

// forget ends the record of a claim that the store has forgotten.
func (s *Session) forget(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h.claim.ID)
	h.p.watch.ended(h.claim.ID, max(h.token, h.event.Token))
}
