package dsync

import (
	"context"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// rwLimit is the limit of an RWMutex's key. A writer takes all of it, the readers of a process
// take 1, so at most rwLimit processes can read at the same time.
const rwLimit = engine.RWLimit

// An RWMutex is a reader/writer mutual exclusion lock between processes. It is held by any
// number of readers or by one writer. It has the methods of [sync.RWMutex], and adds forms of
// them that take a context.
//
// Make an RWMutex with [Session.RWMutex]; using a zero RWMutex panics. It must not be copied.
// All RWMutexes of one key exclude each other. All methods may be called concurrently. Each
// hold can be lost, as described for [Mutex].
//
// Readers and writers are served in FIFO order, first within their process and then among
// processes, so neither starve: a reader that comes after a waiting writer waits for that
// writer. So, as with sync.RWMutex, a goroutine that holds a read lock must not read-lock
// again.
//
// Readers of one process share one hold in the store, and its token, so most read locks take no
// command if the process is reading already. New readers may join a hold for
// [Options].HandOffTime after its grant. In a process that listens for notices they may join
// for some seconds, until another process waits for the key.
type RWMutex struct {
	w       Mutex
	readers heldUnits // one unit for each RLock without its RUnlock
}

var _ sync.Locker = (*RWMutex)(nil)

func (rw *RWMutex) writer() *Mutex {
	if rw.w.s == nil {
		panic("dsync: use of a zero RWMutex; make one with Session.RWMutex")
	}
	return &rw.w
}

// Key returns the key.
func (rw *RWMutex) Key() string { return rw.w.Key() }

// String returns the kind and the key, such as `rwmutex "invoices"`.
func (rw *RWMutex) String() string { return rw.w.String() }

// Lock locks rw for writing, like [Mutex.Lock].
func (rw *RWMutex) Lock() { rw.writer().Lock() }

// LockContext is [Mutex.LockContext] for writing.
func (rw *RWMutex) LockContext(ctx context.Context) error { return rw.writer().LockContext(ctx) }

// TryLock is [Mutex.TryLock] for writing.
func (rw *RWMutex) TryLock() bool { return rw.writer().TryLock() }

// TryLockContext is [Mutex.TryLockContext] for writing.
func (rw *RWMutex) TryLockContext(ctx context.Context) error { return rw.writer().TryLockContext(ctx) }

// ForceLock is [Mutex.ForceLock] for writing.
func (rw *RWMutex) ForceLock(ctx context.Context) error { return rw.writer().ForceLock(ctx) }

// Unlock undoes a Lock, like [Mutex.Unlock].
func (rw *RWMutex) Unlock() { rw.writer().Unlock() }

// UnlockContext is [Mutex.UnlockContext] for writing.
func (rw *RWMutex) UnlockContext(ctx context.Context) error { return rw.writer().UnlockContext(ctx) }

// Lost is [Mutex.Lost] for the hold of the writer.
func (rw *RWMutex) Lost() <-chan struct{} { return rw.writer().Lost() }

// Token is [Mutex.Token] for the hold of the writer.
func (rw *RWMutex) Token() int64 { return rw.writer().Token() }

// Held is [Mutex.Held] for the hold of the writer.
func (rw *RWMutex) Held() bool { return rw.writer().Held() }

// Context is [Mutex.Context] for the hold of the writer.
func (rw *RWMutex) Context(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	return rw.writer().Context(ctx)
}

// Do is [Mutex.Do] for writing.
func (rw *RWMutex) Do(ctx context.Context, f func(context.Context) error) error {
	return rw.writer().Do(ctx, f)
}

// RLock locks rw for reading. It waits like [Mutex.Lock].
func (rw *RWMutex) RLock() { rw.writer().s.Forever(rw.Key(), rw.RLockContext) }

// RLockContext locks rw for reading. ctx bounds the wait only. Errors are those of
// [Mutex.LockContext].
func (rw *RWMutex) RLockContext(ctx context.Context) error {
	_, err := rw.rlock(ctx)
	return err
}

func (rw *RWMutex) rlock(ctx context.Context) (*engine.Hold, error) {
	h, err := rw.writer().s.Acquire(ctx, rw.read())
	if err != nil {
		return nil, fmt.Errorf("dsync: read-lock %q: %w", rw.Key(), err)
	}
	rw.readers.add(h, 1)
	return h, nil
}

// TryRLock tries to lock rw for reading and reports whether it succeeded. It returns false if
// somebody writes, if somebody waits, or if the store did not answer; [RWMutex.TryRLockContext]
// distinguishes these.
func (rw *RWMutex) TryRLock() bool { return rw.TryRLockContext(context.Background()) == nil }

// TryRLockContext locks rw for reading if that is possible without waiting. Errors are those of
// [Mutex.TryLockContext].
func (rw *RWMutex) TryRLockContext(ctx context.Context) error {
	h, err := rw.writer().s.TryAcquire(ctx, rw.read())
	if err != nil {
		return engine.TryError("read-lock", rw.Key(), err)
	}
	rw.readers.add(h, 1)
	return nil
}

func (rw *RWMutex) read() engine.Want {
	return engine.Want{Key: rw.Key(), Kind: driver.KindRWMutex, Weight: 1, Limit: rwLimit, Shares: true}
}

// RUnlock undoes a single RLock. If a hold of the readers was lost, it undoes an RLock of that
// hold first. It panics if rw is not locked for reading. It waits for the store like
// [Mutex.Unlock].
func (rw *RWMutex) RUnlock() { rw.runlock(driver.Leave{Early: true}).Finish(rw.writer().s, rw.Key()) }

// RUnlockContext undoes a single RLock, and waits like [Mutex.UnlockContext]. ctx bounds only the wait for the store's
// answer. Errors are those of [Mutex.UnlockContext].
func (rw *RWMutex) RUnlockContext(ctx context.Context) error {
	if err := rw.runlock(driver.Leave{}).Wait(ctx); err != nil {
		return fmt.Errorf("dsync: read-unlock %q: %w", rw.Key(), err)
	}
	return nil
}

func (rw *RWMutex) runlock(o driver.Leave) engine.Releasing {
	rw.writer()
	done, ok := rw.readers.take(1)
	if !ok {
		panic(fmt.Sprintf("dsync: read-unlock of rwmutex %q that is not read-locked", rw.Key()))
	}
	return done[0].Unlock(o)
}

// RLost returns a channel that is closed when a hold of rw's readers is lost, and when the last
// reader has unlocked. While other readers remain, the RUnlock of one does not close it. If rw
// is not locked for reading, the channel is closed.
//
// Readers can have several holds, for example if a writer waited in between. A loss of any of
// them closes the channel. RLost returns that closed channel until the readers of the lost hold
// have unlocked, and then a new one.
func (rw *RWMutex) RLost() <-chan struct{} {
	rw.writer()
	return rw.readers.lost()
}

// RToken returns the fencing token of the readers' oldest hold. It is greater than that of
// every earlier writer. Readers that share a hold share its token. RToken returns 0 if rw is
// not locked for reading or one of its readers' holds is lost.
func (rw *RWMutex) RToken() int64 {
	rw.writer()
	return rw.readers.token()
}

// RContext returns a context that ends with ctx, and when the channel that RLost returns is
// closed. See [Mutex.Context].
func (rw *RWMutex) RContext(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	rw.writer()
	return rw.readers.context(ctx)
}

// RDo is [Mutex.Do] for reading. The context passed to f also ends if another hold of rw's
// readers is lost: see [RWMutex.RLost].
func (rw *RWMutex) RDo(ctx context.Context, f func(context.Context) error) error {
	if err := rw.RLockContext(ctx); err != nil {
		return err
	}
	return do(ctx, rw.w.s, rw.Key(), rw.RContext, rw.RUnlockContext, f)
}

// RLocker returns a [sync.Locker] whose Lock and Unlock methods call rw.RLock and rw.RUnlock.
func (rw *RWMutex) RLocker() sync.Locker { return (*rlocker)(rw) }

type rlocker RWMutex

func (r *rlocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *rlocker) Unlock() { (*RWMutex)(r).RUnlock() }
