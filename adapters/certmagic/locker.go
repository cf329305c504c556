package certmagic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/leasehold-go/leasehold/dsync"
)

const defaultPrefix = "certmagic/"

// Options are the settings of a [Locker]. The zero value of each field is its default;
// a nil *Options is all defaults.
type Options struct {
	// Prefix is put before a lock's name to form its key, so that the keys don't collide with other programs' keys.
	// Processes that share a storage must use the same Prefix. Default "certmagic/".
	Prefix string
}

// A Locker implements certmagic.Locker, certmagic.TryLocker and certmagic.LockLeaseRenewer; each
// name is locked with a [dsync.Mutex]. Make one Locker per process, with [NewLocker]. All methods
// may be called concurrently.
type Locker struct {
	s      *dsync.Session
	prefix string

	mu    sync.Mutex
	names map[string]*turns // the names that callers in this process have locked or wait for
}

// turns lets the callers in this process lock a name only one after the other. A turn lasts from a caller's Lock to its
// Unlock, even if the lock itself is lost and renewed meanwhile. If a renewal let the next caller in, the first
// caller's Unlock would release the next caller's lock, because Unlock gets only the name.
type turns struct {
	taken chan struct{} // has capacity 1; full during a turn
	users int           // callers that have the turn or wait for it; guarded by the Locker's mu
	turn  *turn         // the present turn, nil until its caller has the lock; guarded by the Locker's mu
}

// A turn belongs to one caller, from its Lock to its Unlock.
type turn struct {
	hold *dsync.Hold // the hold of the lock; nil: the lock was lost, and its renewal has failed or is still running
}

var (
	_ certmagic.Locker           = (*Locker)(nil)
	_ certmagic.TryLocker        = (*Locker)(nil)
	_ certmagic.LockLeaseRenewer = (*Locker)(nil)
)

// NewLocker returns a Locker on s. It does not contact the store. It refuses a nil
// session.
func NewLocker(s *dsync.Session, opt *Options) (*Locker, error) {
	if s == nil {
		return nil, errors.New("certmagic: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	l := &Locker{s: s, prefix: defaultPrefix, names: make(map[string]*turns)}
	if opt != nil && opt.Prefix != "" {
		l.prefix = opt.Prefix
	}
	return l, nil
}

// Lock locks name. While another caller has it, Lock waits in the queue, until ctx ends. It returns
// the errors of dsync.Mutex.LockContext, and dsync.ErrInvalidKey.
func (l *Locker) Lock(ctx context.Context, name string) error {
	return l.lock(name, func(n *turns) error {
		select {
		case n.taken <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func(mu *dsync.Mutex) (*dsync.Hold, error) { return mu.Hold(ctx) })
}

// TryLock locks name if that is possible without waiting, and reports whether it did. It returns
// the errors of dsync.Mutex.TryHold, except dsync.ErrHeld, and dsync.ErrInvalidKey.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	err := l.lock(name, func(n *turns) error {
		select {
		case n.taken <- struct{}{}:
			return nil
		default:
			return dsync.ErrHeld
		}
	}, func(mu *dsync.Mutex) (*dsync.Hold, error) { return mu.TryHold(ctx) })
	if errors.Is(err, dsync.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// lock first calls the function take, which gets the turn in this process. It then calls the function lock, which
// acquires the lock itself.
func (l *Locker) lock(name string, take func(*turns) error, lock func(*dsync.Mutex) (*dsync.Hold, error)) error {
	key := l.prefix + name
	if err := dsync.CheckKey(key); err != nil {
		return fmt.Errorf("certmagic: lock %q: %w", name, err)
	}
	n := l.enter(name)
	if err := take(n); err != nil {
		l.leave(name, n)
		return fmt.Errorf("certmagic: lock %q: %w", name, err)
	}
	hold, err := lock(l.s.Mutex(key))
	if err != nil {
		<-n.taken
		l.leave(name, n)
		return fmt.Errorf("certmagic: lock %q: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n.turn = &turn{hold}
	return nil
}

// enter returns the turns of name, and counts one more user. The caller must call leave when it no longer needs the
// name.
func (l *Locker) enter(name string) *turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[name]
	if n == nil {
		n = &turns{taken: make(chan struct{}, 1)}
		l.names[name] = n
	}
	n.users++
	return n
}

func (l *Locker) leave(name string, n *turns) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(l.names, name)
	}
}

// Unlock unlocks name. ctx bounds only the wait for the store's answer. It returns ctx's error, another error of
// dsync.Hold.Release, or an error that reports that name is not locked. If the lock was lost, Unlock returns nil.
func (l *Locker) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	n := l.names[name]
	if n == nil || n.turn == nil {
		l.mu.Unlock()
		return fmt.Errorf("certmagic: unlock %q: it is not locked", name)
	}
	hold := n.turn.hold
	n.turn = nil
	l.mu.Unlock()

	var err error
	if hold != nil {
		err = hold.Release(ctx)
	}
	<-n.taken
	l.leave(name, n)
	if err != nil && !errors.Is(err, dsync.ErrLost) {
		return fmt.Errorf("certmagic: unlock %q: %w", name, err)
	}
	return nil
}

// RenewLockLease checks that name is still locked. The session renews the lock anyway, so the duration has no effect.
// If the lock was lost, RenewLockLease acquires it again, after the processes that are already waiting for it. Other
// goroutines of this process wait until name is unlocked. After an error, the caller may renew name again, and must
// still unlock it. It returns the errors of [Locker.Lock], or an error that reports that name is not locked.
func (l *Locker) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	n := l.names[name]
	if n == nil || n.turn == nil {
		l.mu.Unlock()
		return fmt.Errorf("certmagic: renew the lock of %q: it is not locked", name)
	}
	turn, lost := n.turn, n.turn.hold
	if lost != nil && lost.Token() != 0 {
		l.mu.Unlock()
		return nil
	}
	turn.hold = nil
	l.mu.Unlock()

	if lost != nil {
		_ = lost.Release(ctx) // until then, the lost hold keeps the key locked in this process
	}
	hold, err := l.s.Mutex(l.prefix + name).Hold(ctx)
	if err != nil {
		return fmt.Errorf("certmagic: renew the lock of %q: %w", name, err)
	}
	l.mu.Lock()
	unlocked := n.turn != turn
	if !unlocked {
		turn.hold = hold
	}
	l.mu.Unlock()
	if unlocked { // unlocked by certmagic.CleanUpOwnLocks, when the process ends
		_ = hold.Release(ctx)
		return fmt.Errorf("certmagic: renew the lock of %q: it was unlocked meanwhile", name)
	}
	return nil
}

// storage is another Storage with the locks of a Locker instead of its own.
type storage struct {
	*Locker
	other // one level deeper than the Locker, whose methods take precedence
}

type other struct{ certmagic.Storage }

// Storage returns s with the locks of l instead of its own. The result is also a
// certmagic.TryLocker and a certmagic.LockLeaseRenewer.
func (l *Locker) Storage(s certmagic.Storage) certmagic.Storage { return storage{l, other{s}} }
