package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A Hold is one caller's use of a claim. Until the claim is granted, the Hold is the caller's waiting call:
//
//	called ──► live ──► windingDown ──► done    lost, or asked to stop: Lost is closed, the grace runs
//	            ├─────► stopping ─────► done    the same, by its holder: see WindDown
//	            └─────────────────────► done
//
// The session's mu guards all fields except those that are set when the hold is made or begins.
type Hold struct {
	s       *Session
	acquire core.Call
	since   core.Instant // when the call was made; after it is served: when the hold began
	end     core.Done    // the event to send when the holder is done; a field because that saves an allocation

	// Until the call is served, ctx is the context of the call, for the Granted hook. After that, ctx is a context that
	// ends with the hold; it is made when first needed. Lost returns its Done channel.
	ctx    context.Context
	cancel context.CancelCauseFunc // ends ctx; nil: no context that ends with the hold exists yet

	got     *Hold         // the hold that the call got: this hold or another reader's; nil: the call was not served, or was denied
	denied  error         // why the call got no hold
	waiting chan struct{} // closed when the call is served; later a new channel that is closed when the hold is freed; nil: nobody waits

	// Set when the hold begins:
	request *driver.Claim
	token   int64
	granted core.Instant // when this process learned of the claim's grant

	state   holdState
	freed   bool  // the Core has sent Freed for the hold
	sharers int32 // number of readers that share the hold
	cause   error // why the hold winds down
	err     error // why the release failed
	own     *own  // nil unless the hold is a lease or was made by Session.Hold
}

// own has the fields that only leases and the holds of Session.Hold need.
type own struct {
	term      int64         // term of an election
	until     time.Time     // the end of a lease, by the store's clock
	finished  chan struct{} // closed when the hold is freed
	passed    error         // why the hold has not been released as ReleaseBy requested; nil: it has been
	released  atomic.Bool   // Release was called
	said      atomic.Bool   // ReleaseBy was called
	published atomic.Int64  // number of values passed to Publish and PublishLater; the value of the last call prevails
}

type holdState uint8

const (
	called holdState = iota
	live
	windingDown
	stopping
	done
)

// holdOf returns the hold for a Call of the Core.
func holdOf(a *core.Call) *Hold { return a.Caller.(*Hold) }

// served reports whether the call has its result. s.mu must be held.
func (h *Hold) served() bool { return h.got != nil || h.denied != nil }

// deliver gives a call its hold or error. s.mu must be held.
func (s *Session) deliver(f *core.Deliver) {
	w := holdOf(f.To)
	switch {
	case f.Err != nil:
		w.denied = f.Err
	case f.Hold == f.To:
		w.got = w
		w.begin(f)
	default:
		w.got = holdOf(f.Hold)
		w.got.sharers++
	}
	if w.cancel == nil {
		w.ctx = nil // a hold can long outlive its caller's context
	}
	w.wake()
}

// wake wakes the goroutine that waits for the call or the release. s.mu must be held.
func (h *Hold) wake() {
	if h.waiting != nil {
		close(h.waiting)
		h.waiting = nil
	}
}

// begin begins the hold. s.mu must be held.
func (h *Hold) begin(f *core.Deliver) {
	waited := h.s.now.Sub(h.since)
	h.request, h.token, h.granted, h.since = f.Request, f.Token, f.Granted, h.s.now
	h.state, h.sharers, h.end = live, 1, core.Done{Claim: f.Claim, Hold: &h.acquire}
	if h.acquire.Auto || h.acquire.Lease > 0 {
		h.own = &own{term: f.Term, until: f.Until, finished: make(chan struct{})}
	}
	h.s.report.Granted(h, Grant{h.ctx, waited, f.Local})
}

// ends ends the hold before its holder is done: it closes Lost, and the holder then has the grace to stop. s.mu must be
// held.
func (h *Hold) ends(f *core.End) {
	s := h.s
	h.cause = core.LostTo(f.Cause)
	if ByHolder(f) {
		h.become(stopping)
	} else {
		h.become(windingDown)
	}
	if h.acquire.Lease == 0 { // a lease needs no release
		s.overdue[h] = s.now
	}
	s.report.Lost(h, f, h.cause, s.now.Sub(h.since))
}

// ByHolder reports whether the holder wanted its hold to end, as a leader that resigns does, or its lease ran out.
func ByHolder(f *core.End) bool { return f.Asked && !errors.Is(f.Cause, core.ErrRevoked) }

// freedBy records that the Core has finished with the hold. s.mu must be held.
func (h *Hold) freedBy(f *core.Freed) {
	h.freed, h.err = true, f.Err
	h.wake()
	if h.own != nil {
		h.own.passed = f.Passed
		close(h.own.finished)
	}
}

// become moves the hold to another state and ends its context. s.mu must be held.
func (h *Hold) become(to holdState) {
	h.state = to
	if h.cancel != nil {
		h.endContext()
	}
	if to == done {
		delete(h.s.overdue, h)
	}
}

// Live checks the clock and reports whether the hold is live.
func (h *Hold) Live() bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.compareClock()
	return h.state == live
}

// Lost returns a channel that is closed when the hold ends.
func (h *Hold) Lost() <-chan struct{} {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.compareClock()
	return h.context().Done()
}

// Ended returns a context that ends with the hold.
func (h *Hold) Ended() context.Context {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.context()
}

// context returns a context that ends with the hold, and makes it if there is none. s.mu must be held.
func (h *Hold) context() context.Context {
	if h.cancel == nil {
		h.ctx, h.cancel = context.WithCancelCause(context.Background())
		if h.state != live {
			h.endContext()
		} else {
			h.s.checkHoldsLater()
		}
	}
	return h.ctx
}

func (h *Hold) endContext() {
	cause := h.cause
	if cause == nil {
		cause = context.Canceled
	}
	h.cancel(cause)
}

// checkPause is the shortest interval between two checks of the clock: see checkHoldsLater.
const checkPause = 10 * time.Millisecond

// checkHoldsLater makes the session check the clock every half grace, as long as it has claims. Timers stand still
// while the machine sleeps. Without these checks, a goroutine that waits for Lost could learn of a loss as much too
// late as the machine slept. s.mu must be held.
func (s *Session) checkHoldsLater() {
	if s.checkTimer == nil && !s.finished {
		s.checkTimer = time.AfterFunc(max(s.config.Grace/2, checkPause), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.compareClock()
			s.checkTimer = nil
			if !s.core.Empty() {
				s.checkHoldsLater()
			}
		})
	}
}

// GrantToken returns the fencing token with which the hold began. Unlike Token, it does not tell whether the hold is
// over, and may be called by a [Reporter].
func (h *Hold) GrantToken() int64 { return h.token }

// Token returns the fencing token, or 0 if the hold is over.
func (h *Hold) Token() int64 {
	if !h.Live() {
		return 0
	}
	return h.token
}

// Cause returns why the hold was lost, or nil if it was not.
func (h *Hold) Cause() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.cause
}

// Err returns why the hold is over.
func (h *Hold) Err() error {
	if cause := h.Cause(); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: it was released", core.ErrLost)
}

// Left returns how much longer the hold lasts, by the local clock, if no further heartbeat is acknowledged. It returns
// 0 if the hold is over. When Left reaches 0, the session's grace begins. If another process must stop the work in
// time, send it this value after every heartbeat (see dsync.Hooks). Read the clock before calling Left; otherwise the
// computed deadline can be late.
func (h *Hold) Left() time.Duration {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	now := h.s.compareClock()
	if h.state != live {
		return 0
	}
	return h.s.core.Deadline().Sub(now)
}

// Key returns the key.
func (h *Hold) Key() string { return h.request.Key }

// Session returns the id of the session that holds the key.
func (h *Hold) Session() string { return h.request.Session }

// Term returns, for a key of KindElection, the number of its grants up to and including this one. It remains valid
// after the hold has ended.
func (h *Hold) Term() int64 {
	if h.own == nil {
		return 0
	}
	return h.own.term
}

// Kind returns the kind of the key.
func (h *Hold) Kind() driver.Kind { return h.request.Kind }

// Keeps reports whether a release can keep the key held: see driver.Release. Leases cannot be kept. Holds that readers
// share cannot be kept either, since another reader may be the last to release such a hold.
func (h *Hold) Keeps() bool { return !h.acquire.Shares && h.request.Lease == 0 }

// Until returns the end of a fixed lease by the store's clock, or the zero time if the hold is not a fixed lease.
func (h *Hold) Until() time.Time {
	if h.own == nil {
		return time.Time{}
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.own.until
}

// WindDown ends the hold with cause. Lost closes, and the key is released when Release is called or the session's
// grace is over. If the hold has already ended, WindDown does nothing.
func (h *Hold) WindDown(cause error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.step(core.WindDown{Claim: h.end.Claim, Hold: &h.acquire, Cause: cause})
}

// Progress reports that the holder makes progress. Unless it is called again within limit, the hold ends as if by
// WindDown, with [ErrStalled] as its cause. A limit of 0 removes the limit. Progress returns an error if limit is
// out of range, and [ErrLost] if the hold is over.
func (h *Hold) Progress(limit time.Duration) error {
	if limit < 0 || limit > driver.MaxDuration {
		return fmt.Errorf("dsync: progress of %q within %v: it must be at least 0, which means no limit, and at most %v", h.Key(), limit, driver.MaxDuration)
	}
	if h.acquire.Shares {
		return fmt.Errorf("dsync: progress of %q: readers have no limit, since they can share a hold", h.Key())
	}
	h.s.mu.Lock()
	now := h.s.compareClock()
	over := h.state != live
	if !over {
		h.s.stepAt(now, core.Progress{Claim: h.end.Claim, Hold: &h.acquire, Limit: limit})
	}
	h.s.mu.Unlock()
	if over {
		return fmt.Errorf("dsync: progress of %q: %w", h.Key(), h.Err())
	}
	return nil
}

// Finished returns a channel that is closed when the hold is over, the holder is done or has used up its grace, and
// any Release that had to be sent has been answered or refused. Call it only on leases and on holds made by
// [Session.Hold]; on any other hold it panics.
func (h *Hold) Finished() <-chan struct{} { return h.own.finished }

// ReleaseBy sets how the store will release this hold: it grants the key to the claim l.Successor, ahead of all others
// in the queue, or keeps the key held for l.Keep from now. ReleaseBy does not end the hold. If the hold is over, or
// ReleaseBy was called before, it returns false and does nothing. A hold that its holder ended with WindDown counts as
// over only when the holder is done. ReleaseBy works only for holds made by [Session.Hold], which are never handed off
// within this process.
func (h *Hold) ReleaseBy(l driver.Release) bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.compareClock()
	if h.state != live && h.state != stopping || h.own.said.Swap(true) {
		return false
	}
	h.own.passed = core.ErrLost
	h.s.step(core.ReleaseBy{Claim: h.end.Claim, Release: l})
	return true
}

// ReleasedBy returns nil if the store has released the hold as ReleaseBy requested. If the successor no longer waited,
// so that the key went to the first waiter in the queue, the error is driver.ErrNotWaiting. If the hold was lost before
// the store released it, or it is unknown whether the successor was granted the key, the error is [ErrLost]. Call it
// after the channel returned by [Hold.Finished] is closed.
func (h *Hold) ReleasedBy() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.own.passed == core.ErrLost {
		return cmp.Or(h.err, h.cause, core.ErrLost)
	}
	return h.own.passed
}

// NotReleased returns why the store may still hold the key for this hold, or nil if the store has released it. Call
// it after the channel returned by [Hold.Finished] is closed.
func (h *Hold) NotReleased() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.err
}

// Release reports that the holder is done, and releases the key if it is still held. ctx bounds only the wait for the
// store's answer; the release goes on in the background. The error is [ErrLost] with its cause if the hold had ended
// before, ctx's error, or the store's. A second Release does nothing and does not wait for the first: see
// [Hold.Finished].
func (h *Hold) Release(ctx context.Context) error { return h.release(ctx, driver.Release{}) }

// ReleaseEarly is like [Hold.Release], but the store may answer before a majority has confirmed the release. A fail-over
// can undo such a release. The session makes up for that, or the key becomes free when the session has ended.
func (h *Hold) ReleaseEarly(ctx context.Context) error {
	return h.release(ctx, driver.Release{Early: true})
}

func (h *Hold) release(ctx context.Context, o driver.Release) error {
	if h.own.released.Swap(true) { // not a sync.Once: a second call would wait for the first, ignoring its own ctx
		return nil
	}
	return h.Unlock(o).Wait(ctx)
}

// Publish stores value, up to 64 KiB, for everybody to read while the hold lasts. It makes one attempt. The error is
// [ErrLost] if the hold is over, ctx's error, or the store's.
func (h *Hold) Publish(ctx context.Context, value []byte) error {
	if !h.Live() {
		return h.Err()
	}
	publish := &driver.Publish{Claim: *h.request, Seq: h.own.published.Add(1), Value: value}
	_, err := h.s.ask(ctx, core.Ask{Command: core.Command{Op: core.Publish, Edit: driver.Edit{Publish: publish}}, Claim: h.end.Claim})
	return err
}

// PublishLater publishes value in the background. It retries until the store has answered or the hold is over. A later
// call of Publish replaces the value, even if that call reaches the store first.
func (h *Hold) PublishLater(value []byte) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.step(core.PublishLater{Claim: h.end.Claim, Seq: h.own.published.Add(1), Value: value})
}

// Extend renews a fixed lease for its duration, counted from now by the store's clock, and returns the new end of the
// lease. It makes one attempt. The error is [ErrLost] if the hold is over, ctx's error, or the store's. After
// driver.ErrNotHeld, a lease that has outlived its session is lost at once; otherwise it is lost once a reading confirms
// that the store does not have it.
func (h *Hold) Extend(ctx context.Context) (until time.Time, err error) {
	if !h.Live() {
		return time.Time{}, h.Err()
	}
	r, err := h.s.ask(ctx, core.Ask{Command: core.Command{Op: core.Extend}, Claim: h.end.Claim, Answer: h.extended})
	switch {
	case !h.Live():
		return time.Time{}, h.Err()
	case err != nil:
		return time.Time{}, err
	}
	return r.Holder.Until, nil
}

// extended records the new end of a lease, even if the caller of Extend has given up. s.mu must be held.
func (h *Hold) extended(r *core.Reply) {
	if until := r.Holder.Until; h.state == live && r.Err == nil && !until.Before(h.own.until) {
		h.own.until = until
	}
}

// Unlock ends the hold: Lost closes, and then the claim is handed off in this process or released. A shared hold ends
// when the last of its holders unlocks. After a loss nothing is released. The release runs in the background; the
// caller must call Wait or Finish.
func (h *Hold) Unlock(o driver.Release) Releasing {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.compareClock()
	if h.sharers--; h.sharers == 0 {
		if h.state == live {
			s.report.Released(h, now.Sub(h.since))
		}
		h.become(done)
	}
	if o.Keep > 0 || o.Seal > 0 {
		leave := o // a copy, so that o does not escape to the heap
		h.end.Release = &leave
	}
	h.end.Early = o.Early
	s.stepAt(now, &h.end)
	if h.sharers > 0 || h.freed {
		return Releasing{h: h, err: cmp.Or(h.cause, h.err)}
	}
	h.waiting = make(chan struct{})
	return Releasing{h: h, answered: h.waiting}
}

// A Releasing is the result of an Unlock.
type Releasing struct {
	h        *Hold
	answered <-chan struct{} // closed when the store has answered; nil: there is nothing to wait for
	err      error           // why the hold had ended before, or could not be released
}

// Wait waits for the store's answer until ctx ends. The error is core.ErrLost if the hold had ended before, ctx's error,
// or the store's.
func (r Releasing) Wait(ctx context.Context) error {
	if r.answered == nil {
		return r.err
	}
	select {
	case <-r.answered:
	case <-ctx.Done():
		select {
		case <-r.answered: // it was answered while the caller waited for another release
		default:
			return cmp.Or(r.h.Cause(), fmt.Errorf("the release goes on in the background: %w", ctx.Err()))
		}
	}
	return cmp.Or(r.h.cause, r.h.err)
}

// Finish waits like Wait, for at most a third of the TTL, and logs the error.
func (r Releasing) Finish() {
	if r.answered != nil || r.err != nil {
		FinishAll([]Releasing{r})
	}
}

// FinishAll is like Finish, for several releases, which may belong to several sessions. In all, it waits for at most a
// third of the shortest TTL.
func FinishAll(all []Releasing) {
	waitAll(context.Background(), all, func(h *Hold, err error) { h.s.Warn("dsync: Unlock", "key", h.Key(), "err", err) })
}

// WaitAll waits as FinishAll does, but returns when ctx ends, and logs nothing.
func WaitAll(ctx context.Context, all []Releasing) { waitAll(ctx, all, func(*Hold, error) {}) }

func waitAll(ctx context.Context, all []Releasing, failed func(*Hold, error)) {
	most := time.Duration(driver.MaxDuration)
	for _, r := range all {
		most = min(most, r.h.s.config.TTL/3)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, r := range all {
		if err := r.Wait(ctx); err != nil {
			failed(r.h, err)
		}
	}
}

// A scopedContext is a context that ends with one or more holds. Its Err checks the clock, so that even the first call
// of Err after a freeze reports the loss.
type scopedContext struct {
	context.Context
	over   context.Context // ends with the holds
	live   func() bool     // checks the clock; if it returns false, over has ended
	cancel context.CancelCauseFunc
}

// Scoped returns a context for work under several holds. The context ends when ctx ends or the context over ends. If
// over ends first, the cause is over's cause. cancel ends the context and frees its resources.
func Scoped(ctx context.Context, holds []*Hold, over context.Context, live func() bool) (_ context.Context, cancel context.CancelCauseFunc) {
	return scoped(ctx, &scope{holds: holds}, over, live)
}

func scoped(ctx context.Context, w *scope, over context.Context, live func() bool) (_ context.Context, cancel context.CancelCauseFunc) {
	w.outer = scopeOf(ctx)
	c, cancel := context.WithCancelCause(context.WithValue(ctx, scopeKey{}, w))
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

// Context returns a context that ends when ctx ends or the context over ends. over must end with the hold or earlier;
// if over is nil, the returned context ends with the hold instead.
func (h *Hold) Context(ctx, over context.Context) (_ context.Context, cancel context.CancelCauseFunc) {
	w, live := &scope{holds: []*Hold{h}, over: over}, h.Live
	if over == nil {
		over = h.Ended()
	} else {
		live = func() bool { return h.Live() && over.Err() == nil }
	}
	return scoped(ctx, w, over, live)
}

// A scope lists the holds that the work under a context belongs to.
type scope struct {
	holds []*Hold
	over  context.Context // for a reader: a context that ends with its hold; otherwise nil
	outer *scope          // the scope of the parent context
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	w, _ := ctx.Value(scopeKey{}).(*scope)
	return w
}

// HoldOf returns the hold of ctx's innermost scope, and the context that was passed as over to [Hold.Context] for it.
// If ctx has no scope, or its scope has several holds, HoldOf returns nil.
func HoldOf(ctx context.Context) (h *Hold, over context.Context) {
	if w := scopeOf(ctx); w != nil && len(w.holds) == 1 {
		return w.holds[0], w.over
	}
	return nil, nil
}

// EndedContext returns a context made from ctx that has ended with the given cause.
func EndedContext(ctx context.Context, cause error) context.Context {
	c, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	return c
}
