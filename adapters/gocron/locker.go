package gocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold/dsync"
)

const defaultPrefix = "gocron/"

// LockerOptions are the settings of a [Locker]. The zero value of each field is its
// default; a nil *LockerOptions is all defaults.
type LockerOptions struct {
	// AtLeast is for how long a job's lock is held from its start on, even if the job
	// ends before: no other process runs it within that time. It should be more than
	// clocks of hosts differ, and less than the job's period by as much. It is kept by
	// the store, also when this process has ended, but not if it dies during the job.
	// Default 0: the lock is free when the job ends, and a short job may run once on
	// each of several hosts. Else it is at least a millisecond.
	AtLeast time.Duration

	// Prefix comes before the name of a job in the key of its lock, so that it is no
	// other lock's. Default "gocron/".
	Prefix string
}

// A Locker is a gocron.Locker: it runs a job where its lock is got without a wait. Give
// it to gocron.WithDistributedLocker or gocron.WithDistributedJobLocker, and jobs the
// same names in all processes (gocron.WithName). Make one with [NewLocker]; all methods
// may be called concurrently.
type Locker struct {
	s   *dsync.Session
	opt LockerOptions
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker on s. It does not contact the store. It refuses a nil
// session, and an AtLeast that is neither 0 nor at least a millisecond.
func NewLocker(s *dsync.Session, opt *LockerOptions) (*Locker, error) {
	if s == nil {
		return nil, errors.New("gocron: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	l := &Locker{s: s}
	if opt != nil {
		l.opt = *opt
	}
	if d := l.opt.AtLeast; d != 0 && d < time.Millisecond {
		return nil, fmt.Errorf("gocron: AtLeast is %v; it must be at least 1ms (0: not at all)", d)
	}
	if l.opt.Prefix == "" {
		l.opt.Prefix = defaultPrefix
	}
	return l, nil
}

// Lock locks the job of that name, or returns an error, with which the job is not run:
// a *dsync.HeldError if another process has it, or the store's. It does not wait for
// the other: the job would then run twice.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	key := l.opt.Prefix + name
	if err := dsync.CheckKey(key); err != nil {
		return nil, fmt.Errorf("gocron: lock of job %q: %w", name, err)
	}
	mu := l.s.Mutex(key)
	if err := mu.TryLockContext(ctx); err != nil {
		return nil, fmt.Errorf("gocron: lock of job %q: %w", name, err)
	}
	return &lock{mu: mu, until: time.Now().Add(l.opt.AtLeast)}, nil
}

// A lock is that of a job that runs.
type lock struct {
	mu    *dsync.Mutex
	until time.Time // it is held at least
}

// Unlock frees the lock, then or when its time has come. The error is dsync.ErrLost if
// it was lost before, or ctx's; gocron ignores it.
func (l *lock) Unlock(ctx context.Context) error {
	if left := time.Until(l.until); left > 0 {
		return l.mu.UnlockAfter(ctx, left+time.Millisecond) // the store has whole ones
	}
	return l.mu.UnlockContext(ctx)
}
