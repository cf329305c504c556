package dsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// unlock ends the hold for its holder: Lost closes, then the claim is handed on in
// this process, or released; of a shared hold only when its last holder is done. A
// hold that was lost before is not released. The release goes on in the background;
// its caller must call wait.
func (h *hold) unlock(o Outcome) release {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	h.look(now)
	if h.sharers > 1 {
		h.sharers--
		return release{err: h.cause}
	}
	h.sharers = 0
	h.free()
	if h.state == held {
		h.reportRelease(now)
	}
	switch {
	case h.state == held && !o.special() && h.pass(now):
		return release{}
	case h.state != held && h.state != told:
		h.leave()
		h.tellPassed()
		return release{err: h.cause}
	}
	if h.state == told && (o.Seal || h.draining) {
		o = Outcome{} // it did not count, or others were to have the key now
	}
	h.kept = o.Keep > 0
	r := release{h: h, err: h.cause}
	h.state = spent
	if h.timer != nil {
		h.timer.Stop()
	}
	if h.q.shared == h {
		h.q.shared = nil
	}
	h.finish()
	r.done = h.retireLocked(o)
	return r
}

// A release is what came of an unlock.
type release struct {
	h    *hold
	done <-chan error // what the store answers; nil: it was not asked
	err  error        // the hold was lost before
}

// wait waits until ctx ends for the store's answer, and gives the hold's place
// back. The error is ErrLost if the hold had ended before, ctx's, or the store's.
func (r release) wait(ctx context.Context) (err error) {
	if r.done == nil {
		return r.err
	}
	select {
	case err = <-r.done:
	case <-ctx.Done():
		err = fmt.Errorf("the release goes on in the background: %w", ctx.Err())
	}
	s := r.h.s
	s.mu.Lock()
	r.h.leave()
	s.mu.Unlock()
	return cmp.Or(r.err, err)
}

// finish is wait for at most a third of the TTL, which logs the error: what Unlock
// does.
func (r release) finish(s *Session, key string) {
	if r.done == nil && r.err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.TTL/3)
	defer cancel()
	if err := r.wait(ctx); err != nil {
		s.warn("dsync: Unlock", "key", key, "err", err)
	}
}

// special reports whether o is anything but a plain release.
func (o Outcome) special() bool { return o.Keep > 0 || o.Seal }

// drainLocked is called when a hold has ended before its release, if it is to be
// released without its holder's call, or gives its place back by itself. When its
// holder says that it is done, or the grace is over, it does so. s.mu must be held.
func (h *hold) drainLocked() {
	s := h.s
	if s.finished {
		h.tellPassed()
		return
	}
	freed := h.whenFreed()
	s.workers.wg.Go(func() {
		t := time.NewTimer(s.opt.Grace)
		defer t.Stop()
		select {
		case <-freed:
		case <-t.C:
		case <-s.base.Done(): // Close did it
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.state == told && h.draining {
			h.state = spent
			released := h.retireLocked(Outcome{})
			s.mu.Unlock()
			<-released
			s.mu.Lock()
		}
		if h.auto || h.claim.Lease > 0 {
			h.leave()
		}
		if h.state == gone {
			h.tellPassed() // else the release does
		}
	})
}

// abandon gives up a claim that was not granted, or not in time, and releases it if the
// store may have it: what it answered last says so, or an attempt was not answered.
func (h *hold) abandon() {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.state != asking {
		return
	}
	h.state = spent
	h.part()
	if h.joined || !h.void.IsZero() {
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
		h.tellPassed()
		return done
	}
	awaited := !s.gaveUp // an event can come that late, for a claim that nobody knows
	if awaited {
		s.retiring.Add(1)
	}
	s.workers.do(func() {
		if awaited {
			defer s.retiring.Done()
		}
		h.retire(o, done)
	})
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
			if h.lone {
				h.void = time.Time{} // answered after all
			}
			s.mu.Unlock()
		}
	}
	if o.Keep > 0 {
		o.Keep = max(0, o.Keep-began.elapsed()) // it counts from the call
	}
	err := h.send(o, done)
	s.mu.Lock()
	if h.leaves {
		h.leave()
	}
	h.tellPassed()
	s.mu.Unlock()
	if err == nil && h.awaitVoid() {
		// What was kept ends as it would have, since the store lets an earlier end stand.
		// What came late when it has ended is released at once.
		if began.elapsed() > o.Keep+s.opt.Margin {
			o.Keep = 0
		}
		h.send(o, nil)
	}
	s.forget(h, o)
}

// tellPassed closes the channel that tells that the key was passed on, if there is one.
// s.mu must be held.
func (h *hold) tellPassed() {
	if h.passed == nil {
		return
	}
	select {
	case <-h.passed:
	default:
		close(h.passed)
	}
}

// send sends releases until one is answered, the session is lost, or, when
// the session is closing, one has failed. What came of it goes to done, if that is not
// nil; that the store refuses goes there at once, and the release is sent again for as
// long as the session lives: a right that was taken by mistake may be granted again.
func (h *hold) send(o Outcome, done chan<- error) (err error) {
	s, p := h.s, h.p
	say := func(err error) {
		if done != nil {
			done <- err
			done = nil
		}
	}
	absent, unknown, refused := false, false, false
	defer func() {
		if refused {
			h.setRefused(nil)
		}
		say(err)
	}()
	retry := s.backoff()
	if err := h.moot(); err != nil {
		return err
	}
	c := h.claim
	if h.granted != nil {
		c.Token = h.granted.token
	}
	for {
		a := command(s, "Release", func(ctx context.Context) (bool, error) { return s.store.Release(ctx, c, o) })
		switch {
		case a.err == nil && (a.v || h.token == 0):
			return nil
		case a.err == nil && absent && unknown:
			return nil // by one of the attempts that were not answered
		case a.err == nil && absent:
			return fmt.Errorf("%w: the store did not know it any more", ErrLost)
		case a.err == nil:
			// Of a claim that was held, believe it when it is said twice, the second
			// time after an acknowledged heartbeat, which is sent now: a deposed primary
			// may say it.
			absent = true
			if err := h.pause(p.beatSoon(), p.s.opt.TTL); err != nil {
				return err
			}
		case isAnswer(a.err):
			s.storeError("Release", a.err)
			refused = true
			h.setRefused(a.err)
			say(a.err)
			if err := h.pause(nil, retry.next()); err != nil {
				return errors.Join(err, a.err)
			}
		default:
			unknown = true
			if err := h.pause(nil, retry.next()); err != nil {
				return errors.Join(err, a.err)
			}
		}
	}
}

// setRefused notes why the store refuses to release the claim; nil: it does not.
func (h *hold) setRefused(err error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.refused = err
}

// moot returns why there is no use in releasing the claim, or nil: a session that
// was lost is left to lapse with all it held, and a fixed lease, which needs no
// session once it was granted, may be over.
func (h *hold) moot() error {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.claim.Lease == 0 || h.granted == nil:
		if h.p.expired() {
			return fmt.Errorf("%w: %w", ErrLost, h.p.cause)
		}
	case h.sent.t.IsZero(): // nobody here knows when it began, and so when it is over
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

// forget ends the record of a claim that was released with o.
func (s *Session) forget(h *hold, o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h.claim.ID)
	h.part()
	if o.Keep > 0 {
		h.p.noteKept(h.claim.ID, o.Keep)
	}
	token := h.token
	if h.granted != nil {
		token = max(token, h.granted.token)
	}
	h.p.watch.ended(h.claim.ID, token)
	if h.kept && h.revoked {
		h.p.orphan(h.claim)
	}
}
