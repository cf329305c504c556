package dsync

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Semaphore is a weighted semaphore between processes, made by [Session.Semaphore]. The holders in
// all processes together hold at most its size. It has the methods of
// [golang.org/x/sync/semaphore.Weighted].
//
//	h, err := slots.Hold(ctx, 1) // one of the slots, as a value
//	if err != nil {
//		return err
//	}
//	defer h.Release(context.WithoutCancel(ctx))
//
// Each hold can be lost: see [Hold]. Lost units are free for others after the grace, even in this process, whether or
// not they are released.
//
// Waiters are served in FIFO order. A waiter that needs few units does not overtake one that needs
// many, so large requests do not starve.
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

// String returns the kind and the key, such as `semaphore "workers"`.
func (m *Semaphore) String() string { return fmt.Sprintf("%s %q", driver.KindSemaphore, m.key) }

// Hold acquires n units, waiting until they are free, and returns the hold, which is released by [Hold.Release]. ctx
// bounds only the wait. It is an error if n is less than 1 or more than the size. Other errors are those of
// [Mutex.LockContext]. [ErrMismatch] also means that the key is in use with another size; the error names both sizes.
func (m *Semaphore) Hold(ctx context.Context, n int64) (*Hold, error) {
	return newHold(m.acquire(ctx, n))
}

// TryHold acquires n units if that is possible without waiting. Errors are those of Hold and [Mutex.TryHold].
func (m *Semaphore) TryHold(ctx context.Context, n int64) (*Hold, error) {
	return newHold(m.tryAcquire(ctx, n))
}

// Do acquires n units, calls f, and releases them when f returns, panics or calls runtime.Goexit: see [Mutex.Do].
func (m *Semaphore) Do(ctx context.Context, n int64, f func(context.Context) error) error {
	h, err := m.acquire(ctx, n)
	if err != nil {
		return err
	}
	return scope(ctx, m.s, h, h.Unlock, f)
}

// Acquire acquires n units like Hold, for [Semaphore.Release]. Unlike Hold and Do, it does not show a loss.
func (m *Semaphore) Acquire(ctx context.Context, n int64) error {
	h, err := m.acquire(ctx, n)
	if err == nil {
		m.holds.add(h, n)
	}
	return err
}

// TryAcquire acquires n units for [Semaphore.Release], if that is possible without waiting, and reports
// whether it did. [Semaphore.TryHold] returns the reason.
func (m *Semaphore) TryAcquire(n int64) bool {
	h, err := m.tryAcquire(context.Background(), n)
	if err == nil {
		m.holds.add(h, n)
	}
	return err == nil
}

// Release releases n units from Acquire or TryAcquire, those of lost holds first. The units of one Acquire become
// free together, when the last of them is released. Release panics if n is less than 1 or more than m holds. It waits
// for the store like [Mutex.Unlock].
func (m *Semaphore) Release(n int64) {
	m.session()
	done, ok := m.holds.take(n)
	if !ok {
		panic(fmt.Sprintf("dsync: semaphore %q: %d released, which is more than it holds, or less than 1", m.key, n))
	}
	var all []engine.Releasing
	for _, h := range done {
		all = append(all, h.Unlock(driver.Release{Early: true}))
	}
	engine.FinishAll(all)
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
	return h, nil
}

func (m *Semaphore) tryAcquire(ctx context.Context, n int64) (*engine.Hold, error) {
	w, err := m.want(n)
	if err != nil {
		return nil, err
	}
	h, err := m.s.TryAcquire(ctx, w)
	if err != nil {
		return nil, engine.TryError(fmt.Sprintf("acquire %d of semaphore", n), m.key, err)
	}
	return h, nil
}

func (m *Semaphore) want(n int64) (engine.Want, error) {
	m.session()
	w := engine.Want{Key: m.key, Kind: driver.KindSemaphore, Weight: n, Limit: m.size.Load()}
	if n < 1 || n > w.Limit {
		return w, fmt.Errorf("dsync: acquire %d of semaphore %q: it must be from 1 to its size %d", n, m.key, w.Limit)
	}
	return w, nil
}

// Resize changes the size of the semaphore for all processes, including those that still use the former size. So a
// new version of a program can run beside the old one, if it calls Resize first. A smaller size takes effect as
// present holders release.
//
// The store knows at least the last 8 sizes, until [Options].Retention after the key's last use. Resize makes one
// attempt and may be repeated. The error is ctx's, [ErrClosed], [ErrMismatch] if the key is in use as another kind,
// [ErrRefused] if somebody waits for more than the new size, or another error of the store.
func (m *Semaphore) Resize(ctx context.Context, size int64) error {
	s := m.session()
	if size < 1 {
		return fmt.Errorf("dsync: resize semaphore %q to %d: it must be at least 1", m.key, size)
	}
	from := m.size.Load()
	if err := s.Resize(ctx, m.key, driver.KindSemaphore, from, size); err != nil {
		return fmt.Errorf("dsync: resize semaphore %q to %d: %w", m.key, size, err)
	}
	m.size.Store(size)
	return nil
}
