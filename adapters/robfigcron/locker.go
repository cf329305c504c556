package robfigcron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/dsync"
)

const (
	defaultPrefix = "cron/"

	// releaseWait is how long the end of a run waits for its release, which then goes on
	// in the background.
	releaseWait = 10 * time.Second
)

// Options are the settings of a [Locker]. The zero value of each field is its default; a
// nil *Options is all defaults.
type Options struct {
	// AtLeast is the time for which a job's lock is held from the start of its run, even
	// if the run ends earlier. No other process begins the job within that time. It
	// should exceed the difference between the hosts' clocks, and be less than the job's
	// period by as much. The store keeps the lock, also after this process has ended,
	// but not if it dies during the run. It is 0 or from 1 ms to dsync.MaxDuration. Default 0:
	// the lock is free when the run ends, and a short job may run once on each of
	// several hosts.
	AtLeast time.Duration

	// Prefix comes before the name of a job in the key of its lock, to keep these keys
	// apart from those of other locks. Default "cron/".
	Prefix string

	// Logger logs, as Info, that a job runs elsewhere, and as errors that its lock can't
	// be had, was lost or can't be released. Default cron.DefaultLogger, which logs only
	// errors.
	Logger cron.Logger
}

// A Locker runs jobs under locks that all processes share. Make one with [NewLocker]. All
// methods may be called concurrently.
type Locker struct {
	s   *dsync.Session
	opt Options
}

// NewLocker returns a Locker on s. It does not contact the store. It refuses a nil
// session, and an AtLeast that is neither 0 nor from 1 ms to dsync.MaxDuration.
func NewLocker(s *dsync.Session, opt *Options) (*Locker, error) {
	if s == nil {
		return nil, errors.New("robfigcron: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	l := &Locker{s: s}
	if opt != nil {
		l.opt = *opt
	}
	if d := l.opt.AtLeast; d != 0 && (d < time.Millisecond || d > dsync.MaxDuration) {
		return nil, fmt.Errorf("robfigcron: AtLeast is %v; it must be from 1ms to %v (0: not at all)", d, dsync.MaxDuration)
	}
	if l.opt.Prefix == "" {
		l.opt.Prefix = defaultPrefix
	}
	if l.opt.Logger == nil {
		l.opt.Logger = cron.DefaultLogger
	}
	return l, nil
}

// JobWrapper returns a wrapper for the job of that name. If somebody holds its lock, the wrapped
// job does not wait for it, and that run is skipped. Two runs that
// overlap in one process exclude each other, too. A wrapper is for one job; two jobs with
// one name would exclude each other. JobWrapper panics if the name, with the prefix, is
// not a valid key: see dsync.CheckKey.
//
// In a chain, put cron.Recover before it: a panic of the job passes, after its lock is
// released.
func (l *Locker) JobWrapper(name string) cron.JobWrapper {
	l.checkName(name)
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() { l.run(name, func(context.Context) { j.Run() }) })
	}
}

// Job returns a job of that name which calls f under the lock, as [Locker.JobWrapper]
// does. The context passed to f ends when the hold is lost, at least the session's grace
// before another process can begin the job; the cause is then dsync.ErrLost.
func (l *Locker) Job(name string, f func(ctx context.Context)) cron.Job {
	l.checkName(name)
	return cron.FuncJob(func() { l.run(name, f) })
}

func (l *Locker) checkName(name string) {
	if err := dsync.CheckKey(l.opt.Prefix + name); err != nil {
		panic(fmt.Sprintf("robfigcron: job %q: %v", name, err))
	}
}

// run calls f if the lock of that name is free.
func (l *Locker) run(name string, f func(context.Context)) {
	// Each run has its own Mutex: an earlier run in this process may not have ended.
	mu := l.s.Mutex(l.opt.Prefix + name)
	ctx := context.Background()
	if err := mu.TryLockContext(ctx); errors.Is(err, dsync.ErrHeld) {
		l.opt.Logger.Info("skip", "job", name, "reason", err)
		return
	} else if err != nil {
		l.opt.Logger.Error(err, "skip", "job", name)
		return
	}
	until := time.Now().Add(l.opt.AtLeast)
	defer func() { // also when f panics
		if err := unlock(mu, until); err != nil {
			l.opt.Logger.Error(err, "unlock", "job", name)
		}
	}()
	held, cancel := mu.Context(ctx)
	defer cancel()
	f(held)
}

// unlock frees the lock, then or at until.
func unlock(mu *dsync.Mutex, until time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	if left := time.Until(until); left > 0 {
		return mu.UnlockAfter(ctx, min(left+time.Millisecond, dsync.MaxDuration)) // the store counts whole ones
	}
	return mu.UnlockContext(ctx)
}
