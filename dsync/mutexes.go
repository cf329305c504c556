package dsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Mutexes locks the mutexes of several keys together. It is a [sync.Locker] with the methods of
// [Mutex], and excludes every Mutex and Mutexes that has one of its keys.
//
// Whoever locks several keys of which others lock some must do it in the same order as they do, or
// all of them may wait forever. A Mutexes locks in the byte order of the keys, in every process. A
// failed TryLock leaves nothing locked, and [Mutexes.Lost] is closed when the first hold is lost.
//
// Locking takes a command for each key, one after the other. While it waits for a key, it holds
// those before it. If it loses one of them meanwhile, it releases all and begins again. So Lock and
// LockContext never return with a part of the keys, and need no error for it.
//
// Make a Mutexes with [Session.Mutexes]; using a zero Mutexes panics. It must not be copied. All
// methods may be called concurrently. There is no ForceLock: two of them could take keys from each
// other in turns and never have all. [Session.Break] takes a single key.
type Mutexes struct {
	s     *engine.Session
	keys  []string // in order, each once
	holds heldUnits
}

// Mutexes returns an unlocked [Mutexes] for keys, whose order does not matter. A key that is given
// twice counts once. Mutexes panics if there are no keys, or if [CheckKey] returns an error for one.
func (s *Session) Mutexes(keys ...string) *Mutexes {
	if len(keys) == 0 {
		panic("dsync: Mutexes without keys; it needs at least one")
	}
	for _, key := range keys {
		mustKey(key)
	}
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return &Mutexes{s: s.engine, keys: slices.Compact(keys)}
}

func (m *Mutexes) session() *engine.Session {
	if m.s == nil {
		panic("dsync: use of a zero Mutexes; make one with Session.Mutexes")
	}
	return m.s
}

// Keys returns the keys, each once, in the order in which they are locked.
func (m *Mutexes) Keys() []string { return slices.Clone(m.keys) }

// String returns the kind and the keys, such as `mutexes ["a" "b"]`.
func (m *Mutexes) String() string { return fmt.Sprintf("mutexes %q", m.keys) }

// name returns the keys for logs.
func (m *Mutexes) name() string { return strings.Join(m.keys, ", ") }

// Lock locks all keys, waiting for each until it is free. It logs and panics as [Mutex.Lock] does.
func (m *Mutexes) Lock() { m.session().Forever(m.name(), m.LockContext) }

// LockContext locks all keys like Lock, but gives up when ctx ends. Then nothing stays locked; the
// releases go on in the background. ctx bounds only the wait. Errors are those of
// [Mutex.LockContext], for the first key that could not be locked.
func (m *Mutexes) LockContext(ctx context.Context) error {
	_, err := m.lock(ctx)
	return err
}

func (m *Mutexes) lock(ctx context.Context) (*Mutexes, error) {
	s := m.session()
	for {
		got, err := m.acquire(ctx, s.Acquire)
		if err == nil {
			m.add(got)
			return m, nil
		}
		release(got, driver.Leave{})
		if !errors.Is(err, errPartLost) {
			return nil, err
		}
	}
}

// errPartLost means that a hold was lost before all keys were locked.
var errPartLost = fmt.Errorf("%w before all keys were locked", ErrLost)

// acquire locks the keys one after the other. With an error it returns those that were locked. The wait for a key
// ends when one before it is lost: others may have that by now, and this process must not keep them from the rest.
func (m *Mutexes) acquire(ctx context.Context, acquire func(context.Context, engine.Want) (*engine.Hold, error)) (got []*engine.Hold, err error) {
	wait := ctx
	for _, key := range m.keys {
		h, err := acquire(wait, engine.Whole(key, driver.KindMutex))
		if err == nil {
			got = append(got, h)
			c, cancel := h.Context(wait)
			defer cancel(context.Canceled)
			wait = c
		}
		if ctx.Err() == nil && slices.ContainsFunc(got, func(h *engine.Hold) bool { return !h.Live() }) {
			return got, errPartLost
		}
		if errors.Is(err, ErrHeld) {
			return got, err // it names the key
		}
		if err != nil {
			return got, fmt.Errorf("dsync: lock %q: %w", key, err)
		}
	}
	return got, nil
}

// add makes the holds those of m, which has none: nobody else has them.
func (m *Mutexes) add(got []*engine.Hold) {
	for _, h := range got {
		m.holds.add(h, 1)
	}
}

// release releases the holds, the last one first: a waiter that locks the same keys then finds the others free when
// it has the first.
func release(holds []*engine.Hold, o driver.Leave) (all []engine.Releasing) {
	for _, h := range slices.Backward(holds) {
		all = append(all, h.Unlock(o))
	}
	return all
}

// TryLock tries to lock all keys and reports whether it succeeded. If not, nothing stays locked.
// [Mutexes.TryLockContext] says why not.
func (m *Mutexes) TryLock() bool { return m.TryLockContext(context.Background()) == nil }

// TryLockContext locks all keys if that is possible without waiting for others. Otherwise it locks
// none, but others may have found some of the keys held in the meantime. Errors are those of
// [Mutex.TryLockContext], for the first key that could not be locked, and [ErrLost] if one was lost
// before all were locked.
func (m *Mutexes) TryLockContext(ctx context.Context) error {
	s := m.session()
	got, err := m.acquire(ctx, s.TryAcquire)
	if err == nil {
		m.add(got)
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, s.TTL()/3)
	defer cancel()
	for _, r := range release(got, driver.Leave{}) {
		r.Wait(wait)
	}
	return err
}

// Unlock unlocks all keys. It panics if m is not locked. Holds that were lost need no release. It
// waits like [Mutex.Unlock], for at most a third of the TTL in all.
func (m *Mutexes) Unlock() { engine.FinishAll(m.s, m.name(), m.unlock(driver.Leave{Early: true})) }

// UnlockContext unlocks all keys and waits like [Mutex.UnlockContext]. ctx bounds only the wait.
// Errors are those of Mutex.UnlockContext, joined: [ErrLost] if one of the holds had ended before.
func (m *Mutexes) UnlockContext(ctx context.Context) error {
	return m.unlocked(ctx, driver.Leave{})
}

// UnlockAfter unlocks all keys in this process but keeps them held for d from now: see
// [Mutex.UnlockAfter].
func (m *Mutexes) UnlockAfter(ctx context.Context, d time.Duration) error {
	if err := checkKeep(m.String(), d); err != nil {
		return err
	}
	return m.unlocked(ctx, driver.Leave{Keep: d})
}

func (m *Mutexes) unlocked(ctx context.Context, o driver.Leave) error {
	var errs []error
	for _, r := range m.unlock(o) {
		if err := r.Wait(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("dsync: unlock %v: %w", m, errors.Join(errs...))
	}
	return nil
}

func (m *Mutexes) unlock(o driver.Leave) []engine.Releasing {
	m.session()
	done, ok := m.holds.take(int64(len(m.keys)))
	if !ok {
		panic("dsync: unlock of unlocked " + m.String())
	}
	return release(done, o)
}

// Lost returns a channel that is closed when the first of the holds is lost, and just before Unlock
// releases them. It belongs to one locking; the next Lock makes another. If m is not locked, the
// channel is closed.
//
// The other keys stay held until Unlock. Call it soon: the work can't go on, and others wait.
func (m *Mutexes) Lost() <-chan struct{} {
	m.session()
	return m.holds.lost()
}

// Context returns a context that ends with ctx, and when the channel that Lost returns is closed.
// See [Mutex.Context].
func (m *Mutexes) Context(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	m.session()
	return m.holds.context(ctx)
}

// Token returns the fencing token of the hold of key, which is greater than that of every earlier
// hold of that key; tokens of different keys are not related. It returns 0 if m is not locked or
// one of its holds is lost. It panics if key is not one of Keys.
func (m *Mutexes) Token(key string) int64 {
	m.session()
	if !slices.Contains(m.keys, key) {
		panic(fmt.Sprintf("dsync: token of %q, which is not one of %v", key, m))
	}
	return m.holds.tokenOf(key)
}

// Held reports whether m is locked and none of its holds is lost. It checks the local clock and
// sends no command.
func (m *Mutexes) Held() bool {
	m.session()
	return m.holds.tokenOf(m.keys[0]) != 0
}

// Do locks m, calls f on the calling goroutine, and unlocks m when f returns, panics or calls
// runtime.Goexit: see [Mutex.Do]. The context passed to f ends when the first of the holds does.
func (m *Mutexes) Do(ctx context.Context, f func(context.Context) error) error {
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	return do(ctx, m.s, m.name(), m.Context, m.UnlockContext, f)
}

// LockChan locks m in the background: see [Mutex.LockChan].
func (m *Mutexes) LockChan(ctx context.Context) <-chan bool {
	return offer(ctx, m.session(), m.name(), m.lock, m.Unlock)
}
