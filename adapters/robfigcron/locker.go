package robfigcron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	defaultPrefix = "cron/"

	// releaseWait is how long a run waits for the release of its lock. After that, the release
	// continues in the background.
	releaseWait = 10 * time.Second
)

// Options are the settings of a [Locker]. The zero value of each field is its default; a
// nil *Options is all defaults.
type Options struct {
	// Prefix is put before a job's name to form the key of its lock, so that the keys don't collide with other locks'
	// keys. Default "cron/".
	Prefix string

	// Logger gets an Info when a job runs elsewhere, and an Error when the job's lock can't be acquired, was lost or
	// can't be released. Default cron.DefaultLogger, which logs only errors.
	Logger cron.Logger
}

// A Locker runs jobs under locks that all processes share. Make one with [NewLocker]. All
// methods may be called concurrently.
type Locker struct {
	s   *dsync.Session
	opt Options
}

// NewLocker returns a Locker on s. It does not contact the store. It refuses a nil
// session.
func NewLocker(s *dsync.Session, opt *Options) (*Locker, error) {
	if s == nil {
		return nil, errors.New("robfigcron: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	l := &Locker{s: s}
	if opt != nil {
		l.opt = *opt
	}
	if l.opt.Prefix == "" {
		l.opt.Prefix = defaultPrefix
	}
	if l.opt.Logger == nil {
		l.opt.Logger = cron.DefaultLogger
	}
	return l, nil
}

// JobWrapper returns a wrapper for the job of that name. If the job's lock is held, even by another run in this
// process, the run is skipped. Use each wrapper and each name for one job only: jobs with the same name would exclude
// each other.
//
// The lock is held for the time atLeast from the start of a run, even if the run ends earlier. No other process begins
// the job within that time. The store keeps the lock even after this process has ended, but not if the process dies
// during the run. Choose the job's period minus the largest difference between hosts' clocks: 59 s, for example, for a
// job that runs every minute. If atLeast is much shorter, a short job can run on several hosts in each period. Each
// host requests the lock when the job is due by the host's own clock. The times of "@every 1h" count from the start of
// each process. With 1 ms, the lock is released when the run ends.
//
// JobWrapper panics if the name, with the prefix, is not a valid key: see dsync.CheckKey. It also panics if atLeast is
// not between 1 ms and driver.MaxDuration.
//
// In a chain, put cron.Recover before this wrapper. If the job panics, the wrapper releases the lock, but does not
// recover.
func (l *Locker) JobWrapper(name string, atLeast time.Duration) cron.JobWrapper {
	l.check(name, atLeast)
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() { l.run(name, atLeast, func(context.Context) { j.Run() }) })
	}
}

// Job returns a job that calls f under the lock of that name. The lock is held for the time atLeast, as with
// [Locker.JobWrapper]. If the lock is lost, the context passed to f ends with the cause dsync.ErrLost, at least the
// session's grace before another process can begin the job.
func (l *Locker) Job(name string, atLeast time.Duration, f func(ctx context.Context)) cron.Job {
	l.check(name, atLeast)
	return cron.FuncJob(func() { l.run(name, atLeast, f) })
}

func (l *Locker) check(name string, atLeast time.Duration) {
	l.checkName(name)
	if atLeast < time.Millisecond || atLeast > driver.MaxDuration {
		panic(fmt.Sprintf("robfigcron: job %q: atLeast is %v; it must be from 1ms to %v, and should be nearly the job's period", name, atLeast, driver.MaxDuration))
	}
}

func (l *Locker) checkName(name string) {
	if err := dsync.CheckKey(l.opt.Prefix + name); err != nil {
		panic(fmt.Sprintf("robfigcron: job %q: %v", name, err))
	}
}

// run calls f if the lock of that name is free.
func (l *Locker) run(name string, atLeast time.Duration, f func(context.Context)) {
	ctx := context.Background()
	h, err := l.s.Mutex(l.opt.Prefix + name).TryHold(ctx)
	if errors.Is(err, dsync.ErrHeld) {
		l.opt.Logger.Info("skip", "job", name, "reason", err)
		return
	} else if err != nil {
		l.opt.Logger.Error(err, "skip", "job", name)
		return
	}
	until := time.Now().Add(atLeast)
	defer func() { // even when f panics
		if err := release(h, until); err != nil {
			l.opt.Logger.Error(err, "unlock", "job", name)
		}
	}()
	f(h.Context(ctx))
}

// release frees the lock at the given time, or at once if that has passed.
func release(h *dsync.Hold, until time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	if left := time.Until(until); left > 0 {
		return h.ReleaseAfter(ctx, min(left+time.Millisecond, driver.MaxDuration)) // the store counts whole milliseconds
	}
	return h.Release(ctx)
}
