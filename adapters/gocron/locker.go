package gocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

const defaultPrefix = "gocron/"

// LockerOptions are the settings of a [Locker]. The zero value of each field is its
// default; a nil *LockerOptions is all defaults.
type LockerOptions struct {
	// Prefix is put before a job's name to form the key of its lock, so that the keys don't collide with other locks'
	// keys. Default "gocron/".
	Prefix string
}

// A Locker is a gocron.Locker: a job runs on the process that gets the job's lock without waiting. Pass it to
// gocron.WithDistributedLocker or gocron.WithDistributedJobLocker, and give jobs the same names in all processes
// (gocron.WithName). Make one with [NewLocker]; all methods may be called concurrently.
type Locker struct {
	s       *dsync.Session
	atLeast time.Duration
	opt     LockerOptions
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker on s. It does not contact the store.
//
// A job's lock is held for the time atLeast from the start of the job, even if the job ends earlier. No other process
// runs the job within that time. The store keeps the lock even after this process has ended, but not if the process
// dies during the job. Choose the job's period minus the largest difference between hosts' clocks: 59 s, for example,
// for a job that runs every minute. If atLeast is much shorter, a short job can run on several hosts in each period.
// Each host requests the lock when the job is due by the host's own clock. The times of a gocron.DurationJob count from
// the start of its process. Because atLeast depends on the period, jobs with different periods need different Lockers,
// passed with gocron.WithDistributedJobLocker.
//
// NewLocker returns an error if s is nil, or if atLeast is not between 1 ms and driver.MaxDuration. With 1 ms, the lock
// is released when the job ends.
func NewLocker(s *dsync.Session, atLeast time.Duration, opt *LockerOptions) (*Locker, error) {
	if s == nil {
		return nil, errors.New("gocron: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	if atLeast < time.Millisecond || atLeast > driver.MaxDuration {
		return nil, fmt.Errorf("gocron: atLeast is %v; it must be from 1ms to %v, and should be nearly the job's period", atLeast, driver.MaxDuration)
	}
	l := &Locker{s: s, atLeast: atLeast}
	if opt != nil {
		l.opt = *opt
	}
	if l.opt.Prefix == "" {
		l.opt.Prefix = defaultPrefix
	}
	return l, nil
}

// Lock locks the job of that name. If it returns an error, gocron does not run the job. The error is a *dsync.HeldError
// if the lock is held, or the store's error. Lock does not wait for another process, because the job would then run on
// both processes.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	key := l.opt.Prefix + name
	if err := dsync.CheckKey(key); err != nil {
		return nil, fmt.Errorf("gocron: lock of job %q: %w", name, err)
	}
	hold, err := l.s.Mutex(key).TryHold(ctx)
	if err != nil {
		return nil, fmt.Errorf("gocron: lock of job %q: %w", name, err)
	}
	return &lock{hold: hold, until: time.Now().Add(l.atLeast)}, nil
}

// A lock is the lock of a running job.
type lock struct {
	hold  *dsync.Hold
	until time.Time // the lock is held at least until then
}

// Unlock releases the lock at once, or at l.until if that is later. It returns dsync.ErrLost if the lock was already
// lost, or ctx's error; gocron ignores errors of Unlock.
func (l *lock) Unlock(ctx context.Context) error {
	if left := time.Until(l.until); left > 0 {
		return l.hold.ReleaseAfter(ctx, min(left+time.Millisecond, driver.MaxDuration)) // the store counts whole milliseconds
	}
	return l.hold.Release(ctx)
}
