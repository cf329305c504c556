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
	// Prefix comes before the name of a lock in its key, to keep these keys apart from other
	// programs'. Processes that share a storage must use the same. Default "certmagic/".
	Prefix string
}

// A Locker is a certmagic.Locker, certmagic.TryLocker and certmagic.LockLeaseRenewer:
// locks by name, each a [dsync.Mutex]. Make one with [NewLocker], one per process; all
// methods may be called concurrently.
type Locker struct {
	s      *dsync.Session
	prefix string

	mu   sync.Mutex
	held map[string]*dsync.Mutex // by name: those that are locked, also if the lock was lost
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
	l := &Locker{s: s, prefix: defaultPrefix, held: make(map[string]*dsync.Mutex)}
	if opt != nil && opt.Prefix != "" {
		l.prefix = opt.Prefix
	}
	return l, nil
}

// Lock locks name, and waits in the queue while another has it, until ctx ends. Errors are
// those of dsync.Mutex.LockContext, and dsync.ErrInvalidKey.
func (l *Locker) Lock(ctx context.Context, name string) error {
	return l.lock(name, func(mu *dsync.Mutex) error { return mu.LockContext(ctx) })
}

// TryLock locks name if that is possible without waiting for another, and reports
// whether it did. Errors are those of dsync.Mutex.TryLockContext but dsync.ErrHeld, and
// dsync.ErrInvalidKey.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	err := l.lock(name, func(mu *dsync.Mutex) error { return mu.TryLockContext(ctx) })
	if errors.Is(err, dsync.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

func (l *Locker) lock(name string, lock func(*dsync.Mutex) error) error {
	key := l.prefix + name
	if err := dsync.CheckKey(key); err != nil {
		return fmt.Errorf("certmagic: lock %q: %w", name, err)
	}
	mu := l.s.Mutex(key)
	if err := lock(mu); err != nil {
		return fmt.Errorf("certmagic: lock %q: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[name] = mu // the only one: a mutex that was lost stays locked in this process
	return nil
}

// Unlock unlocks name. ctx bounds only the wait for the store's answer. The error is
// ctx's, or that name is not locked; a lock that was lost needs no release, and is no
// error.
func (l *Locker) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	mu := l.held[name]
	delete(l.held, name)
	l.mu.Unlock()
	if mu == nil {
		return fmt.Errorf("certmagic: unlock %q: it is not locked", name)
	}
	if err := mu.UnlockContext(ctx); err != nil && !errors.Is(err, dsync.ErrLost) {
		return fmt.Errorf("certmagic: unlock %q: %w", name, err)
	}
	return nil
}

// RenewLockLease sees that name is still locked: a lock needs no renewal, it lives with
// its session, so the duration has no effect. But if it was lost, name is locked anew,
// behind those that wait for it by now, as by Lock. On error it is not locked, and may be
// renewed once more.
func (l *Locker) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	mu := l.held[name]
	l.mu.Unlock()
	if mu != nil {
		if mu.Held() {
			return nil
		}
		if err := l.Unlock(ctx, name); err != nil {
			return err
		}
	}
	return l.Lock(ctx, name)
}

// storage is another Storage with the locks of a Locker in place of its own.
type storage struct {
	*Locker
	other // one level deeper than the Locker, whose methods take precedence
}

type other struct{ certmagic.Storage }

// Storage returns s with the locks of l in place of its own. It is a
// certmagic.TryLocker and a certmagic.LockLeaseRenewer, too.
func (l *Locker) Storage(s certmagic.Storage) certmagic.Storage { return storage{l, other{s}} }
