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
	// AtLeast is the time for which a job's lock is held from the start of the job, even if the
	// job ends earlier. No other process runs the job within that time. It should exceed the
	// difference between the hosts' clocks, and be less than the job's period by as much. The
	// store keeps the lock, also after this process has ended, but not if it dies during the job.
	// It is 0 or from 1 ms to dsync.MaxDuration. Default 0: the lock is free when the job ends, and a
	// short job may run once on each of several hosts.
	AtLeast time.Duration

	// Prefix comes before the name of a job in the key of its lock, to keep these keys apart from
	// those of other locks. Default "gocron/".
	Prefix string
}

// A Locker is a gocron.Locker: a job runs on the process that gets its lock without waiting.
// Pass it to gocron.WithDistributedLocker or gocron.WithDistributedJobLocker, and give jobs the
// same names in all processes (gocron.WithName). Make one with [NewLocker]; all methods may be
// called concurrently.
type Locker struct {
	s   *dsync.Session
	opt LockerOptions
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker on s. It does not contact the store. It refuses a nil
// session, and an AtLeast that is neither 0 nor from 1 ms to dsync.MaxDuration.
func NewLocker(s *dsync.Session, opt *LockerOptions) (*Locker, error) {
	if s == nil {
		return nil, errors.New("gocron: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	l := &Locker{s: s}
	if opt != nil {
		l.opt = *opt
	}
	if d := l.opt.AtLeast; d != 0 && (d < time.Millisecond || d > dsync.MaxDuration) {
		return nil, fmt.Errorf("gocron: AtLeast is %v; it must be from 1ms to %v (0: not at all)", d, dsync.MaxDuration)
	}
	if l.opt.Prefix == "" {
		l.opt.Prefix = defaultPrefix
	}
	return l, nil
}

// Lock locks the job of that name. If it returns an error, gocron does not run the job: a
// *dsync.HeldError if another process holds the lock, or the store's error. It does not wait for
// the other process: the job would then run twice.
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

// A lock is the lock of a running job.
type lock struct {
	mu    *dsync.Mutex
	until time.Time // it is held at least until then
}

// Unlock releases the lock, at once or at until. The error is dsync.ErrLost if it was lost
// before, or ctx's; gocron ignores it.
func (l *lock) Unlock(ctx context.Context) error {
	if left := time.Until(l.until); left > 0 {
		return l.mu.UnlockAfter(ctx, min(left+time.Millisecond, dsync.MaxDuration)) // the store has whole ones
	}
	return l.mu.UnlockContext(ctx)
}
