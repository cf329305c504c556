package dsync

import (
	"context"
	"fmt"
	"sync"
)

// rwLimit is the limit of keys of RWMutexes: a writer has all of it, a reader 1. So
// it is how many processes can read at once.
const rwLimit = 1 << 30

// An RWMutex is a reader/writer mutual exclusion lock between processes: held by
// any number of readers or by one writer. Its method set is that of
// [sync.RWMutex], with forms that take a context.
//
// Make one with [Session.RWMutex]; a zero RWMutex panics when it is used. It must
// not be copied. All RWMutexes of one key exclude each other as their holds do. All
// methods may be called concurrently. What is said of [Mutex] about losses holds
// here for each hold.
//
// Who asks first is served first, in its process and then among processes, readers
// and writers alike, so that neither starve: readers that come after a waiting
// writer wait for it. As with sync.RWMutex this forbids to read-lock again in a
// goroutine that has a read lock.
//
// The readers of one process share one hold in the store, and its token: for
// [Options].Turn, and longer, for seconds at a time, where the process would be told
// if another waited, until one does. So read-locking what this process reads
// already mostly takes no command.
type RWMutex struct {
	w       Mutex
	readers portions // one for each RLock that was not undone
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

// Lost is [Mutex.Lost] of the hold for writing.
func (rw *RWMutex) Lost() <-chan struct{} { return rw.writer().Lost() }

// Token is [Mutex.Token] of the hold for writing.
func (rw *RWMutex) Token() int64 { return rw.writer().Token() }

// Owned is [Mutex.Owned] of the hold for writing.
func (rw *RWMutex) Owned() bool { return rw.writer().Owned() }

// Locked is [Mutex.Locked]: it reports whether anybody reads or writes.
func (rw *RWMutex) Locked(ctx context.Context) (bool, error) { return rw.writer().Locked(ctx) }

// Do is [Mutex.Do] for writing.
func (rw *RWMutex) Do(ctx context.Context, f func(context.Context) error) error {
	return rw.writer().Do(ctx, f)
}

// RLock locks rw for reading, and waits like [Mutex.Lock].
func (rw *RWMutex) RLock() { rw.writer().s.lock(rw.Key(), rw.RLockContext) }

// RLockContext locks rw for reading. ctx bounds the wait only. Errors are those of
// [Mutex.LockContext].
func (rw *RWMutex) RLockContext(ctx context.Context) error {
	h, err := rw.writer().s.acquire(ctx, rw.read())
	if err != nil {
		return fmt.Errorf("dsync: read-lock %q: %w", rw.Key(), err)
	}
	rw.readers.add(h, 1)
	return nil
}

// TryRLock tries to lock rw for reading and reports whether it succeeded: false if
// somebody writes or waits, or if the store did not answer, which
// [RWMutex.TryRLockContext] tells apart.
func (rw *RWMutex) TryRLock() bool { return rw.TryRLockContext(context.Background()) == nil }

// TryRLockContext locks rw for reading if that is possible without waiting for
// anyone. Errors are those of [Mutex.TryLockContext].
func (rw *RWMutex) TryRLockContext(ctx context.Context) error {
	h, err := rw.writer().s.tryAcquire(ctx, rw.read())
	if err != nil {
		return tryError("read-lock", rw.Key(), err)
	}
	rw.readers.add(h, 1)
	return nil
}

func (rw *RWMutex) read() want {
	return want{key: rw.Key(), kind: KindRWMutex, weight: 1, limit: rwLimit, shares: true}
}

// RUnlock undoes a single RLock, of a hold that was lost if there is one. It panics
// if rw is not locked for reading. It waits like [Mutex.Unlock].
func (rw *RWMutex) RUnlock() { rw.runlock().finish(rw.writer().s, rw.Key()) }

// RUnlockContext undoes a single RLock, of a hold that was lost if there is one.
// ctx bounds only the wait for the store's answer. The error is [ErrLost] if the
// hold had ended before, or ctx's.
func (rw *RWMutex) RUnlockContext(ctx context.Context) error {
	if err := rw.runlock().wait(ctx); err != nil {
		return fmt.Errorf("dsync: read-unlock %q: %w", rw.Key(), err)
	}
	return nil
}

func (rw *RWMutex) runlock() release {
	rw.writer()
	done, ok := rw.readers.take(1)
	if !ok {
		panic(fmt.Sprintf("dsync: read-unlock of rwmutex %q that is not read-locked", rw.Key()))
	}
	return done[0].unlock(Outcome{})
}

// RLost returns a channel that is closed when rw's readers lose a hold, or when the last
// of them has unlocked: the RUnlock of one reader tells the others nothing. Readers may
// have several holds, as when a writer waited in between; a loss of any closes the
// channel, until its readers have unlocked RLost returns that one, and then another. Of
// an RWMutex that is not locked for reading it is closed.
func (rw *RWMutex) RLost() <-chan struct{} {
	rw.writer()
	return rw.readers.lost()
}

// RToken returns the fencing token of the readers' oldest hold, or 0 if one of their
// holds is lost. Readers that share a hold share its token, which is greater than that
// of any writer before them.
func (rw *RWMutex) RToken() int64 {
	rw.writer()
	return rw.readers.token()
}

// RLocker returns a Locker whose Lock and Unlock are rw's RLock and RUnlock.
func (rw *RWMutex) RLocker() sync.Locker { return (*rlocker)(rw) }

type rlocker RWMutex

func (r *rlocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *rlocker) Unlock() { (*RWMutex)(r).RUnlock() }
