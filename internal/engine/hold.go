package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Hold is one caller's use of a granted claim. It begins with the grant or a hand-off and
// lasts until the caller says that it is done:
//
//	live ──► windingDown ──► done    lost, or asked to stop: Lost is closed, the grace runs
//	  └────────────────────► done
//
// [Hold.become] makes these transitions. The claim is released when its hold is done, unless
// this process reuses it for another hold. After a loss nothing is sent for the claim. The
// session's mu guards all fields except those that are set when the hold is made.
type Hold struct {
	c     *claim // set when the hold is made
	token int64  // likewise

	state     holdState
	began     time.Time       // when the hold began; zero if no hook needs it
	ctx       context.Context // ends with the hold; its Done is Lost. Made when first needed
	end       context.CancelCauseFunc
	cause     error         // why the hold winds down
	voluntary bool          // it winds down by request, so its claim is released when the grace is over
	sharers   int           // number of readers that share the hold
	done      chan struct{} // closed when the holder is done; made when first needed

	released  atomic.Bool  // Release was called
	published atomic.Int64 // number of values that were to be published
}

type holdState int

const (
	live holdState = iota
	windingDown
	done
)

// newHold makes the claim's next hold and calls the hooks. asked is when the caller made its
// request, and ctx is the context of that. s.mu must be held.
func (c *claim) newHold(ctx context.Context, asked time.Time, token int64, local bool) *Hold {
	h := &Hold{c: c, token: token}
	c.hold, c.token, c.queue.holder = h, token, h
	c.s.each(func(l *Hooks) {
		if h.began.IsZero() && l.ofHolds() { // reading the clock is a large part of a Lock on a lingering key
			h.began = time.Now()
		}
		if l.Granted != nil {
			g := GrantedInfo{Context: ctx, Key: c.request.Key, Kind: c.request.Kind, Token: token, Wait: h.began.Sub(asked), Local: local}
			c.s.report(func() { l.Granted(g) })
		}
	})
	return h
}

// become moves the hold to another state and ends its context. All transitions go through it.
// s.mu must be held.
func (h *Hold) become(to holdState) {
	if to <= h.state {
		panic(fmt.Sprintf("dsync: hold in state %d cannot move to state %d", h.state, to))
	}
	h.state = to
	h.endContext()
	if to == done {
		delete(h.c.s.overdue, h)
		if h.done != nil {
			close(h.done)
		}
	}
}

// windDown ends the hold before its holder is done: Lost closes, and the holder has the grace
// to stop. If voluntary is true, the claim is released when the holder is done or the grace is
// over. If the hold has ended already, windDown does nothing. s.mu must be held.
func (h *Hold) windDown(cause error, voluntary bool) {
	if h.state != live {
		return
	}
	c, s := h.c, h.c.s
	h.cause, h.voluntary = fmt.Errorf("%w: %w", ErrLost, cause), voluntary
	h.become(windingDown)
	if !c.fixed() { // a fixed lease needs no release
		s.overdue[h] = time.Now()
	}
	if voluntary {
		s.info("dsync: hold ended", "key", c.request.Key, "token", h.token, "cause", cause)
	} else {
		s.Warn("dsync: hold lost", "key", c.request.Key, "token", h.token, "cause", cause)
	}
	s.each(func(l *Hooks) {
		if l.Lost != nil {
			info := LostInfo{
				Key: c.request.Key, Kind: c.request.Kind, Token: h.token, Cause: h.cause, Held: h.age(time.Now()),
				Voluntary: voluntary && !errors.Is(cause, ErrRevoked) && !errors.Is(cause, driver.ErrNotHeld),
			}
			s.report(func() { l.Lost(info) })
		}
	})
	if !c.auto && !voluntary {
		return // Unlock does the rest
	}
	if s.finished {
		c.signalReleased()
		return
	}
	s.workers.wg.Go(h.afterGrace)
}

// afterGrace waits until the holder is done or the grace is over. Then it releases the claim
// and frees its slot, where that does not need the holder.
func (h *Hold) afterGrace() {
	c, s := h.c, h.c.s
	s.mu.Lock()
	holderDone := h.whenDone()
	s.mu.Unlock()
	t := time.NewTimer(s.opt.Grace)
	defer t.Stop()
	select {
	case <-holderDone:
	case <-t.C:
	case <-s.base.Done(): // Close has done the waiting
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.state == granted && h.voluntary {
		answered := c.release(driver.Leave{})
		s.mu.Unlock()
		<-answered
		s.mu.Lock()
	}
	if c.auto || c.fixed() {
		c.freeSlot()
	}
	if c.state == gone {
		c.signalReleased() // in other states runRelease calls it
	}
}

// whenDone returns a channel that is closed when the holder is done. s.mu must be held.
func (h *Hold) whenDone() <-chan struct{} {
	if h.done == nil {
		h.done = make(chan struct{})
		if h.state == done {
			close(h.done)
		}
	}
	return h.done
}

// Live compares the clock and reports whether the hold is live. Every method that reports on a
// hold calls it first. Without that, a process that was frozen past its deadline could still
// see a hold in the moment before its timers fire.
func (h *Hold) Live() bool {
	h.c.s.mu.Lock()
	defer h.c.s.mu.Unlock()
	return h.check(time.Now())
}

// check is Live for a caller that has just read the clock. s.mu must be held.
func (h *Hold) check(now time.Time) bool {
	if h.state != live {
		return false
	}
	if h.c.fixed() {
		h.c.checkExpiry()
	} else {
		h.c.lease.expiredAt(now)
	}
	return h.state == live
}

// Lost returns a channel that is closed when the hold ends.
func (h *Hold) Lost() <-chan struct{} {
	h.c.s.mu.Lock()
	defer h.c.s.mu.Unlock()
	h.check(time.Now())
	return h.context().Done()
}

// Ended returns a context that ends with the hold.
func (h *Hold) Ended() context.Context {
	h.c.s.mu.Lock()
	defer h.c.s.mu.Unlock()
	return h.context()
}

// context returns h.ctx and makes it if there is none. s.mu must be held.
func (h *Hold) context() context.Context {
	if h.ctx == nil {
		h.ctx, h.end = context.WithCancelCause(context.Background())
		if h.state != live {
			h.endContext()
		} else {
			h.c.s.checkHoldsLater()
		}
	}
	return h.ctx
}

// endContext ends h.ctx, if there is one. s.mu must be held.
func (h *Hold) endContext() {
	if h.end == nil {
		return
	}
	cause := h.cause
	if cause == nil {
		cause = context.Canceled
	}
	h.end(cause)
}

// checkHoldsLater makes the session compare the clock for its holds every half grace, as long
// as it has claims. Timers stand still while the machine sleeps. Without this, a goroutine that
// waits for Lost would learn of the loss later, by the time the machine slept. s.mu must be
// held.
func (s *Session) checkHoldsLater() {
	if s.checkTimer == nil && !s.finished {
		s.checkTimer = time.AfterFunc(s.opt.Grace/2, s.checkHolds)
	}
}

func (s *Session) checkHolds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.lease != nil {
		s.lease.expiredAt(now)
	}
	for _, c := range s.claims {
		if c.fixed() && c.live() {
			c.hold.check(now)
		}
	}
	s.checkTimer = nil
	if len(s.claims) > 0 {
		s.checkHoldsLater()
	}
}

// Token returns the fencing token, or 0 if the hold is over.
func (h *Hold) Token() int64 {
	if !h.Live() {
		return 0
	}
	return h.token
}

// Cause returns why the hold was lost, or nil if it was not.
func (h *Hold) Cause() error {
	h.c.s.mu.Lock()
	defer h.c.s.mu.Unlock()
	return h.cause
}

// Err returns why the hold is over.
func (h *Hold) Err() error {
	if cause := h.Cause(); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: it was released", ErrLost)
}

// Left returns how much longer the hold lasts by the local clock if no further heartbeat is
// acknowledged. It returns 0 if the hold is over. When nothing is left, the session's grace
// begins. A program that relies on another process to stop the work in time can send it this
// value after every heartbeat ([Hooks].Heartbeat). Read the clock before calling Left;
// otherwise the computed deadline can be late.
func (h *Hold) Left() time.Duration {
	h.c.s.mu.Lock()
	defer h.c.s.mu.Unlock()
	now := time.Now()
	if !h.check(now) {
		return 0
	}
	return h.c.lease.leftAt(now)
}

// Key returns the key.
func (h *Hold) Key() string { return h.c.request.Key }

// Session returns the id of the session that holds the key.
func (h *Hold) Session() string { return h.c.request.Session }

// Term returns, for a key of KindElection, the number of its grants up to and including this
// one. It is still valid after the hold has ended.
func (h *Hold) Term() int64 { return h.c.grant.term }

// Until returns the end of a fixed lease by the store's clock.
func (h *Hold) Until() time.Time {
	h.c.s.mu.Lock()
	defer h.c.s.mu.Unlock()
	return h.c.grant.until
}

// WindDown ends the hold with cause. Lost closes, and the key is released when Release is called
// or the session's grace is over. If the hold has ended already, WindDown does nothing.
func (h *Hold) WindDown(cause error) {
	h.c.s.mu.Lock()
	defer h.c.s.mu.Unlock()
	h.windDown(cause, true)
}

// Finished returns a channel that is closed when the hold is over, its holder is done or its grace
// is over, and the release, if one had to be sent, was answered or given up. It is nil unless
// the hold was made by [Session.Hold] or [Session.TryHold].
func (h *Hold) Finished() <-chan struct{} { return h.c.released }

// Release tells the hold that its holder is done, and releases the key if it is still held. ctx
// bounds only the wait for the store's answer; the release goes on in the background. The error
// is [ErrLost] with its cause if the hold had ended before, ctx's error, or the store's. A
// second Release does nothing and does not wait for the first: see [Hold.Finished].
func (h *Hold) Release(ctx context.Context) error {
	if h.released.Swap(true) { // not a sync.Once: with one, a second call would wait for the first, beyond its ctx
		return nil
	}
	return h.Unlock(driver.Leave{}).Wait(ctx)
}

// Publish stores value, up to 64 KiB, for everybody to read while the hold lasts. It makes one
// attempt. The error is [ErrLost] if the hold is over, ctx's error, or the store's.
func (h *Hold) Publish(ctx context.Context, value []byte) error {
	if !h.Live() {
		return h.Err()
	}
	_, err := request(ctx, h.c.s, "Publish", h.publish(value))
	return err
}

// PublishLater publishes value in the background. It tries until the store has answered or the hold
// is over. A value for which Publish is called afterwards takes its place, also if that reaches the
// store first.
func (h *Hold) PublishLater(value []byte) {
	s, over, publish := h.c.s, h.Lost(), h.publish(value)
	s.spawn(func() {
		retry := s.backoff()
		for h.Live() {
			a := command(s, "Publish", publish)
			if errors.Is(a.err, driver.ErrRefused) { // an answer, which is reported to nobody else
				s.storeError("Publish", a.err)
			}
			if a.err == nil || isAnswer(a.err) || s.waitFor(s.base, nil, over, retry.next()) != nil {
				return
			}
		}
	})
}

// publish returns the command that publishes value. Values take effect in the order of the calls of
// publish.
func (h *Hold) publish(value []byte) func(context.Context) (struct{}, error) {
	s, seq := h.c.s, h.published.Add(1)
	return func(ctx context.Context) (struct{}, error) {
		edited, err := s.store.Edit(ctx, driver.Edit{Publish: &driver.Publish{Claim: h.c.request, Seq: seq, Value: value}})
		s.notify(edited.Notices)
		return struct{}{}, err
	}
}

// Extend renews a fixed lease for its duration, counted from now by the store's clock, and
// returns its new end. It makes one attempt. The error is [ErrLost] if the hold is over, ctx's
// error, or the store's.
func (h *Hold) Extend(ctx context.Context) (until time.Time, err error) {
	if !h.Live() {
		return time.Time{}, h.Err()
	}
	c := h.c
	sent := instantNow()
	o, err := c.extend(ctx)
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		return time.Time{}, err
	}
	c.s.mu.Lock()
	switch {
	case err != nil:
		c.lose(err)
	case h.state == live && !o.Until.Before(c.grant.until):
		c.grant.sent, c.grant.until = sent, o.Until // claim.expire resets the timer
	}
	c.s.mu.Unlock()
	if !h.Live() {
		return time.Time{}, h.Err()
	}
	return o.Until, nil
}

// extend sends one Extend command.
func (c *claim) extend(ctx context.Context) (driver.Holder, error) {
	return request(ctx, c.s, "Extend", func(ctx context.Context) (driver.Holder, error) {
		edited, err := c.s.store.Edit(ctx, driver.Edit{Extend: &driver.Extend{Claim: c.withGrant()}})
		return edited.Holder, err
	})
}

// reportRelease calls the Released hooks for a hold that was live until its holder was done.
// s.mu must be held.
func (h *Hold) reportRelease(now time.Time) {
	c := h.c
	c.s.each(func(l *Hooks) {
		if l.Released != nil {
			info := ReleasedInfo{Key: c.request.Key, Kind: c.request.Kind, Token: h.token, Held: h.age(now)}
			c.s.report(func() { l.Released(info) })
		}
	})
}

// age returns how long the hold has lasted, or 0 if its beginning was not recorded.
func (h *Hold) age(now time.Time) time.Duration {
	if h.began.IsZero() {
		return 0
	}
	return now.Sub(h.began)
}

// A scopedContext is a context that ends with one or more holds. Its Err compares the clock, so
// that the first call after a freeze reports the loss.
type scopedContext struct {
	context.Context
	over   context.Context // ends with the holds
	live   func() bool     // compares the clock; when it returns false, over has ended
	cancel context.CancelCauseFunc
}

// Scoped returns a context that ends with ctx and with over. If over ends it, the cause is that
// of over. cancel ends the context and frees its resources.
func Scoped(ctx, over context.Context, live func() bool) (_ context.Context, cancel context.CancelCauseFunc) {
	c, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	context.AfterFunc(c, func() { unhook() })
	return &scopedContext{c, over, live, cancel}, cancel
}

func (c *scopedContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if !c.live() {
		c.cancel(context.Cause(c.over))
	}
	return c.Context.Err()
}

// Context returns a context that ends with ctx and with the hold.
func (h *Hold) Context(ctx context.Context) (_ context.Context, cancel context.CancelCauseFunc) {
	return Scoped(ctx, h.Ended(), h.Live)
}

// EndedContext returns a context made from ctx that has ended with the given cause.
func EndedContext(ctx context.Context, cause error) context.Context {
	c, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	return c
}
