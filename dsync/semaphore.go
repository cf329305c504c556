package dsync

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Semaphore is a weighted semaphore between processes. The holders in all processes together
// hold at most its size. It has the methods of golang.org/x/sync/semaphore.Weighted, and adds
// forms of them that take a context.
//
// Make a Semaphore with [Session.Semaphore]; using a zero Semaphore panics. It must not be
// copied. All Semaphores of one key share its size. All methods may be called concurrently.
// Each hold can be lost, as described for [Mutex], with one difference: units that were lost
// become free for others after the grace, also in this process, whether or not they are
// released.
//
// Waiters are served in FIFO order. A waiter that needs few units does not overtake one that
// needs many, so large requests do not starve.
type Semaphore struct {
	s     *engine.Session
	key   string
	size  atomic.Int64
	holds heldUnits
}

func (m *Semaphore) session() *engine.Session {
	if m.s == nil {
		panic("dsync: use of a zero Semaphore; make one with Session.Semaphore")
	}
	return m.s
}

// Key returns the key.
func (m *Semaphore) Key() string { return m.key }

// String returns the kind and the key, such as `semaphore "workers"`.
func (m *Semaphore) String() string { return fmt.Sprintf("%s %q", driver.KindSemaphore, m.key) }

// Size returns the size that m uses: the one passed to [Session.Semaphore], or the last that
// [Semaphore.Resize] set through m.
func (m *Semaphore) Size() int64 { return m.size.Load() }

// Acquire acquires n units, waiting until they are free. ctx bounds the wait only. It is an
// error if n is less than 1 or more than the size. Other errors are those of
// [Mutex.LockContext]; if the key is in use with another size, the error is [ErrMismatch] and
// names both sizes.
func (m *Semaphore) Acquire(ctx context.Context, n int64) error {
	_, err := m.acquire(ctx, n)
	return err
}

func (m *Semaphore) acquire(ctx context.Context, n int64) (*engine.Hold, error) {
	w, err := m.want(n)
	if err != nil {
		return nil, err
	}
	h, err := m.s.Acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("dsync: acquire %d of semaphore %q: %w", n, m.key, err)
	}
	m.holds.add(h, n)
	return h, nil
}

// TryAcquire acquires n units if that is possible without waiting, and reports whether it did.
// [Semaphore.TryAcquireContext] says why not.
func (m *Semaphore) TryAcquire(n int64) bool {
	return m.TryAcquireContext(context.Background(), n) == nil
}

// TryAcquireContext acquires n units if that is possible without waiting. Errors are those of
// [Semaphore.Acquire] and [Mutex.TryLockContext].
func (m *Semaphore) TryAcquireContext(ctx context.Context, n int64) error {
	w, err := m.want(n)
	if err != nil {
		return err
	}
	h, err := m.s.TryAcquire(ctx, w)
	if err != nil {
		return engine.TryError(fmt.Sprintf("acquire %d of semaphore", n), m.key, err)
	}
	m.holds.add(h, n)
	return nil
}

func (m *Semaphore) want(n int64) (engine.Want, error) {
	m.session()
	w := engine.Want{Key: m.key, Kind: driver.KindSemaphore, Weight: n, Limit: m.Size()}
	if n < 1 || n > w.Limit {
		return w, fmt.Errorf("dsync: acquire %d of semaphore %q: it must be from 1 to its size %d", n, m.key, w.Limit)
	}
	return w, nil
}

// Release releases n units, those of lost holds first. n need not match one Acquire, but the
// units of one Acquire become free for others only together, when the last of them is released.
// Release panics if n is less than 1 or more than m holds. It waits for the store like
// [Mutex.Unlock], for at most a third of the TTL in all.
func (m *Semaphore) Release(n int64) {
	engine.FinishAll(m.session(), m.key, m.release(n, driver.Leave{Early: true}))
}

// ReleaseContext releases n units and waits like [Mutex.UnlockContext]. ctx bounds only the wait for the store's
// answer. Errors are those of [Mutex.UnlockContext].
func (m *Semaphore) ReleaseContext(ctx context.Context, n int64) error {
	var errs []error
	for _, r := range m.release(n, driver.Leave{}) {
		if err := r.Wait(ctx); err != nil {
			errs = append(errs, fmt.Errorf("dsync: release semaphore %q: %w", m.key, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Semaphore) release(n int64, o driver.Leave) []engine.Releasing {
	m.session()
	done, ok := m.holds.take(n)
	if !ok {
		panic(fmt.Sprintf("dsync: semaphore %q: %d released, which is more than it holds, or less than 1", m.key, n))
	}
	var all []engine.Releasing
	for _, h := range done {
		all = append(all, h.Unlock(o))
	}
	return all
}

// Lost returns a channel that is closed when a hold of m is lost, and when all of m's units
// were released. Lost returns a closed channel until the lost units are released, and then a
// new one. If m holds nothing, the channel is closed. To watch holds one by one, make a
// Semaphore for each.
func (m *Semaphore) Lost() <-chan struct{} {
	m.session()
	return m.holds.lost()
}

// Context returns a context that ends with ctx, and when the channel that Lost returns is
// closed. See [Mutex.Context].
func (m *Semaphore) Context(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	m.session()
	return m.holds.context(ctx)
}

// Token returns the fencing token of m's oldest hold. It returns 0 if m holds nothing or one of
// its holds is lost.
func (m *Semaphore) Token() int64 {
	m.session()
	return m.holds.token()
}

// Resize changes the size of the semaphore for all processes. Processes that still use the
// key's former size, or the size that m had, share the new size from then on. So processes of a
// new version, with a new size, can run beside those of the old version: the first of them
// calls Resize, on a Semaphore made with the old size or with the new one. Present holders keep
// what they hold; a smaller size takes effect as they release.
//
// The store knows former sizes, at least the last 8, as long as the key is in use, and for
// [Options].Retention after that. Resize makes one attempt and may be repeated. The error is
// that of ctx, [ErrClosed], [ErrMismatch] if the key is in use as another kind, [ErrRefused] if
// somebody waits for more than the new size, or another error of the store.
func (m *Semaphore) Resize(ctx context.Context, size int64) error {
	s := m.session()
	if size < 1 {
		return fmt.Errorf("dsync: resize semaphore %q to %d: it must be at least 1", m.key, size)
	}
	from := m.Size()
	if err := s.Resize(ctx, m.key, driver.KindSemaphore, from, size); err != nil {
		return fmt.Errorf("dsync: resize semaphore %q to %d: %w", m.key, size, err)
	}
	m.size.Store(size)
	return nil
}
