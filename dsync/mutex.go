package dsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Mutex is a mutual exclusion lock between processes. It is a [sync.Locker]
// with the method set of [sync.Mutex], and forms of it with a context.
//
// Make one with [Session.Mutex]; a zero Mutex panics when it is used. It must
// not be copied. All mutexes of one key exclude each other; a Mutex value is
// locked by whoever locked it, and like a sync.Mutex may be unlocked by another
// goroutine. All methods may be called concurrently.
//
// Unlike a sync.Mutex, a hold can be lost: when the process can't reach the store
// for most of the session's TTL, or was frozen for that long. [Mutex.Lost] tells,
// at least the session's grace before anyone else can hold the key. A Mutex that
// lost its hold stays locked in this process until its Unlock, so that a late
// Unlock can't free somebody's newer hold.
type Mutex struct {
	s     *Session
	key   string
	kind  Kind
	limit int64 // it has all of it

	mu sync.Mutex
	h  *hold // nil: unlocked
}

var (
	_ sync.Locker = (*Mutex)(nil)

	closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
)

// want is all of the key.
func (m *Mutex) want() want {
	return want{key: m.key, kind: m.kind, weight: m.limit, limit: m.limit}
}

func (m *Mutex) session() *Session {
	if m.s == nil {
		panic("dsync: use of a zero Mutex; make one with Session.Mutex")
	}
	return m.s
}

// Key returns the key.
func (m *Mutex) Key() string { return m.key }

// Lock locks m. If the key is held, here or in another process, it waits in line
// until it is free. While the store can't be reached or refuses, it waits and
// logs, and never panics. On a closed session it blocks for ever, as it can
// neither lock nor fail.
func (m *Mutex) Lock() { m.session().lock(m.key, m.LockContext) }

// LockContext locks m like Lock, but gives up when ctx ends. ctx bounds the wait
// only: a hold does not end with it. Its values are not used; in particular a
// transaction in it is not joined.
//
// The error is ctx's, with the store's last error added if there was one, so
// errors.Is finds both; [ErrClosed]; [ErrMismatch] if the key is in use as
// another kind; or [ErrRefused]. Other errors of the store are waited out.
func (m *Mutex) LockContext(ctx context.Context) error {
	return m.lock(ctx, m.want())
}

// ForceLock locks m, ahead of all who wait, and asks those that hold the key to
// give it up: each is told (its Lost closes, with [ErrRevoked] as the cause), and
// has its session's grace to stop, or until it unlocks. It is not taken from
// anyone who was not told: of a process that can't be reached it is free when its
// session has lapsed, of a [Lease] without its process when that is over. A hold in
// this process must be unlocked as well, as for Lock. ctx and errors are those of
// LockContext.
//
// A process is told at once, where the store can notify it, else with its next heartbeat.
func (m *Mutex) ForceLock(ctx context.Context) error {
	w := m.want()
	w.first = true
	return m.lock(ctx, w)
}

func (m *Mutex) lock(ctx context.Context, w want) error {
	h, err := m.session().acquire(ctx, w)
	if err != nil {
		return fmt.Errorf("dsync: lock %q: %w", w.key, err)
	}
	m.locked(h)
	return nil
}

// TryLock tries to lock m and reports whether it succeeded: false if the key is
// held, if anyone waits for it, or if the store did not answer, which
// [Mutex.TryLockContext] tells apart.
func (m *Mutex) TryLock() bool { return m.TryLockContext(context.Background()) == nil }

// TryLockContext locks m if that is possible without waiting for its holder. If
// the key is held the error is a [*HeldError], which is [ErrHeld]; other errors
// are ctx's, [ErrClosed], and the store's, which never pass for ErrHeld. A holder
// that has lapsed does not count: its session is buried, and m locked.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	h, err := m.session().tryAcquire(ctx, m.want())
	if err != nil {
		return tryError("lock", m.key, err)
	}
	m.locked(h)
	return nil
}

// tryError names what was tried; a *HeldError says all that by itself.
func tryError(what, key string, err error) error {
	if errors.Is(err, ErrHeld) {
		return err
	}
	return fmt.Errorf("dsync: try to %s %q: %w", what, key, err)
}

func (m *Mutex) locked(h *hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.h = h
}

func (m *Mutex) hold() *hold {
	m.session()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.h
}

// Unlock unlocks m. It panics if m is not locked; if the hold was lost it does
// nothing to the store. It waits for the release at most a third of the TTL, as
// when the store can't be reached; the release goes on in the background.
func (m *Mutex) Unlock() { m.unlock(Outcome{}).finish(m.s, m.key) }

// UnlockContext unlocks m like Unlock. ctx bounds only the wait for the release,
// which goes on in the background until the store has answered. The error is
// [ErrLost] if the hold had ended before, or ctx's.
func (m *Mutex) UnlockContext(ctx context.Context) error {
	return m.unlocked(ctx, Outcome{})
}

// UnlockAfter unlocks m in this process, but keeps the key held for d from now on,
// by the store's clock and without this process, which may end: a job that must
// not run twice within d, on hosts whose clocks differ, unlocks with it. d is at
// least a millisecond. Until the error is nil the key may be held for as long as
// the session lives only. Errors are those of UnlockContext.
func (m *Mutex) UnlockAfter(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond {
		return fmt.Errorf("dsync: unlock %q after %v: it must be at least 1ms; Unlock frees it now", m.key, d)
	}
	return m.unlocked(ctx, Outcome{Keep: d})
}

func (m *Mutex) unlock(o Outcome) release {
	m.session()
	m.mu.Lock()
	h := m.h
	m.h = nil
	m.mu.Unlock()
	if h == nil {
		panic(fmt.Sprintf("dsync: unlock of unlocked %s %q", m.kind, m.key))
	}
	return h.unlock(o)
}

func (m *Mutex) unlocked(ctx context.Context, o Outcome) error {
	if err := m.unlock(o).wait(ctx); err != nil {
		return fmt.Errorf("dsync: unlock %q: %w", m.key, err)
	}
	return nil
}

// Lost returns a channel that is closed when the hold ends: when it is lost, and
// just before Unlock releases it. It belongs to one hold; after the next Lock
// there is another. Of a mutex that is not locked it is closed.
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.hold(); h != nil {
		return h.lost()
	}
	return closedChan
}

// Context returns a context that ends with ctx and with the hold, as that of f in
// [Mutex.Do] does: its cause is then [ErrLost], or [context.Canceled] if the hold was
// released. Its Err compares the clock, so that the first look after a freeze tells of
// a loss. Of a mutex that is not locked it has ended. Call cancel when the work is
// done.
func (m *Mutex) Context(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	h := m.hold()
	if h == nil {
		return endedContext(ctx), func() {}
	}
	c, end := h.context(ctx)
	return c, func() { end(context.Canceled) }
}

// Token returns the fencing token of the hold: greater than that of any earlier
// hold of the key, by anyone. It is 0 if m is not locked or the hold is lost.
func (m *Mutex) Token() int64 {
	if h := m.hold(); h != nil {
		return h.fencing()
	}
	return 0
}

// Owned reports whether m is locked and its hold goes on, by a look at the clock:
// it asks nobody.
func (m *Mutex) Owned() bool {
	h := m.hold()
	return h != nil && h.live()
}

// Locked reports whether anybody holds the key, by asking the store: somebody
// whose session and lease have not lapsed, this process included. The answer may
// be out of date when it arrives. Errors are those of [Session.Status], which tells
// who it is.
func (m *Mutex) Locked(ctx context.Context) (bool, error) {
	st, err := m.session().Status(ctx, m.key)
	return st.Held(), err
}

// Do locks m, calls f on the calling goroutine, and unlocks m when f returns,
// panics or calls runtime.Goexit. The context of f ends with ctx and with the
// hold; its cause is then [ErrLost]. ctx bounds the wait for the lock, too.
//
// The error is that of [Mutex.LockContext], and f was not called, or f's, joined
// with ErrLost if the hold ended before f returned.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) (err error) {
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	c, cancel := m.hold().context(ctx)
	defer func() {
		cancel(context.Canceled)
		unlock, cancel := context.WithTimeout(context.Background(), m.s.opt.TTL/3)
		defer cancel()
		if uerr := m.UnlockContext(unlock); errors.Is(uerr, ErrLost) {
			err = errors.Join(err, uerr)
		} else if uerr != nil {
			m.s.warn("dsync: Unlock", "key", m.key, "err", uerr)
		}
	}()
	return f(c)
}
