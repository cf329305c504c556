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
// So end ctx when you no longer receive. If the hold is lost before somebody receives the value,
// m is unlocked and locked again, in the background; after that, a loss is as for any hold. Each
// call locks m once, so call LockChan before a loop, not in it.
func (m *Mutex) LockChan(ctx context.Context) <-chan bool {
	lock := func(ctx context.Context) (*engine.Hold, error) { return m.lock(ctx, m.want()) }
	return offer(ctx, m.session(), m.key, lock, m.Unlock)
}

// LockChan is [Mutex.LockChan] for writing.
func (rw *RWMutex) LockChan(ctx context.Context) <-chan bool { return rw.writer().LockChan(ctx) }

// RLockChan is [Mutex.LockChan] for reading. If nobody receives the value, rw is read-unlocked.
func (rw *RWMutex) RLockChan(ctx context.Context) <-chan bool {
	return offer(ctx, rw.writer().s, rw.Key(), rw.rlock, rw.RUnlock)
}

// AcquireChan acquires n units like [Semaphore.Acquire], but in the background: see
// [Mutex.LockChan]. If nobody receives the value, the units are released. The channel is also
// closed without a value if n is less than 1 or more than the size.
func (m *Semaphore) AcquireChan(ctx context.Context, n int64) <-chan bool {
	acquire := func(ctx context.Context) (*engine.Hold, error) { return m.acquire(ctx, n) }
	return offer(ctx, m.session(), m.key, acquire, func() { m.Release(n) })
}

// offer acquires in the background. It offers the success on the channel until ctx ends, and
// then releases. If the hold ends first, it releases and acquires again: what it offered would no
// longer be true, and another process may hold the key by now.
func offer[H interface{ Lost() <-chan struct{} }](ctx context.Context, s *engine.Session, key string, acquire func(context.Context) (H, error), release func()) <-chan bool {
	ch := make(chan bool)
	go func() {
		defer close(ch)
		for {
			h, err := acquire(ctx)
			if err != nil {
				if ctx.Err() == nil {
					s.Warn("dsync: not locked", "key", key, "err", err)
				}
				return
			}
			select {
			case ch <- true:
				return
			case <-ctx.Done():
				release()
				return
			case <-h.Lost():
				release()
			}
		}
	}()
	return ch
}
