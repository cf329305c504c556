package dsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Lease is a hold of a key for a fixed duration: it is not renewed, lapses by
// itself, whatever becomes of its process and session, and needs no Release.
// [Session.Acquire] and [Session.TryAcquire] return one. A key held by a Lease is
// held for every [Mutex] of that key, and the reverse.
//
// It lapses for its holder before the store lets anyone else in: by the session's
// margin and grace, like a lost hold. All methods may be called concurrently.
type Lease struct {
	s    *Session
	h    *hold
	once sync.Once
}

// Acquire waits for key and holds it for d. d is whole milliseconds, and longer
// than twice the session's margin and grace, which are taken off at its end.
// Errors are those of [Mutex.LockContext], and [ErrKey].
func (s *Session) Acquire(ctx context.Context, key string, d time.Duration) (*Lease, error) {
	if err := s.checkLease(key, d); err != nil {
		return nil, err
	}
	w := all(key, KindMutex)
	w.lease = d
	h, err := s.acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("dsync: acquire %q: %w", key, err)
	}
	return &Lease{s: s, h: h}, nil
}

// TryAcquire holds key for d if that is possible without waiting for its holder.
// Errors are those of [Mutex.TryLockContext], and [ErrKey].
func (s *Session) TryAcquire(ctx context.Context, key string, d time.Duration) (*Lease, error) {
	if err := s.checkLease(key, d); err != nil {
		return nil, err
	}
	w := all(key, KindMutex)
	w.lease = d
	h, err := s.tryAcquire(ctx, w)
	if err != nil {
		return nil, tryError("acquire", key, err)
	}
	return &Lease{s: s, h: h}, nil
}

func (s *Session) checkLease(key string, d time.Duration) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if least := 2 * (s.opt.Margin + s.opt.Grace); d <= least {
		return fmt.Errorf("dsync: acquire %q for %v: it must be more than %v, twice the session's margin and grace", key, d, least)
	}
	if d%time.Millisecond != 0 {
		return fmt.Errorf("dsync: acquire %q for %v: it must be whole milliseconds", key, d)
	}
	return nil
}

// Key returns the key.
func (l *Lease) Key() string { return l.h.claim.Key }

// Lost returns a channel that is closed when the hold ends: when it lapses, and
// just before Release releases it.
func (l *Lease) Lost() <-chan struct{} { return l.h.lost() }

// Token returns the fencing token, or 0 if the hold is over: see [Mutex.Token].
func (l *Lease) Token() int64 { return l.h.fencing() }

// Until returns when the hold lapses by the store's clock, as the store told it
// last. Lost closes a margin and a grace before that.
func (l *Lease) Until() time.Time {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.h.until
}

// Extend makes the lease last for its duration from now on by the store's clock,
// and returns when it will lapse, to the millisecond as the store has it. It
// makes one attempt. The error is [ErrLost] if the hold is over; any other, ctx's
// or the store's, leaves it as it was, and Extend can be called again.
func (l *Lease) Extend(ctx context.Context) (until time.Time, err error) {
	h := l.h
	fail := func(err error) (time.Time, error) {
		return time.Time{}, fmt.Errorf("dsync: extend %q: %w", h.claim.Key, err)
	}
	if !h.live() {
		return fail(h.why())
	}
	sent := stampNow()
	o, err := await(ctx, l.s, h.extend())
	if err != nil && !errors.Is(err, ErrNotHeld) {
		return fail(err)
	}
	l.s.mu.Lock()
	switch {
	case err != nil:
		h.lose(err)
	case o.Token != h.token:
		// It lapsed, and a request that came late was granted with it: that is another
		// hold, which nobody here has.
		h.drain(ErrNotHeld)
	default:
		h.extended(sent, o.Until)
	}
	l.s.mu.Unlock()
	if !h.live() {
		return fail(h.why())
	}
	return o.Until, nil
}

// Release gives the key up before the lease is over. ctx bounds the wait for the
// store's answer only; the release goes on in the background. The error is
// [ErrLost] if the hold was over before, or ctx's. A second Release does nothing.
func (l *Lease) Release(ctx context.Context) (err error) {
	l.once.Do(func() { err = l.h.unlock(Outcome{}).wait(ctx) })
	if err != nil {
		return fmt.Errorf("dsync: release %q: %w", l.h.claim.Key, err)
	}
	return nil
}
