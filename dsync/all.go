package dsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Locker is what [LockAll] locks: a [Mutex], an [RWMutex] (for writing), or a lock of another kind. If it
// has a method Lost() <-chan struct{}, its loss ends the context that LockAll returns.
type Locker interface {
	LockContext(ctx context.Context) error
	Unlock()
}

// LockAll locks several locks together. The returned context is made from ctx and ends when the first of the locks is
// lost; the cause is [ErrLost]. Call unlock soon after a loss. It unlocks all of the locks, waits for the store like
// [Mutex.Unlock], and returns ErrLost if one was lost before.
//
//	held, unlock, err := dsync.LockAll(ctx, locks.Mutex(from), locks.Mutex(to))
//	if err != nil {
//		return err
//	}
//	defer unlock()
//
// Programs that lock several of the same keys must do so in the same order, or they may wait forever. LockAll locks in
// the byte order of the keys, and a key that is given twice counts once. Locks of other packages are locked first, in
// the order of the arguments. So a fleet can be moved from an old lock to a new one: hold both while old and new
// versions run.
//
// If LockAll loses a lock while it waits for another, it unlocks all and begins again. ctx bounds the wait. The errors
// are LockContext's; after an error nothing stays locked, and the context has ended.
func LockAll(ctx context.Context, locks ...Locker) (held context.Context, unlock func() error, err error) {
	lock := func(ctx context.Context, l Locker) error { return l.LockContext(ctx) }
	for {
		held, unlock, err = lockAll(ctx, lock, locks)
		if !errors.Is(err, errPartLost) || ctx.Err() != nil {
			return held, unlock, err
		}
	}
}

// TryLockAll is [LockAll] without the wait: it locks all of the locks or none of them. Locks of other packages need a
// method TryLock() bool. The error matches [ErrHeld] if a lock is held (for a lock of this package it is a
// [*HeldError]), and [ErrLost] if one was lost before all were locked.
func TryLockAll(ctx context.Context, locks ...Locker) (held context.Context, unlock func() error, err error) {
	return lockAll(ctx, func(ctx context.Context, l Locker) error {
		if m := mutexOf(l); m != nil {
			return m.tryLock(ctx)
		}
		t, ok := l.(interface{ TryLock() bool })
		switch {
		case !ok:
			return fmt.Errorf("dsync: try to lock all: %T has no method TryLock() bool", l)
		case !t.TryLock():
			return fmt.Errorf("dsync: try to lock all: %T: %w", l, ErrHeld)
		}
		return nil
	}, locks)
}

// errPartLost means that a hold was lost before all locks were locked.
var errPartLost = fmt.Errorf("%w before all were locked", ErrLost)

// mutexOf returns the Mutex behind l, or nil if l is not of this package.
func mutexOf(l Locker) *Mutex {
	switch l := l.(type) {
	case *Mutex:
		l.session()
		return l
	case *RWMutex:
		return l.writer()
	}
	return nil
}

// inOrder returns the locks in the order in which they are locked, each once: see same.
func inOrder(locks []Locker) []Locker {
	key := func(l Locker) string {
		if m := mutexOf(l); m != nil {
			return m.key
		}
		return "" // no key of a Mutex is empty
	}
	locks = slices.Clone(locks)
	slices.SortStableFunc(locks, func(a, b Locker) int { return cmp.Compare(key(a), key(b)) })
	var once []Locker
	for _, l := range locks {
		if !slices.ContainsFunc(once, func(before Locker) bool { return same(before, l) }) {
			once = append(once, l)
		}
	}
	return once
}

// same reports whether a and b are locks of this package with the same session, kind and key.
func same(a, b Locker) bool {
	m, n := mutexOf(a), mutexOf(b)
	return m != nil && n != nil && m.s == n.s && m.key == n.key && m.kind == n.kind
}

// lockAll locks the locks one after the other.
func lockAll(ctx context.Context, lock func(context.Context, Locker) error, locks []Locker) (context.Context, func() error, error) {
	var a all
	a.over, a.end = context.WithCancelCause(context.Background())
	for _, l := range inOrder(locks) {
		// The wait ends when an earlier lock is lost: by now another process may hold that lock, and wait for locks
		// that this call still holds.
		wait, cancel := engine.Scoped(ctx, a.holds, a.over, a.live)
		err := lock(wait, l)
		if err == nil {
			a.add(l)
		}
		lost := ctx.Err() == nil && !a.live()
		cancel(context.Canceled)
		if lost {
			err = errPartLost
		}
		if err != nil {
			engine.WaitAll(ctx, a.unlock())
			return engine.EndedContext(ctx, err), func() error { return nil }, err
		}
	}
	held, cancel := engine.Scoped(ctx, a.holds, a.over, a.live)
	return held, sync.OnceValue(func() error {
		defer cancel(context.Canceled)
		engine.FinishAll(a.unlock())
		if cause := context.Cause(a.over); cause != context.Canceled {
			return cause
		}
		return nil
	}), nil
}

// An all has the locks that one call of lockAll has locked.
type all struct {
	locks []Locker
	holds []*engine.Hold // holds of the locks that belong to this package
	over  context.Context
	end   context.CancelCauseFunc // cancels over; called when the first lock is lost, and by unlock
}

func (a *all) add(l Locker) {
	a.locks = append(a.locks, l)
	if m := mutexOf(l); m != nil {
		h := m.hold()
		a.holds = append(a.holds, h)
		context.AfterFunc(h.Ended(), func() { a.end(h.Err()) })
		return
	}
	if l, ok := l.(interface{ Lost() <-chan struct{} }); ok {
		lost := l.Lost()
		go func() { // until unlock cancels over
			select {
			case <-lost:
				a.end(fmt.Errorf("%w: %T", ErrLost, l))
			case <-a.over.Done():
			}
		}()
	}
}

// live checks the clock, and cancels over if a hold has ended. It reports whether no lock has been
// lost.
func (a *all) live() bool {
	for _, h := range a.holds {
		if !h.Live() {
			a.end(h.Err())
		}
	}
	return a.over.Err() == nil
}

// unlock unlocks the locks in reverse order: when another LockAll of the same locks then gets the first lock, the
// others are already free. It does not wait for the releases that it returns.
func (a *all) unlock() (sent []engine.Releasing) {
	a.live()
	a.end(context.Canceled)
	for _, l := range slices.Backward(a.locks) {
		if m := mutexOf(l); m != nil {
			sent = append(sent, m.unlock(driver.Release{Early: true}))
		} else {
			l.Unlock()
		}
	}
	return sent
}
