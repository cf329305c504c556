package dsync

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Lease is a hold of a key for a fixed duration. It is not renewed: it ends by itself,
// whatever happens to its process and session, and it need not be released. [Session.Lease]
// and [Session.TryLease] return one. A Lease and a [Mutex] of the same key exclude each
// other.
//
// The holder sees the lease end before the store grants the key to anyone else, earlier by margin and grace,
// as with a lost hold. They are the session's; but unless [Options] sets them, each is at most a tenth of the lease.
//
// [Session.Close] ends the lease for its holder, but does not release the key: what a crash would keep, a
// restart keeps, too. Call [Lease.Release] before if the key should be free. All methods may be called
// concurrently.
type Lease struct {
	h *engine.Hold
}

// Lease waits for key and holds it for d, which must be whole milliseconds, at least 1 s, more than twice
// its margin and grace, and at most [MaxDuration]. For the holder the lease is shorter than d by margin and grace. ctx bounds the wait only. Errors are [ErrInvalidKey] and those of
// [Mutex.LockContext].
func (s *Session) Lease(ctx context.Context, key string, d time.Duration) (*Lease, error) {
	w, err := s.wantLease(key, d)
	if err != nil {
		return nil, err
	}
	h, err := s.engine.Acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("dsync: acquire %q: %w", key, err)
	}
	return &Lease{h: h}, nil
}

// TryLease holds key for d if that is possible without waiting. The rules for d are those of
// [Session.Lease]. Errors are [ErrInvalidKey] and those of [Mutex.TryLockContext].
func (s *Session) TryLease(ctx context.Context, key string, d time.Duration) (*Lease, error) {
	w, err := s.wantLease(key, d)
	if err != nil {
		return nil, err
	}
	h, err := s.engine.TryAcquire(ctx, w)
	if err != nil {
		return nil, engine.TryError("acquire", key, err)
	}
	return &Lease{h: h}, nil
}

// wantLease returns a request to hold key for d.
func (s *Session) wantLease(key string, d time.Duration) (engine.Want, error) {
	w := engine.Whole(key, driver.KindMutex)
	w.Lease = d
	if err := CheckKey(key); err != nil {
		return w, err
	}
	if d < time.Second {
		return w, fmt.Errorf("dsync: acquire %q for %v: it must be at least 1s", key, d)
	}
	if reserve := s.engine.Reserve(d); d <= 2*reserve {
		return w, fmt.Errorf("dsync: acquire %q for %v: it must be more than %v, twice the session's margin and grace", key, d, 2*reserve)
	}
	if d > MaxDuration {
		return w, fmt.Errorf("dsync: acquire %q for %v: it must be at most %v", key, d, MaxDuration)
	}
	if d%time.Millisecond != 0 {
		return w, fmt.Errorf("dsync: acquire %q for %v: it must be whole milliseconds", key, d)
	}
	return w, nil
}

// Key returns the key.
func (l *Lease) Key() string { return l.h.Key() }

// String returns the key and the state, such as `lease "invoices": held until 2026-03-01T12:00:00Z`,
// by the store's clock, or `lease "invoices": over`. It checks the clock and sends no command.
func (l *Lease) String() string {
	if !l.h.Live() {
		return fmt.Sprintf("lease %q: over", l.Key())
	}
	return fmt.Sprintf("lease %q: held until %s", l.Key(), l.Until().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// Lost returns a channel that is closed when the hold ends: when the lease is over, and just
// before Release releases the key.
func (l *Lease) Lost() <-chan struct{} { return l.h.Lost() }

// Token returns the fencing token, or 0 if the hold is over. See [Mutex.Token].
func (l *Lease) Token() int64 { return l.h.Token() }

// Until returns the end of the lease by the store's clock, as the store last reported it. Lost
// closes earlier than that, by margin and grace.
func (l *Lease) Until() time.Time { return l.h.Until() }

// Extend renews the lease for its duration d, counted from now by the store's clock, and
// returns the new end. It makes one attempt. The error is [ErrLost] if the hold is over, with
// [ErrRecordDeleted] if it ends because the store does not have it. After
// any other error, ctx's or the store's, the hold is as it was before, and Extend may be called
// again.
func (l *Lease) Extend(ctx context.Context) (until time.Time, err error) {
	if until, err = l.h.Extend(ctx); err != nil {
		return time.Time{}, fmt.Errorf("dsync: extend %q: %w", l.h.Key(), err)
	}
	return until, nil
}

// Release releases the key before the lease is over. ctx bounds only the wait for the store's
// answer; the release goes on in the background, until the lease is over or the session is closed. The
// error is [ErrLost] if the hold had ended before, or with [ErrLeaseOver] if the store had not answered when the lease was
// over; [ErrNotReleased] if it had not answered, or refused, when the session closed; ctx's error; or [ErrRefused]. A second
// Release does nothing, and does not wait for the first.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.h.Release(ctx); err != nil {
		return fmt.Errorf("dsync: release %q: %w", l.h.Key(), err)
	}
	return nil
}
