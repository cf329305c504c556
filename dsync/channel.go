package dsync

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/engine"
)

// LockChan locks m like [Mutex.LockContext], but in the background, for a select statement:
//
//	locked := mu.LockChan(ctx)
//	select {
//	case <-done: // end ctx
//	case ok := <-locked:
//		if ok {
//			defer mu.Unlock()
//		}
//	}
//
// The channel receives true when m is locked. It is closed without a value if m will not be
// locked: ctx or the session has ended, the key is in use as another kind, or the store refuses.
// The log says so if it is not ctx that ended.
//
// The channel is unbuffered. If nobody receives the value before ctx ends, m is unlocked again.
// So end ctx when you no longer receive. Each call locks m once, so call LockChan before a loop,
// not in it.
func (m *Mutex) LockChan(ctx context.Context) <-chan bool {
	return offer(ctx, m.session(), m.key, m.LockContext, m.Unlock)
}

// LockChan is [Mutex.LockChan] for writing.
func (rw *RWMutex) LockChan(ctx context.Context) <-chan bool { return rw.writer().LockChan(ctx) }

// RLockChan is [Mutex.LockChan] for reading. If nobody receives the value, rw is read-unlocked.
func (rw *RWMutex) RLockChan(ctx context.Context) <-chan bool {
	return offer(ctx, rw.writer().s, rw.Key(), rw.RLockContext, rw.RUnlock)
}

// AcquireChan acquires n units like [Semaphore.Acquire], but in the background: see
// [Mutex.LockChan]. If nobody receives the value, the units are released. The channel is also
// closed without a value if n is less than 1 or more than the size.
func (m *Semaphore) AcquireChan(ctx context.Context, n int64) <-chan bool {
	acquire := func(ctx context.Context) error { return m.Acquire(ctx, n) }
	return offer(ctx, m.session(), m.key, acquire, func() { m.Release(n) })
}

// offer acquires in the background. It offers the success on the channel until ctx ends, and
// then releases.
func offer(ctx context.Context, s *engine.Session, key string, acquire func(context.Context) error, release func()) <-chan bool {
	ch := make(chan bool)
	go func() {
		defer close(ch)
		if err := acquire(ctx); err != nil {
			if ctx.Err() == nil {
				s.Warn("dsync: not locked", "key", key, "err", err)
			}
			return
		}
		select {
		case ch <- true:
		case <-ctx.Done():
			release()
		}
	}()
	return ch
}
