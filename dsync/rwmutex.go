package dsync

import (
	"context"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// rwLimit is the limit of an RWMutex's key. A writer's weight is rwLimit. All readers that share a hold have weight 1
// together, so at most rwLimit processes can read at the same time.
const rwLimit = engine.RWLimit

// An RWMutex is a reader/writer mutual exclusion lock between processes, made by [Session.RWMutex]. It
// is held by any number of readers or by one writer, and has the methods of [sync.RWMutex]. Each hold
// can be lost: see [Hold].
//
// Readers and writers are served in FIFO order, first within their process and then among processes, so neither
// starves: a new reader waits behind a waiting writer. So, as with sync.RWMutex, a goroutine that holds a read lock
// must not read-lock again.
//
// Readers of one process can share one hold in the store and its token, so most read locks take no command while the
// process is reading. A new reader may join until [Options].HandOffTime after the grant (some seconds if the process
// listens for notices), unless another process waits for the key.
type RWMutex struct {
	w       Mutex
	readers heldUnits // one unit for each RLock or TryRLock that has no RUnlock yet
}

var (
	_ sync.Locker = (*RWMutex)(nil)
	_ Locker      = (*RWMutex)(nil)
)

func (rw *RWMutex) writer() *Mutex {
	if rw.w.s == nil {
		panic("dsync: use of a zero RWMutex; make one with Session.RWMutex")
	}
	return &rw.w
}

// String returns the kind and the key, such as `rwmutex "invoices"`.
func (rw *RWMutex) String() string { return rw.w.String() }

// Lock locks rw for writing, like [Mutex.Lock].
func (rw *RWMutex) Lock() { rw.writer().Lock() }

// LockContext is [Mutex.LockContext] for writing.
func (rw *RWMutex) LockContext(ctx context.Context) error { return rw.writer().LockContext(ctx) }

// TryLock is [Mutex.TryLock] for writing.
func (rw *RWMutex) TryLock() bool { return rw.writer().TryLock() }

// Unlock undoes a Lock, like [Mutex.Unlock].
func (rw *RWMutex) Unlock() { rw.writer().Unlock() }

// Do is [Mutex.Do] for writing.
func (rw *RWMutex) Do(ctx context.Context, f func(context.Context) error) error {
	return rw.writer().Do(ctx, f)
}

// Hold is [Mutex.Hold] for writing.
func (rw *RWMutex) Hold(ctx context.Context) (*Hold, error) { return rw.writer().Hold(ctx) }

// RLock locks rw for reading. It waits like [Mutex.Lock].
func (rw *RWMutex) RLock() {
	rw.writer().s.Forever(rw.w.key, func(ctx context.Context) error {
		h, err := rw.read(ctx)
		if err == nil {
			rw.readers.add(h, 1)
		}
		return err
	})
}

// TryRLock tries to lock rw for reading and reports whether it succeeded. It returns false if rw is locked for writing,
// if somebody waits, or if there was an error, such as no answer from the store.
func (rw *RWMutex) TryRLock() bool {
	h, err := rw.writer().s.TryAcquire(context.Background(), rw.want())
	if err == nil {
		rw.readers.add(h, 1)
	}
	return err == nil
}

// RUnlock undoes a single RLock, preferably one whose hold was lost. It panics if rw is not locked for reading. It
// waits for the store like [Mutex.Unlock].
func (rw *RWMutex) RUnlock() {
	rw.writer()
	done, ok := rw.readers.take(1)
	if !ok {
		panic(fmt.Sprintf("dsync: read-unlock of rwmutex %q that is not read-locked", rw.w.key))
	}
	done[0].Unlock(driver.Release{Early: true}).Finish()
}

// RLocker returns a [sync.Locker] whose Lock and Unlock methods call rw.RLock and rw.RUnlock.
func (rw *RWMutex) RLocker() sync.Locker { return (*rlocker)(rw) }

type rlocker RWMutex

func (r *rlocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *rlocker) Unlock() { (*RWMutex)(r).RUnlock() }

// RHold is [Mutex.Hold] for reading. Each reader has its own hold, but readers of one process may
// share a token.
func (rw *RWMutex) RHold(ctx context.Context) (*Hold, error) {
	h, err := rw.read(ctx)
	if err != nil {
		return nil, err
	}
	over, end := context.WithCancelCause(h.Ended())
	return &Hold{h: h, over: over, end: end}, nil
}

func (rw *RWMutex) read(ctx context.Context) (*engine.Hold, error) {
	h, err := rw.writer().s.Acquire(ctx, rw.want())
	if err != nil {
		return nil, fmt.Errorf("dsync: read-lock %q: %w", rw.w.key, err)
	}
	return h, nil
}

func (rw *RWMutex) want() engine.Want {
	return engine.Want{Key: rw.w.key, Kind: driver.KindRWMutex, Weight: 1, Limit: rwLimit, Shares: true}
}
