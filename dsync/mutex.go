package dsync

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Mutex is a mutual exclusion lock between processes, made by [Session.Mutex]. It is a [sync.Locker]
// with the methods of [sync.Mutex], and can be held in two more ways:
//
//	err := mu.Do(ctx, func(ctx context.Context) error { … }) // a scope: its ctx ends if the lock is lost
//	h, err := mu.Hold(ctx)                                   // a value: see Hold
//
// All Mutexes of one key exclude each other. One goroutine may unlock what another has locked.
//
// Unlike a sync.Mutex, a Mutex can lose its hold: see [Hold]. It then stays locked in this process
// until Unlock is called, so a late Unlock cannot release somebody's newer hold.
type Mutex struct {
	s     *engine.Session
	key   string
	kind  driver.Kind
	limit int64 // of the key; a Mutex takes all of it

	h atomic.Pointer[engine.Hold] // the hold that Lock, LockContext, TryLock or Do acquired; nil: unlocked
}

var (
	_ sync.Locker = (*Mutex)(nil)
	_ Locker      = (*Mutex)(nil)

	closedChan = closed()
)

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// want returns a request for all of the key.
func (m *Mutex) want() engine.Want {
	return engine.Want{Key: m.key, Kind: m.kind, Weight: m.limit, Limit: m.limit}
}

func (m *Mutex) session() *engine.Session {
	if m.s == nil {
		panic("dsync: use of a zero Mutex; make one with Session.Mutex")
	}
	return m.s
}

// String returns the kind and the key, such as `mutex "invoices"`.
func (m *Mutex) String() string { return fmt.Sprintf("%s %q", m.kind, m.key) }

// Lock locks m. If the key is held, in this process or another, Lock waits until it is free. While the
// store cannot be reached or refuses, Lock logs and keeps waiting. It panics where [Mutex.LockContext]
// would return [ErrClosed] or [ErrMismatch], but a Lock that is waiting when the session is closed
// never returns.
func (m *Mutex) Lock() { m.session().Forever(m.key, m.LockContext) }

// LockContext locks m like Lock, but gives up when ctx ends. ctx bounds only the wait: the hold does
// not end with it, and the store takes no part in a transaction that ctx carries.
//
// The error is ctx's, joined with the store's last error if there was one; [ErrClosed]; [ErrMismatch]; or
// [ErrRefused]. After other errors of the store, LockContext tries again.
func (m *Mutex) LockContext(ctx context.Context) error {
	h, err := m.acquire(ctx, m.want())
	if err == nil {
		m.h.Store(h)
	}
	return err
}

// TryLock tries to lock m and reports whether it succeeded. It returns false if the key is held, if somebody waits for
// it, or if there was an error, such as no answer from the store; [Mutex.TryHold] returns the reason.
func (m *Mutex) TryLock() bool { return m.tryLock(context.Background()) == nil }

func (m *Mutex) tryLock(ctx context.Context) error {
	h, err := m.tryAcquire(ctx, m.want())
	if err == nil {
		m.h.Store(h)
	}
	return err
}

// Unlock unlocks m. It panics if m is not locked. It waits for the store's answer for at most a third of the TTL; after
// that the release goes on in the background. If the session was lost, or the grace of a lost hold is over, Unlock
// sends nothing.
//
// If nobody waits for the key, Unlock returns when the primary has made the release; unlike [Hold.Release], it does
// not wait for a majority of the members. If a fail-over undoes the release, nobody else is let in: the key stays
// held until this session's next heartbeat or Lock, or until the session expires.
func (m *Mutex) Unlock() { m.unlock(driver.Release{Early: true}).Finish() }

// Lost is [Hold.Lost] of the hold that Lock, LockContext, TryLock or Do took. If m is not locked, the channel is
// closed.
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.hold(); h != nil {
		return h.Lost()
	}
	return closedChan
}

// Token is [Hold.Token] of the hold that Lock, LockContext, TryLock or Do took, or 0 if m is not locked.
func (m *Mutex) Token() int64 {
	if h := m.hold(); h != nil {
		return h.Token()
	}
	return 0
}

// Do locks m, calls f on the calling goroutine, and unlocks m when f returns, panics or calls
// runtime.Goexit. ctx bounds the wait for the lock. The context passed to f ends with ctx and with the
// hold, which [HoldFrom] returns; if the hold ended it, the cause is [ErrLost].
//
// If locking fails, Do returns the error of [Mutex.LockContext] and does not call f. Otherwise it
// returns f's error, joined with ErrLost if the hold ended before f returned.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	h, err := m.acquire(ctx, m.want())
	if err != nil {
		return err
	}
	m.h.Store(h)
	return scope(ctx, m.s, h, m.unlock, f)
}

// Hold acquires the key and returns the hold, which is released by [Hold.Release]; m itself is not locked. ctx bounds
// only the wait. Errors are those of [Mutex.LockContext].
func (m *Mutex) Hold(ctx context.Context) (*Hold, error) { return newHold(m.acquire(ctx, m.want())) }

// TryHold acquires the key if that is possible without waiting. If somebody holds the key or waits for
// it, the error is a [*HeldError], which matches [ErrHeld]; no other error does. TryHold expires lapsed sessions of
// holders and waiters.
func (m *Mutex) TryHold(ctx context.Context) (*Hold, error) {
	return newHold(m.tryAcquire(ctx, m.want()))
}

// ForceHold acquires the key ahead of all waiters. The present holders are notified (Lost closes, with the cause
// [ErrRevoked]), at the latest with their process's next heartbeat; then they have their session's grace to stop and
// release. If a process cannot be reached, ForceHold waits until its session expires, or its lease ends. The later of
// two ForceHolds wins, even before the earlier has returned. ctx and errors are as in Hold.
func (m *Mutex) ForceHold(ctx context.Context) (*Hold, error) {
	w := m.want()
	w.First = true
	return newHold(m.acquire(ctx, w))
}

// Lease acquires the key for d, as a lease: a hold of a fixed duration, which no heartbeat renews. It ends by itself,
// whatever happens to its process and session, and need not be released. [Hold.Extend] renews it. The lease ends for
// its holder before it ends in the store. The difference is the session's margin plus its grace, each at most d/10 if
// [Options] leaves it out. d must be longer than twice the difference, at least 1 s, and whole milliseconds.
//
// [Session.Close] ends the lease for its holder but leaves the key held, as a crash would. ctx bounds
// only the wait. Errors are those of Hold.
func (m *Mutex) Lease(ctx context.Context, d time.Duration) (*Hold, error) {
	w, err := m.wantLease(d)
	if err != nil {
		return nil, err
	}
	return newHold(m.acquire(ctx, w))
}

// TryLease is [Mutex.Lease] without the wait. Errors are those of Lease and [Mutex.TryHold].
func (m *Mutex) TryLease(ctx context.Context, d time.Duration) (*Hold, error) {
	w, err := m.wantLease(d)
	if err != nil {
		return nil, err
	}
	return newHold(m.tryAcquire(ctx, w))
}

func (m *Mutex) wantLease(d time.Duration) (engine.Want, error) {
	w := m.want()
	w.Lease = d
	reserve := m.session().Reserve(d)
	switch {
	case d < time.Second:
		return w, fmt.Errorf("dsync: lease of %q for %v: the time must be at least 1s", m.key, d)
	case d <= 2*reserve:
		return w, fmt.Errorf("dsync: lease of %q for %v: the time must be more than %v, twice the session's margin and grace", m.key, d, 2*reserve)
	case d > driver.MaxDuration:
		return w, fmt.Errorf("dsync: lease of %q for %v: the time must be at most %v", m.key, d, driver.MaxDuration)
	case d%time.Millisecond != 0:
		return w, fmt.Errorf("dsync: lease of %q for %v: the time must be whole milliseconds", m.key, d)
	}
	return w, nil
}

// HoldChan acquires the key like [Mutex.Hold], but in the background, for a select statement:
//
//	ctx, cancel := context.WithCancel(ctx)
//	defer cancel()
//	select {
//	case <-done:
//	case h := <-mu.HoldChan(ctx):
//		if h != nil {
//			defer h.Release(ctx)
//		}
//	}
//
// The hold is sent on the channel, which is unbuffered. If Hold would return an error, the channel
// is closed without a value. If nobody receives the hold before ctx ends, it is released; if it is
// lost before that, the key is acquired again. Each call acquires the key once: call HoldChan
// before a loop, not in it.
func (m *Mutex) HoldChan(ctx context.Context) <-chan *Hold {
	m.session()
	ch := make(chan *Hold)
	go func() {
		defer close(ch)
		for {
			h, err := m.Hold(ctx)
			if err != nil {
				if ctx.Err() == nil {
					m.s.Warn("dsync: not acquired", "key", m.key, "err", err)
				}
				return
			}
			select {
			case ch <- h:
				return
			case <-ctx.Done():
			case <-h.Lost(): // another process may have it by now
			}
			h.h.Unlock(driver.Release{}).Finish()
		}
	}()
	return ch
}

func newHold(h *engine.Hold, err error) (*Hold, error) {
	if err != nil {
		return nil, err
	}
	return &Hold{h: h}, nil
}

func (m *Mutex) acquire(ctx context.Context, w engine.Want) (*engine.Hold, error) {
	h, err := m.session().Acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("dsync: lock %q: %w", m.key, err)
	}
	return h, nil
}

func (m *Mutex) tryAcquire(ctx context.Context, w engine.Want) (*engine.Hold, error) {
	h, err := m.session().TryAcquire(ctx, w)
	if err != nil {
		return nil, engine.TryError("lock", m.key, err)
	}
	return h, nil
}

func (m *Mutex) hold() *engine.Hold {
	m.session()
	return m.h.Load()
}

func (m *Mutex) unlock(o driver.Release) engine.Releasing {
	h := m.h.Swap(nil)
	if h == nil {
		m.session()
		panic(fmt.Sprintf("dsync: unlock of unlocked %s %q", m.kind, m.key))
	}
	return h.Unlock(o)
}
