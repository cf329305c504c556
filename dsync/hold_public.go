package dsync

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A Hold is one exclusive hold of a key, for packages that build on this one, as
// package leader does; programs want a [Mutex]. [Session.Hold] and
// [Session.TryHold] return one. All methods may be called concurrently.
//
// Unlike a Mutex it needs no Unlock after its end: once it is lost or drained it
// passes the key on, in this process as well, when its holder has called Release,
// or when the session's grace is over. But until Release its holder counts as one
// that is not done: see [Session.Healthy].
type Hold struct {
	s         *Session
	h         *hold
	released  atomic.Bool  // Release was called
	published atomic.Int64 // how often Publish was called
}

// Hold waits for key and holds it as kind. Errors are those of
// [Mutex.LockContext], and [ErrKey].
func (s *Session) Hold(ctx context.Context, key string, kind Kind) (*Hold, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	w := all(key, kind)
	w.auto = true
	h, err := s.acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("dsync: %s %q: %w", kind, key, err)
	}
	return &Hold{s: s, h: h}, nil
}

// TryHold holds key as kind if that is possible without waiting for its holder.
// Errors are those of [Mutex.TryLockContext], and [ErrKey].
func (s *Session) TryHold(ctx context.Context, key string, kind Kind) (*Hold, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	w := all(key, kind)
	w.auto = true
	h, err := s.tryAcquire(ctx, w)
	if err != nil {
		return nil, tryError("hold", key, err)
	}
	return &Hold{s: s, h: h}, nil
}

// Lost returns the channel that is closed when the hold ends: see [Mutex.Lost].
func (o *Hold) Lost() <-chan struct{} { return o.h.lost() }

// Token returns the fencing token, or 0 if the hold is over: see [Mutex.Token].
func (o *Hold) Token() int64 { return o.h.fencing() }

// Left returns for how long the hold goes on from now, by the local clock, unless a
// heartbeat is acknowledged meanwhile; 0 if it is over. A program that has somebody
// else stop its work in time, another process say, tells it after every heartbeat
// ([Hooks].Heartbeat): when nothing is left, the session's grace begins. Of the
// clock and Left, read the clock first.
func (o *Hold) Left() time.Duration {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	now := time.Now()
	if !o.h.look(now) {
		return 0
	}
	return o.h.p.leftAt(now)
}

// Term returns the number of grants of the key up to this one, of KindElection;
// also after the end.
func (o *Hold) Term() int64 { return o.h.term }

// Session returns the id of the session that holds.
func (o *Hold) Session() string { return o.h.p.id }

// Context returns a context that ends with ctx and with the hold, or by cancel;
// context.Cause of it says why. Its Err compares the clock, so that the first look
// after a freeze tells of a loss. What the context uses is freed when it ends.
func (o *Hold) Context(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return o.h.context(ctx)
}

// Drain ends the hold with cause: Lost closes, and the key is released when
// Release is called, or when the session's grace is over. On a hold that is over
// it does nothing.
func (o *Hold) Drain(cause error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.h.drain(cause)
}

// Passed returns the channel that is closed when the key was passed on: the hold
// is over, its holder is done or its grace is over, and the release, if there was
// one to send, was answered or given up.
func (o *Hold) Passed() <-chan struct{} { return o.h.passed }

// Release says that the holder is done, and releases the key if it is still held.
// ctx bounds only the wait for the store's answer; the release goes on in the
// background. The error is [ErrLost] if the hold had ended before, with what ended
// it, or ctx's. A second Release does nothing, and does not wait for the first: see Passed.
func (o *Hold) Release(ctx context.Context) error {
	if o.released.Swap(true) { // no sync.Once: the first call waits, and ctx must bound the second
		return nil
	}
	return o.h.unlock(Outcome{}).wait(ctx)
}

// Publish stores value, up to 64 KiB, for all to read while the hold lasts. It
// makes one attempt. The error is [ErrLost] if the hold is over, ctx's, or the
// store's.
func (o *Hold) Publish(ctx context.Context, value []byte) error {
	if !o.h.live() {
		return o.h.why()
	}
	seq := o.published.Add(1)
	_, err := await(ctx, o.s, call(o.s, "Publish", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, o.s.store.Publish(ctx, o.h.claim, seq, value)
	}))
	return err
}
