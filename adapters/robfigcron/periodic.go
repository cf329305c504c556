package robfigcron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/dsync"
)

// AddPeriodic adds a job to c. Like a dsync.Periodic, the job runs on one of the processes for each time of its spec.
// If f returns an error, or its process dies or loses the hold, one of the waiting processes runs f for that time. The
// tick is the time for which cron has scheduled the run, however late the run begins. So hosts' clocks may differ
// within the limits that dsync.Periodic documents. All processes must use the same spec, in the same time zone.
//
// Runs never overlap. If f runs elsewhere or the store is unreachable when the job is due, the process waits.
// cron.Cron.Stop ends this wait within about a second, but does not interrupt f. The context passed to f ends when the
// hold is lost. The Logger gets the errors of f and of the store with Error. It gets an Info when a run was not needed,
// or when c was stopped before the run began.
//
// A chain with cron.DelayIfStillRunning or cron.SkipIfStillRunning delays or skips runs while an earlier run is still
// in progress. As soon as the earlier run has ended, f is called for the ticks of those runs, in order. If f can run
// for longer than its period and should not catch up, let it return nil for a tick that is too old.
//
// When clocks are changed, as for daylight saving time, a spec that names hours neither loses nor repeats a time of the
// day. All times that the change skips become a single tick, at the moment of the change. A time that occurs twice is a
// tick only the first time. A spec whose hour is "*" has no ticks in a skipped hour, and has ticks both times in a
// repeated hour.
//
// AddPeriodic returns the error of cron.Cron.AddJob. It also returns an error if the spec's times differ between
// processes: "@every 1h", for example, counts from the start of each process. AddPeriodic panics if the name, with the
// prefix, is not a valid key. Do not use the name for another job of this package.
func (l *Locker) AddPeriodic(c *cron.Cron, spec, name string, f func(ctx context.Context, tick time.Time) error) (cron.EntryID, error) {
	l.checkName(name)
	parsed, err := c.AddJob(spec, cron.FuncJob(func() {})) // only to parse spec with c's parser
	if err != nil {
		return 0, err
	}
	schedule := c.Entry(parsed).Schedule
	c.Remove(parsed)
	if _, relative := schedule.(cron.ConstantDelaySchedule); relative {
		return 0, fmt.Errorf("robfigcron: the spec %q counts from the start of the process, so each process has times of its own; use a spec with times of the day, such as \"0 * * * *\"", spec)
	}

	p := &periodic{l: l, c: c, name: name, f: f, p: l.s.Periodic(l.opt.Prefix + name)}
	p.schedule.Schedule = localTimes(schedule)
	id := c.Schedule(&p.schedule, p)
	return id, nil
}

// The reasons why a run did not call f.
var (
	errStopped = errors.New("cron was stopped")
	errOver    = errors.New("the tick is over")
	errNotDue  = errors.New("f has already been called for each run that cron has begun")
)

// A periodic is a job of [Locker.AddPeriodic].
type periodic struct {
	l        *Locker
	c        *cron.Cron
	name     string
	f        func(ctx context.Context, tick time.Time) error
	p        *dsync.Periodic
	schedule begun
}

// Run runs f for the times that are due. Several times are due if the chain has delayed or skipped runs. None is due if
// another call of Run has already run f for this call's time.
func (p *periodic) Run() {
	p.c.Entries() // returns only after cron has called schedule.Next; cron does that just after it has begun this run
	for n := 0; ; n++ {
		tick, more, ok := p.schedule.take()
		if !ok {
			if n == 0 {
				p.l.opt.Logger.Info("skip", "job", p.name, "reason", errNotDue)
			}
			return
		}
		if (more || n > 0) && stopped(p.c) || !p.run(tick) {
			p.skip(tick, errStopped)
			p.schedule.drop()
			return
		}
	}
}

// run runs f for the tick. It returns false if c was stopped before f began.
func (p *periodic) run(tick time.Time) bool {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	endWatch := watch(p.c, func() { cancel(errStopped) })
	defer endWatch()
	ran, err := p.p.Do(ctx, tick, func(ctx context.Context) error {
		endWatch() // from here on, stopping c waits for f
		if err := context.Cause(ctx); err == errStopped {
			return err
		}
		return p.f(ctx, tick)
	})
	switch {
	case context.Cause(ctx) == errStopped:
		return false
	case err != nil:
		p.l.opt.Logger.Error(err, "run", "job", p.name, "tick", tick, "ran", ran)
	case !ran:
		p.skip(tick, errOver)
	}
	return true
}

func (p *periodic) skip(tick time.Time, why error) {
	p.l.opt.Logger.Info("skip", "job", p.name, "tick", tick, "reason", why)
}

// begun is a schedule that remembers the times for which cron has begun a run. A run cannot compute its own time: while
// the chain delays it, cron may begin later runs.
type begun struct {
	cron.Schedule

	mu   sync.Mutex
	next time.Time
	due  []time.Time // the times for which cron has begun a run, minus those that runs have taken
}

// Next returns the next time. cron calls it after it has begun the run for the previous time.
func (b *begun) Next(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.next.IsZero() && !b.next.After(now) {
		b.due = append(b.due, b.next)
	}
	b.next = b.Schedule.Next(now)
	return b.next
}

// drop discards the times that are due; other processes run f for them.
func (b *begun) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = nil
}

// take removes and returns the first time that is due; more reports whether there are others.
func (b *begun) take() (tick time.Time, more, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.due) == 0 {
		return time.Time{}, false, false
	}
	tick = b.due[0]
	b.due = b.due[1:]
	return tick, len(b.due) > 0, true
}
