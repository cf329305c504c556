package dsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Mutex is a mutual exclusion lock between processes. It is a [sync.Locker], has the methods
// of [sync.Mutex], and adds forms of them that take a context.
//
// Make a Mutex with [Session.Mutex]; using a zero Mutex panics. It must not be copied. All
// Mutexes of one key exclude each other. As with sync.Mutex, a Mutex may be unlocked by another
// goroutine than the one that locked it. All methods may be called concurrently.
//
// Unlike a sync.Mutex, a Mutex can lose its hold: when the process cannot reach the store for
// most of the session's TTL, or is frozen for that long. [Mutex.Lost] signals the loss at least
// the session's grace before anyone else can hold the key. A Mutex that lost its hold stays
// locked in this process until Unlock is called, so a late Unlock cannot release somebody's
// newer hold.
type Mutex struct {
	s     *engine.Session
	key   string
	kind  driver.Kind
	limit int64 // of the key; a Mutex takes all of it

	mu sync.Mutex
	h  *engine.Hold // nil: unlocked
}

var (
	_ sync.Locker = (*Mutex)(nil)

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

// Key returns the key.
func (m *Mutex) Key() string { return m.key }

// String returns the kind and the key, such as `mutex "invoices"`.
func (m *Mutex) String() string { return fmt.Sprintf("%s %q", m.kind, m.key) }

// Lock locks m. If the key is held, in this process or another, Lock waits until it is free.
// While the store cannot be reached or refuses, Lock logs and keeps waiting. It panics for what
// waiting cannot fix and [Mutex.LockContext] returns as an error: if the session is closed, and
// if the key is in use as another kind. A Lock that waits when the session is closed never
// returns.
func (m *Mutex) Lock() { m.session().Forever(m.key, m.LockContext) }

// LockContext locks m like Lock, but gives up when ctx ends. ctx bounds only the wait: the hold
// does not end with it. The store gets none of the values of ctx, so LockContext does not join a
// transaction that ctx carries. [Hooks].Granted gets ctx, for a tracer.
//
// The error is that of ctx, with the store's last error added if there was one, so errors.Is
// finds both; [ErrClosed]; [ErrMismatch] if the key is in use as another kind; or [ErrRefused].
// LockContext keeps trying after other errors of the store.
func (m *Mutex) LockContext(ctx context.Context) error {
	_, err := m.lock(ctx, m.want())
	return err
}

// ForceLock locks m ahead of all waiters, and asks the present holders to give up the key. A
// holder is notified (its Lost channel closes, and the cause is [ErrRevoked]) and then has its
// session's grace to stop and unlock. The key is never taken from a holder that was not
// notified: if its process cannot be reached, ForceLock waits until its session expires, or,
// for a [Lease], until the lease is over. A hold in this process must be unlocked too, as for
// Lock. Of two ForceLocks the later one wins: the hold of the earlier may have ended when it returns.
// ctx and errors are as in LockContext.
//
// A process that listens for notices is notified at once, any other with its next heartbeat.
func (m *Mutex) ForceLock(ctx context.Context) error {
	w := m.want()
	w.First = true
	_, err := m.lock(ctx, w)
	return err
}

func (m *Mutex) lock(ctx context.Context, w engine.Want) (*engine.Hold, error) {
	h, err := m.session().Acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("dsync: lock %q: %w", w.Key, err)
	}
	m.locked(h)
	return h, nil
}

// TryLock tries to lock m and reports whether it succeeded. It returns false if the key is
// held, if somebody waits for it, or if the store did not answer; [Mutex.TryLockContext]
// distinguishes these.
func (m *Mutex) TryLock() bool { return m.TryLockContext(context.Background()) == nil }

// TryLockContext locks m if that is possible without waiting. If somebody holds the key or
// waits for it, the error is a [*HeldError], which matches [ErrHeld]. Other errors are those of
// ctx, [ErrClosed] and those of the store; none of them matches ErrHeld. Holders and waiters
// whose session has lapsed are not waited for: TryLockContext expires those sessions and tries
// again.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	h, err := m.session().TryAcquire(ctx, m.want())
	if err != nil {
		return engine.TryError("lock", m.key, err)
	}
	m.locked(h)
	return nil
}

func (m *Mutex) locked(h *engine.Hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.h = h
}

func (m *Mutex) hold() *engine.Hold {
	m.session()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.h
}

// Unlock unlocks m. It panics if m is not locked. If the hold was lost, Unlock sends nothing to
// the store. Unlock waits for the store's answer for at most a third of the TTL; after that the
// release goes on in the background.
//
// If nobody waits for the key, Unlock returns when the primary has made the release, and does not wait for
// a majority of the members, as UnlockContext does. If the primary then fails before it has passed the
// release on, the key is still held until this session's next heartbeat has reached the new primary, or sooner if the
// session asks for the key again; or, if this process ends in that moment too, until the session expires. Nobody else
// is let in by it.
func (m *Mutex) Unlock() { m.unlock(driver.Leave{Early: true}).Finish(m.s, m.key) }

// UnlockContext unlocks m and returns when no fail-over can undo the release: use it to tell others that the
// key is free. ctx bounds only the wait for the store's answer; the
// release goes on in the background until the store has answered. The error is [ErrLost] if the
// hold had ended before, that of ctx, or [ErrRefused].
func (m *Mutex) UnlockContext(ctx context.Context) error {
	return m.unlocked(ctx, driver.Leave{})
}

// UnlockAfter unlocks m in this process but keeps the key held for d from now, by the store's
// clock. The key stays held even if this process ends. Use it for a job that must not run twice
// within d although hosts' clocks differ. d must be from 1 ms to [MaxDuration]; otherwise
// UnlockAfter returns an error and m stays locked. If UnlockAfter returns any other error, the
// key may be released as soon as the session ends. Errors are those of UnlockContext.
func (m *Mutex) UnlockAfter(ctx context.Context, d time.Duration) error {
	if err := checkKeep(fmt.Sprintf("%q", m.key), d); err != nil {
		return err
	}
	return m.unlocked(ctx, driver.Leave{Keep: d})
}

// checkKeep returns an error if d is no time for UnlockAfter.
func checkKeep(what string, d time.Duration) error {
	switch {
	case d < time.Millisecond:
		return fmt.Errorf("dsync: unlock %s after %v: it must be at least 1ms; Unlock frees it now", what, d)
	case d > MaxDuration:
		return fmt.Errorf("dsync: unlock %s after %v: it must be at most %v", what, d, MaxDuration)
	}
	return nil
}

func (m *Mutex) unlock(o driver.Leave) engine.Releasing {
	m.session()
	m.mu.Lock()
	h := m.h
	m.h = nil
	m.mu.Unlock()
	if h == nil {
		panic(fmt.Sprintf("dsync: unlock of unlocked %s %q", m.kind, m.key))
	}
	return h.Unlock(o)
}

func (m *Mutex) unlocked(ctx context.Context, o driver.Leave) error {
	if err := m.unlock(o).Wait(ctx); err != nil {
		return fmt.Errorf("dsync: unlock %q: %w", m.key, err)
	}
	return nil
}

// Lost returns a channel that is closed when the hold ends: when it is lost, and just before
// Unlock releases it. The channel belongs to one hold; the next Lock makes another. If m is not
// locked, the channel is closed.
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.hold(); h != nil {
		return h.Lost()
	}
	return closedChan
}

// Context returns a context that ends with ctx and with the hold, like the context that
// [Mutex.Do] passes to its function. If the hold ended it, the cause is [ErrLost], or
// [context.Canceled] if the hold was released. Its Err method checks the clock, so the first
// call after a freeze reports a loss. If m is not locked, the context has already ended. Call
// cancel when the work is done.
func (m *Mutex) Context(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	h := m.hold()
	if h == nil {
		return engine.EndedContext(ctx, engine.ErrLost), func() {}
	}
	c, end := h.Context(ctx)
	return c, func() { end(context.Canceled) }
}

// Token returns the fencing token of the hold, which is greater than that of every earlier hold
// of the key, by any process. It returns 0 if m is not locked or the hold is lost.
func (m *Mutex) Token() int64 {
	if h := m.hold(); h != nil {
		return h.Token()
	}
	return 0
}

// Held reports whether m is locked and its hold is not lost. It checks the local clock and
// sends no command.
func (m *Mutex) Held() bool {
	h := m.hold()
	return h != nil && h.Live()
}

// Do locks m, calls f on the calling goroutine, and unlocks m when f returns, panics or calls
// runtime.Goexit. ctx bounds the wait for the lock. The context passed to f ends with ctx and
// with the hold; if the hold ended it, the cause is [ErrLost].
//
// If locking fails, Do returns the error of [Mutex.LockContext] and does not call f. Otherwise
// it returns f's error, joined with ErrLost if the hold ended before f returned.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	return do(ctx, m.s, m.key, m.Context, m.UnlockContext, f)
}

// do calls f with a context of what is locked, and then unlocks it.
func do(ctx context.Context, s *engine.Session, key string, scope func(context.Context) (context.Context, context.CancelFunc),
	unlock, f func(context.Context) error) (err error) {
	c, cancel := scope(ctx)
	defer func() {
		cancel()
		wait, cancel := context.WithTimeout(context.Background(), s.TTL()/3)
		defer cancel()
		if uerr := unlock(wait); errors.Is(uerr, ErrLost) {
			err = errors.Join(err, uerr)
		} else if uerr != nil {
			s.Warn("dsync: Unlock", "key", key, "err", uerr)
		}
	}()
	return f(c)
}
