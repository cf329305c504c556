package dsync

import (
	"context"
	"fmt"
	"time"
)

// A hold is one claim from the first request for it until the store has
// forgotten it: the shared mechanism of everything that can be locked.
//
//	asking ──► held ──► spent     released by its holder
//	  │          ├────► gone      lost: nothing may be sent for it any more
//	  │          └────► told ──► spent   asked to stop; in its grace
//	  └──► spent                  given up before it was granted
type hold struct {
	s      *Session
	p      *presence
	claim  Claim
	began  time.Time     // when the caller asked
	wake   chan struct{} // room for one: an event has come
	freed  chan struct{} // closed when the holder said that it is done
	passed chan struct{} // closed when the hold has passed the turn on by itself

	// Set by the grant, before anyone else sees them.
	ctx context.Context // ends with the hold; its Done is Lost
	end context.CancelCauseFunc

	// Guarded by s.mu:
	state    holdState
	asks     int                  // attempts sent
	waits    bool                 // counted as a waiter by the watch
	left     bool                 // the turn was passed on by the hold itself
	auto     bool                 // it passes the turn on by itself: see Hold
	draining bool                 // it is to be released when the grace is over
	done     bool                 // freed is closed
	again    bool                 // the watch became ready after the last attempt was sent
	event    Event                // the grant event that came
	void     time.Time            // no unanswered attempt joins once the store's clock is past it; zero: all were answered
	inflight <-chan answer[State] // an attempt that its caller did not wait for
	token    int64
	term     int64
	since    time.Time // the store's clock at the grant, if it was told
	until    time.Time // of a fixed lease
	ends     stamp     // of a fixed lease: before the send of what its deadline counts from
	timer    *time.Timer
	cause    error // why it was lost
}

type holdState int

const (
	asking holdState = iota
	held
	told
	gone
	spent
)

// A want is what a caller wants to hold.
type want struct {
	key           string
	kind          Kind
	weight, limit int64
	lease         time.Duration
	auto          bool // the hold passes its turn on by itself: see Hold
	began         time.Time
}

// exclusive is all of key, as kind.
func exclusive(key string, kind Kind) want {
	return want{key: key, kind: kind, weight: 1, limit: 1, began: time.Now()}
}

// newHold returns a hold with a claim that was never used. Its caller must call
// settled in the end.
func (p *presence) newHold(w want) (*hold, error) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return nil, ErrClosed
	default:
	}
	s.asking.Add(1)
	h := &hold{
		s: s, p: p, began: w.began, auto: w.auto,
		claim: Claim{
			Key: w.key, ID: p.claimID(), Session: p.id,
			Kind: w.kind, Weight: w.weight, Limit: w.limit, Lease: w.lease,
		},
		wake:   make(chan struct{}, 1),
		freed:  make(chan struct{}),
		passed: make(chan struct{}),
	}
	s.holds[h.claim.ID] = h
	return h, nil
}

// settled ends the asking: the hold was granted, or, with an error, is given up.
// waited says whether the claim may stand in line.
func (h *hold) settled(waited bool, err error) {
	h.p.part(h)
	if err != nil {
		h.abandon(waited && !isAnswer(err))
	}
	h.s.asking.Done()
}

// leased reports whether the hold is one that ends by itself and not with its
// session. s.mu must be held.
func (h *hold) leased() bool { return h.claim.Lease > 0 && h.state != asking }

// grant begins the hold. The lease of its presence, and of a fixed lease its
// own, must not be over: a grant that is learnt too late is none.
func (h *hold) grant(g granted) error {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.until, h.ends = g.until, g.sent
	switch {
	case h.state != asking:
		return ErrClosed
	case h.p.expired(), h.claim.Lease > 0 && h.leaseLeft() <= 0:
		return errOver
	}
	h.state, h.token, h.term, h.since = held, g.token, g.term, g.since
	h.ctx, h.end = context.WithCancelCause(context.Background())
	if h.claim.Lease > 0 {
		h.timer = time.AfterFunc(h.leaseLeft(), h.lapse)
	}
	if q := s.queues[h.claim.Key]; q != nil {
		q.holder = h
	}
	grant := Grant{Key: h.claim.Key, Kind: h.claim.Kind, Token: g.token, Wait: time.Since(h.began)}
	s.each(func(l *Hooks) {
		if l.Granted != nil {
			s.report(func() { l.Granted(grant) })
		}
	})
	return nil
}

// leaseLeft returns what is left of a fixed lease by the local clock. s.mu must
// be held.
func (h *hold) leaseLeft() time.Duration {
	return holdTime(h.claim.Lease, h.s.opt.Margin, h.s.opt.Grace) - h.ends.elapsed()
}

// live compares the clock and reports whether the hold goes on. It is what every
// look at the hold begins with: a process that was frozen past its deadline must
// not see a hold in the moment before its timers run.
func (h *hold) live() bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.state != held {
		return false
	}
	if h.claim.Lease > 0 {
		h.lapseLocked()
	} else {
		h.p.expired()
	}
	return h.state == held
}

// lapse is what the timer of a fixed lease calls.
func (h *hold) lapse() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if !h.lapseLocked() && h.state == held {
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

// extended takes in that the Extend sent at sent moved the end to until.
func (h *hold) extended(sent stamp, until time.Time) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.state != held || until.Before(h.until) {
		return
	}
	h.ends, h.until = sent, until
	h.timer.Reset(h.leaseLeft())
}

// leave passes on the turn of a hold that does so by itself, once. s.mu must be
// held.
func (h *hold) leave() {
	if !h.left {
		h.left = true
		close(h.passed)
		h.s.leaveLocked(h.claim.Key)
	}
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
	h.tell(cause)
	if h.state != told {
		return
	}
	h.state = gone
	delete(h.s.holds, h.claim.ID)
	if h.claim.Lease > 0 {
		h.timer.Stop()
		h.leave()
	}
}

// free notes that the holder is done. s.mu must be held.
func (h *hold) free() {
	if !h.done {
		h.done = true
		close(h.freed)
	}
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
	h.end(h.cause)
	if h.draining {
		s.info("dsync: hold ended", "key", h.claim.Key, "token", h.token, "cause", cause)
	} else {
		s.warn("dsync: hold lost", "key", h.claim.Key, "token", h.token, "cause", cause)
	}
	loss := Loss{Key: h.claim.Key, Kind: h.claim.Kind, Token: h.token, Cause: h.cause}
	s.each(func(l *Hooks) {
		if l.Lost != nil {
			s.report(func() { l.Lost(loss) })
		}
	})
	if h.auto {
		h.drainLocked()
	}
}

// lost returns the channel that is closed when the hold ends.
func (h *hold) lost() <-chan struct{} {
	h.live()
	return h.ctx.Done()
}

// fencing returns the token, or 0 if the hold is over.
func (h *hold) fencing() int64 {
	if !h.live() {
		return 0
	}
	return h.token
}

// notify takes in an event. s.mu must be held.
func (h *hold) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}
