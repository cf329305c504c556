package dsync

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/rfc3339"
)

// A Hold is one hold of a lock, as a value: what [Mutex.Hold] and its relatives return, and what the
// context of a scope carries (see [HoldFrom]). It begins when the store grants the key, and ends when it
// is released or lost.
//
//	h, err := mu.Hold(ctx)
//	if err != nil {
//		return err
//	}
//	defer h.Release(context.WithoutCancel(ctx))
//	return work(h.Context(ctx)) // ends if the hold is lost
//
// A hold is lost when its process cannot reach the store for most of the session's TTL or is frozen for that
// long, when somebody takes the key by force, or when its limit (Progress) or its lease ([Mutex.Lease]) is
// over. Lost closes at least the session's grace before anyone else can hold the key. A hold that was lost must be
// released, too: until then the key stays locked in this process. A lease and units of a [Semaphore] need no release after a
// loss.
//
// All methods may be called concurrently.
type Hold struct {
	h     *engine.Hold
	over  context.Context         // of a reader: ends with h, and when this reader releases it, which others may share; else nil
	end   context.CancelCauseFunc // ends over
	state atomic.Int32            // a holdState
}

type holdState = int32

const (
	held     holdState = iota
	released           // Release or ReleaseAfter was called
	scoped             // a scope releases it
)

// HoldFrom returns the hold whose context is ctx, or a parent of ctx: that of [Hold.Context], of a scope such as
// [Mutex.Do] and [Semaphore.Do], of a run of a [Once] or a [Periodic], or of a leader's term in package leader. If there
// are several, it is the innermost one. HoldFrom returns nil if there is none, or if the innermost scope has several
// holds, as that of [LockAll] does. Whoever made the scope releases the hold: on the Hold that
// HoldFrom returns, Release and ReleaseAfter return an error.
func HoldFrom(ctx context.Context) *Hold {
	h, over := engine.HoldOf(ctx)
	if h == nil {
		return nil
	}
	r := &Hold{h: h, over: over}
	r.state.Store(scoped)
	return r
}

// Key returns the key.
func (h *Hold) Key() string { return h.h.Key() }

// String returns what is held and the state, such as `mutex "invoices": held, token 1838831318501376`. It checks the
// clock and sends no command.
func (h *Hold) String() string {
	what := fmt.Sprintf("%s %q", h.h.Kind(), h.Key())
	token, until := h.Token(), h.Until()
	switch {
	case token == 0:
		return what + ": over"
	case until.IsZero():
		return fmt.Sprintf("%s: held, token %d", what, token)
	}
	return fmt.Sprintf("%s: held until %s, token %d", what, rfc3339.Millis(until), token)
}

// Token returns the fencing token of the hold, which is greater than that of every earlier hold of the key, by any
// process. Readers of one process can share a token. It returns 0 if the hold is over.
func (h *Hold) Token() int64 {
	if h.over != nil && h.over.Err() != nil {
		return 0
	}
	return h.h.Token()
}

// Lost returns a channel that is closed when the hold ends: when it is lost, and just before Release releases it.
func (h *Hold) Lost() <-chan struct{} {
	lost := h.h.Lost() // compares the clock
	if h.over != nil {
		lost = h.over.Done()
	}
	return lost
}

// Context returns a context that ends with ctx and with the hold, for the work under it. If the hold was lost, the
// cause is [ErrLost]; if it was released, [context.Canceled]. Its Err method checks the clock, so the first call after
// a freeze reports a loss. [HoldFrom] returns the hold that it carries.
//
// The context's resources are freed when the hold ends, so there is nothing to cancel.
func (h *Hold) Context(ctx context.Context) context.Context {
	c, _ := h.h.Context(ctx, h.over)
	return c
}

// Progress reports that the holder makes progress, and has the hold end unless Progress is called again
// within limit. It is for holders that can hang: while a process lives, its session renews what it holds,
// also for a goroutine that waits forever.
//
//	for _, batch := range batches {
//		if err := h.Progress(time.Minute); err != nil {
//			return err // the hold is over
//		}
//		send(ctx, batch) // one takes some seconds
//	}
//
// When the limit has passed, the hold is lost, and the cause is [ErrStalled]. After the session's grace the
// store can grant the key to others, even if Release is never called; in this process it stays locked until then, and
// [Session.Healthy] reports it. Everything else that the session holds is kept.
//
// limit counts from the call, by the local clock, including time that the machine sleeps. As with net.Conn's
// SetDeadline, each call replaces the limit of the last one, and 0 removes it. A hold begins without a limit. So
// call Progress first when the hold begins.
//
// Progress sends no command, so it can be called often, by any goroutine. The error is [ErrLost], with its cause, if
// the hold is over. It is another error if limit is negative or more than [MaxDuration], or if the hold
// is that of readers: they can share one, and a reader that makes progress would hide another that hangs.
func (h *Hold) Progress(limit time.Duration) error { return h.h.Progress(limit) }

// Until returns the end of a lease, by the store's clock, as the store last reported it. Lost closes earlier than that,
// by margin and grace. It is the zero time for a hold that heartbeats renew.
func (h *Hold) Until() time.Time { return h.h.Until() }

// Extend renews a lease for its duration, counted from now by the store's clock, and returns the new end. It
// makes one attempt. The error is [ErrLost] if the hold is over, with [ErrRecordDeleted] if it ends because the store does not
// have it. After any other error, ctx's or the store's, the hold is
// as it was before, and Extend may be called again. It is an error to extend a hold that is no lease.
func (h *Hold) Extend(ctx context.Context) (until time.Time, err error) {
	if h.h.Until().IsZero() {
		return time.Time{}, fmt.Errorf("dsync: extend %q: it is no lease, and its session renews it", h.Key())
	}
	if until, err = h.h.Extend(ctx); err != nil {
		return time.Time{}, fmt.Errorf("dsync: extend %q: %w", h.Key(), err)
	}
	return until, nil
}

// Release releases the hold, and returns when no fail-over can undo that: the key is free, or another waiter's. ctx
// bounds only the wait for the store's answer; the release goes on in the background until the store has answered. The
// error is [ErrLost] with its cause if the hold had ended before, that of ctx, or [ErrRefused]. If the session is closed
// before the store has answered, it is [ErrNotReleased]; of a lease that ends before that, [ErrLeaseOver].
//
// A second Release does nothing, and does not wait for the first.
func (h *Hold) Release(ctx context.Context) error { return h.release(ctx, driver.Release{}) }

// ReleaseAfter releases the hold in this process but keeps the key held for d from now, by the store's clock, even if
// this process ends. Use it for a job that must not run twice within d although hosts' clocks differ. d must be from
// 1 ms to [MaxDuration]; otherwise, and for a lease or a reader's hold, ReleaseAfter returns an error and changes nothing.
// If it returns any other error, the key may be free as soon as the session ends. Errors are those of Release.
func (h *Hold) ReleaseAfter(ctx context.Context, d time.Duration) error {
	switch {
	case d < time.Millisecond:
		return fmt.Errorf("dsync: release %q after %v: it must be at least 1ms; Release frees it now", h.Key(), d)
	case d > MaxDuration:
		return fmt.Errorf("dsync: release %q after %v: it must be at most %v", h.Key(), d, MaxDuration)
	case !h.h.Keeps():
		return fmt.Errorf("dsync: release %q after %v: a lease or a reader's hold can't be kept", h.Key(), d)
	}
	return h.release(ctx, driver.Release{Keep: d})
}

func (h *Hold) release(ctx context.Context, l driver.Release) error {
	if !h.state.CompareAndSwap(held, released) {
		if h.state.Load() == scoped {
			return fmt.Errorf("dsync: release %q: the scope that holds it releases it", h.Key())
		}
		return nil
	}
	if h.end != nil {
		h.end(context.Canceled)
	}
	if err := h.h.Unlock(l).Wait(ctx); err != nil {
		return fmt.Errorf("dsync: release %q: %w", h.Key(), err)
	}
	return nil
}

// scope calls f with a context of h, and then unlocks h. It is what each Do does.
func scope(ctx context.Context, s *engine.Session, h *engine.Hold, unlock func(driver.Release) engine.Releasing, f func(context.Context) error) (err error) {
	c, cancel := h.Context(ctx, nil)
	defer func() {
		cancel(context.Canceled)
		wait, cancel := context.WithTimeout(context.Background(), s.TTL()/3)
		defer cancel()
		if uerr := unlock(driver.Release{}).Wait(wait); errors.Is(uerr, ErrLost) {
			err = errors.Join(err, fmt.Errorf("dsync: unlock %q: %w", h.Key(), uerr))
		} else if uerr != nil {
			s.Warn("dsync: Unlock", "key", h.Key(), "err", uerr)
		}
	}()
	return f(c)
}
