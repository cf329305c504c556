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

// AddPeriodic adds a job to c that, like a dsync.Periodic, runs once at each time of its spec among all processes: if
// f returns an error, or its process dies or loses the hold, another process that waits runs f for that time. The
// tick is the time for which cron has scheduled the run, however late the run begins. So the clocks of hosts may
// differ, within the limits that dsync.Periodic documents. All processes must use the same spec, in the same time
// zone.
//
// When a job is due by a process's clock, but f runs elsewhere or the store is unreachable, the process waits and
// continues when it can. Runs never overlap. cron.Cron.Stop ends that wait, within about a second, but does not
// interrupt f. The context passed to f ends when the hold is lost. The Logger gets f's errors and those of the store,
// and, as Info, that a run was not needed or that c was stopped before it began.
//
// If a chain delays or skips runs because one is still in progress (cron.DelayIfStillRunning,
// cron.SkipIfStillRunning), f is called for their ticks, in order, as soon as that run has ended. If f can take
// longer than its period and should not catch up, let it return nil for a tick that is too old.
//
// If clocks are changed, as for daylight saving time, a spec that names hours still has each time of the day once.
// All times that the change skips together become one tick, at the moment of the change. A time that occurs twice is
// a tick only the first time. A spec whose hour is "*" follows the time that passes: it has no tick for an hour that
// is skipped, and ticks in both hours when one is repeated.
//
// The error is that of cron.Cron.AddJob, or says that the spec has no times that all processes compute alike:
// "@every 1h" counts from the start of each process. AddPeriodic panics if the name, with the prefix, is not a valid
// key. Do not use the name for another job of this package.
func (l *Locker) AddPeriodic(c *cron.Cron, spec, name string, f func(ctx context.Context, tick time.Time) error) (cron.EntryID, error) {
	l.checkName(name)
	parsed, err := c.AddJob(spec, cron.FuncJob(func() {})) // the parser is c's own
	if err != nil {
		return 0, err
	}
	schedule := c.Entry(parsed).Schedule
	c.Remove(parsed)
	if _, relative := schedule.(cron.ConstantDelaySchedule); relative {
		return 0, fmt.Errorf("robfigcron: the spec %q counts from the start of the process, so each has times of its own; use one with times of the day, such as \"0 * * * *\"", spec)
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
	errNotDue  = errors.New("cron has begun no run for which f has not been called")
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

// Run runs f for the times that are due. There are several if the chain has delayed or skipped runs, and none if
// another call has already run f for this call's time.
func (p *periodic) Run() {
	p.c.Entries() // cron calls schedule.Next just after it has begun this run, and answers after that
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

// begun is a schedule that remembers the times for which cron has begun a run. A run cannot find out its own time:
// when it gets through the chain, cron may already have begun others.
type begun struct {
	cron.Schedule

	mu   sync.Mutex
	next time.Time
	due  []time.Time // the times for which runs have begun, and which no run has taken yet
}

// Next returns the next time. cron calls it when it has begun the run for the previous time.
func (b *begun) Next(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.next.IsZero() && !b.next.After(now) {
		b.due = append(b.due, b.next)
	}
	b.next = b.Schedule.Next(now)
	return b.next
}

// drop drops the times that are due; other processes run them.
func (b *begun) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = nil
}

// take takes the first time that is due; more says that there are others.
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
