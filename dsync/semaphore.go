package dsync

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// A Semaphore is a weighted semaphore between processes: its holders have up to
// its size together, in all processes. Its method set is that of
// golang.org/x/sync/semaphore.Weighted, with forms that take a context.
//
// Make one with [Session.Semaphore]; a zero Semaphore panics when it is used. It
// must not be copied. All Semaphores of one key share its size. All methods may be
// called concurrently. What is said of [Mutex] about losses holds here for each
// hold, except that nobody waits for a Release of what was lost: others may have it
// some time after the grace, in this process too.
//
// Who asks first is served first, also where less would fit already, so that who
// asks for much does not starve.
type Semaphore struct {
	s     *Session
	key   string
	size  atomic.Int64
	holds portions
}

func (m *Semaphore) session() *Session {
	if m.s == nil {
		panic("dsync: use of a zero Semaphore; make one with Session.Semaphore")
	}
	return m.s
}

// Key returns the key.
func (m *Semaphore) Key() string { return m.key }

// Size returns the size that m asks with: what it was made with, or the last that
// [Semaphore.Resize] set through m.
func (m *Semaphore) Size() int64 { return m.size.Load() }

// Acquire acquires n, and waits in line until it is free. ctx bounds the wait
// only. It is an error if n is less than 1 or more than the size; other errors are
// those of [Mutex.LockContext]: [ErrMismatch] names both sizes if the key is in use
// with another.
func (m *Semaphore) Acquire(ctx context.Context, n int64) error {
	w, err := m.want(n)
	if err != nil {
		return err
	}
	h, err := m.s.acquire(ctx, w)
	if err != nil {
		return fmt.Errorf("dsync: acquire %d of semaphore %q: %w", n, m.key, err)
	}
	m.holds.add(h, n)
	return nil
}

// TryAcquire acquires n if that is possible without waiting for anyone, and
// reports whether it did. [Semaphore.TryAcquireContext] tells why not.
func (m *Semaphore) TryAcquire(n int64) bool {
	return m.TryAcquireContext(context.Background(), n) == nil
}

// TryAcquireContext acquires n if that is possible without waiting for anyone.
// Errors are those of [Semaphore.Acquire] and of [Mutex.TryLockContext].
func (m *Semaphore) TryAcquireContext(ctx context.Context, n int64) error {
	w, err := m.want(n)
	if err != nil {
		return err
	}
	h, err := m.s.tryAcquire(ctx, w)
	if err != nil {
		return tryError(fmt.Sprintf("acquire %d of semaphore", n), m.key, err)
	}
	m.holds.add(h, n)
	return nil
}

func (m *Semaphore) want(n int64) (want, error) {
	m.session()
	w := want{key: m.key, kind: KindSemaphore, weight: n, limit: m.Size()}
	if n < 1 || n > w.limit {
		return w, fmt.Errorf("dsync: acquire %d of semaphore %q: it must be from 1 to its size %d", n, m.key, w.limit)
	}
	return w, nil
}

// Release releases n, of what was lost if there is any; it need not be what one
// Acquire acquired, but what one did is free for others when all of that was
// released. It panics if m holds less than n. It waits for the store like
// [Mutex.Unlock].
func (m *Semaphore) Release(n int64) {
	for _, r := range m.release(n) {
		r.finish(m.s, m.key)
	}
}

// ReleaseContext is Release. ctx bounds only the wait for the store's answer. The
// error is [ErrLost] if a hold had ended before, or ctx's.
func (m *Semaphore) ReleaseContext(ctx context.Context, n int64) error {
	var errs []error
	for _, r := range m.release(n) {
		if err := r.wait(ctx); err != nil {
			errs = append(errs, fmt.Errorf("dsync: release semaphore %q: %w", m.key, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Semaphore) release(n int64) []release {
	m.session()
	done, ok := m.holds.take(n)
	if !ok {
		panic(fmt.Sprintf("dsync: semaphore %q: %d released, which is more than it holds, or less than 1", m.key, n))
	}
	var all []release
	for _, h := range done {
		all = append(all, h.unlock(Outcome{}))
	}
	return all
}

// Lost returns a channel that is closed when a hold of m is lost, or when all of them
// were released. Until what was lost is released Lost returns that channel, and then
// another. If m holds nothing it is closed. To watch holds one by one make a Semaphore
// for each.
func (m *Semaphore) Lost() <-chan struct{} {
	m.session()
	return m.holds.lost()
}

// Context returns a context that ends with ctx, and when the channel closes that Lost
// returns: see [Mutex.Context].
func (m *Semaphore) Context(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	m.session()
	return m.holds.context(ctx)
}

// Token returns the fencing token of the oldest hold of m, or 0 if m holds nothing or one
// of its holds is lost.
func (m *Semaphore) Token() int64 {
	m.session()
	return m.holds.token()
}

// Resize changes the size for all processes: those that still ask with the size
// that the key had before, or that m had, ask for parts of the new one from now
// on. So the processes of a new version, which name a new size, can run beside
// those of the old one: the first of them calls Resize on a Semaphore made with the
// old size, or on its own. Who holds keeps what it has; a smaller size takes effect
// as that is released.
//
// The former sizes, at least the last 8, are known for as long as the key is in
// use, and for [Options].Retention after. An error is ctx's, [ErrClosed],
// [ErrMismatch] if the key is in use as another kind, [ErrRefused] if somebody waits
// for more than the new size, or the store's; it makes one attempt, and may be
// repeated.
func (m *Semaphore) Resize(ctx context.Context, size int64) error {
	s := m.session()
	if size < 1 {
		return fmt.Errorf("dsync: resize semaphore %q to %d: it must be at least 1", m.key, size)
	}
	from := m.Size()
	_, err := await(ctx, s, call(s, "Resize", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.store.Resize(ctx, m.key, KindSemaphore, from, size)
	}))
	if err != nil {
		return fmt.Errorf("dsync: resize semaphore %q to %d: %w", m.key, size, err)
	}
	m.size.Store(size)
	return nil
}
