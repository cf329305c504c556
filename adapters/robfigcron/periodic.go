package robfigcron

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// AddPeriodic adds a job to c that runs once at each time of its spec among all processes, as
// dsync.Periodic has it: if f returns an error, or its process dies or loses the hold, another process
// runs f for that time. The tick is the time for which cron has scheduled the run, cron.Entry.Prev. So the
// clocks of hosts may be hours off. All processes must use the same spec, in the same time zone.
//
// A process whose clock says that it is time waits while f runs elsewhere, or while the store is
// unreachable, and goes on when it can. Runs never overlap. The context passed to f ends when the hold is
// lost. The Logger gets f's errors, those of the store, and, as Info, that a run was not needed.
// [Options].AtLeast does not apply.
//
// The error is that of cron.Cron.AddJob, or says that the spec has no times that all processes
// compute alike: "@every 1h" counts from the start of each process. AddPeriodic panics if the name, with
// the prefix, is not a valid key. A name must not be used for another job of this package as well.
func (l *Locker) AddPeriodic(c *cron.Cron, spec, name string, f func(ctx context.Context, tick time.Time) error) (cron.EntryID, error) {
	l.checkName(name)
	p := l.s.Periodic(l.opt.Prefix + name)
	var id cron.EntryID
	added := make(chan struct{}) // closed when id is set
	defer close(added)
	id, err := c.AddJob(spec, cron.FuncJob(func() {
		<-added
		tick := c.Entry(id).Prev
		ran, err := p.Do(context.Background(), tick, func(ctx context.Context) error { return f(ctx, tick) })
		switch {
		case err != nil:
			l.opt.Logger.Error(err, "run", "job", name, "tick", tick, "ran", ran)
		case !ran:
			l.opt.Logger.Info("skip", "job", name, "tick", tick, "reason", "it is over")
		}
	}))
	if err != nil {
		return 0, err
	}
	if _, relative := c.Entry(id).Schedule.(cron.ConstantDelaySchedule); relative {
		c.Remove(id)
		return 0, fmt.Errorf("robfigcron: the spec %q counts from the start of the process, so each has times of its own; use one with times of the day, such as \"0 * * * *\"", spec)
	}
	return id, nil
}
