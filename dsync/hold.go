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

// A Hold is one hold of a lock, as a value. It begins when the key is granted, and ends when it is released or lost.
//
//	h, err := mu.Hold(ctx)
//	if err != nil {
//		return err
//	}
//	defer h.Release(context.WithoutCancel(ctx))
//	return work(h.Context(ctx)) // ends if the hold is lost
//
// A hold is lost when its process cannot reach the store for most of the session's TTL, or is frozen for that long. The
// other usual reasons are that somebody takes the key by force, and that the hold's limit ([Hold.Progress]) or lease
// ([Mutex.Lease]) is over. After Lost closes, nobody else can hold the key for at least the session's grace. A lost
// hold must be released, too: until then the key stays locked in this process. A lease and units of a [Semaphore] need
// no release after a loss.
type Hold struct {
	h     *engine.Hold
	over  context.Context         // for a reader: ends with h, or when this reader releases its share of h; otherwise nil
	end   context.CancelCauseFunc // ends over
	state atomic.Int32            // a holdState
}

type holdState = int32

const (
	held     holdState = iota
	released           // Release or ReleaseAfter was called
	scoped             // a scope releases it
)

// HoldFrom returns the innermost hold that ctx was derived from, by [Hold.Context], a scope such as [Mutex.Do], a run
// of a [Once] or a [Periodic], or a leader's term in package leader. It returns nil if there is no hold, or if the
// innermost scope has several, as [LockAll]'s can. The scope, or the holder whose Hold made the context, releases it:
// Release and ReleaseAfter of the returned Hold return an error.
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

// String describes the hold and says whether it is over, as in `mutex "invoices": held, token 1838831318501376`.
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

// Token returns the hold's fencing token, which is greater than the tokens of all earlier holds of the key, by any
// process. Readers of one process can share a token. The token is 0 once the hold is over.
func (h *Hold) Token() int64 {
	if h.over != nil && h.over.Err() != nil {
		return 0
	}
	return h.h.Token()
}

// Lost returns a channel that is closed when the hold is lost, or just before Release releases it.
func (h *Hold) Lost() <-chan struct{} {
	lost := h.h.Lost() // compares the clock
	if h.over != nil {
		lost = h.over.Done()
	}
	return lost
}

// Context returns a context that ends with ctx and with the hold, for the work under it. If the hold
// was lost, the cause is [ErrLost]; if it was released, [context.Canceled]. Its Err method checks the
// clock, so the first call after a freeze reports a loss. There is nothing to cancel.
func (h *Hold) Context(ctx context.Context) context.Context {
	c, _ := h.h.Context(ctx, h.over)
	return c
}

// Progress reports that the holder makes progress, and ends the hold unless Progress is called again within limit.
// It is for work that can hang: a session renews its holds as long as its process lives, even for a goroutine that
// waits forever.
//
//	for _, batch := range batches {
//		if err := h.Progress(time.Minute); err != nil {
//			return err // the hold is over
//		}
//		send(ctx, batch) // takes some seconds
//	}
//
// When the limit has passed, this hold alone is lost, with the cause [ErrStalled]. After the grace the store can grant
// the key to others. limit counts from the call, including time that the machine sleeps; 0 removes the limit. A hold
// begins without a limit.
//
// Progress sends no command. The error is [ErrLost], with its cause, if the hold is over. It is another error if limit
// is negative or more than 50 years, or if the hold is a reader's, because readers can share it.
func (h *Hold) Progress(limit time.Duration) error { return h.h.Progress(limit) }

// Until returns the end of a lease by the store's clock, as the store last reported it, or the zero time if the hold is
// not a lease. Lost closes earlier, by margin plus grace.
func (h *Hold) Until() time.Time { return h.h.Until() }

// Extend makes one attempt to renew a lease for its duration, counted from now by the store's clock, and returns the
// new end. The error is [ErrLost] if the hold is over. [driver.ErrNotHeld] ends the hold soon, unless a deposed primary
// answered. After others the lease may have been renewed; call Extend again. Only a lease can be extended.
func (h *Hold) Extend(ctx context.Context) (until time.Time, err error) {
	if h.h.Until().IsZero() {
		return time.Time{}, fmt.Errorf("dsync: extend %q: this hold is not a lease; its session renews it", h.Key())
	}
	if until, err = h.h.Extend(ctx); err != nil {
		return time.Time{}, fmt.Errorf("dsync: extend %q: %w", h.Key(), err)
	}
	return until, nil
}

// Release releases the hold, and returns when no fail-over can undo the release. ctx bounds only the wait for the
// store's answer; the release goes on in the background. The error is [ErrLost] with its cause if the hold
// ended before that, or ctx's error, or [ErrRefused]. If the session is closed before the store has answered, it is
// [ErrNotReleased], or [ErrLeaseOver] for a lease that has ended.
//
// A second Release does nothing, and does not wait for the first.
func (h *Hold) Release(ctx context.Context) error { return h.release(ctx, driver.Release{}) }

// ReleaseAfter releases the hold in this process but keeps the key held for d from now, by the store's clock, even
// if this process ends. It is for jobs that must not run twice within d although hosts' clocks differ. d must be
// from 1 ms to 50 years. For a lease or a reader's hold, ReleaseAfter returns an error and changes nothing. Other
// errors are those of Release; after them, the key may be free as soon as the session ends.
func (h *Hold) ReleaseAfter(ctx context.Context, d time.Duration) error {
	switch {
	case d < time.Millisecond:
		return fmt.Errorf("dsync: release %q after %v: the time must be at least 1ms; Release frees the key now", h.Key(), d)
	case d > driver.MaxDuration:
		return fmt.Errorf("dsync: release %q after %v: the time must be at most %v", h.Key(), d, driver.MaxDuration)
	case !h.h.Keeps():
		return fmt.Errorf("dsync: release %q after %v: the key can't be kept after a lease or a reader's hold", h.Key(), d)
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

// scope calls f with a context of h, and then unlocks h. Every lock's Do uses it.
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
