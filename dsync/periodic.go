package dsync

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Periodic runs a function once for each tick among all processes: a nightly job, for example. A tick
// is the time for which a run is scheduled, such as 02:00 of a day. All processes must compute it alike,
// from the schedule: then at most one run succeeds for each tick, whatever their clocks say when they call. Once a run
// has succeeded, its tick and all earlier ones are over, whenever anybody calls. The store keeps the last tick
// that succeeded, and its result, until Forget of package dsync/admin.
//
// A local time such as 02:00 becomes a tick with time.Date in a zone that all processes name: not time.Local, which
// each host sets. On a day on which clocks skip that time or show it twice, time.Date returns a time near it, or one
// of the two, the same on all hosts. For the tick of an interval, take a fixed time and add multiples.
//
// Make a Periodic with [Session.Periodic]; using a zero Periodic panics. It must not be copied. All
// methods may be called concurrently.
//
// At most one run succeeds for each tick, but more than one may begin: if a run fails, or its process
// dies or loses its hold, the next caller with that tick runs its function. So a run must be able to
// continue where another broke off. Guard effects that must not happen twice with the run's fencing
// token; see [HoldFrom].
//
// A Periodic calls nothing by itself. If f fails, each process that waits with the tick calls its own function, once. If
// it fails in all of them, the tick is not over, but nobody tries again until somebody calls Do with it. docs/recipes.md
// has a loop that does.
//
// Runs do not overlap. Those who wait are served in the order of their ticks. A tick is missed if nobody waits for it
// when a run for a later one begins, and succeeds. That happens if nobody has called for it: processes that catch up in a
// loop call for one tick after the other, and another process may wait for the present one meanwhile. It also happens if
// those who have called can't reach the store, or if a process whose clock is ahead by more than a period has called
// first. [Periodic.Last] shows it: a run can begin where the last one that succeeded has ended.
type Periodic struct{ t ticks }

// String returns the kind and the key, such as `periodic "nightly"`.
func (p *Periodic) String() string { return fmt.Sprintf("%s %q", driver.KindPeriodic, p.t.key) }

// Do calls f unless the tick is over, that is unless a run has succeeded for it or for a later tick.
// When f returns nil, the tick is over. While another run is in progress, here or elsewhere, Do waits
// for it: if the tick is over then, Do returns without calling f; if not, Do may run f next. ctx bounds
// the wait. The context passed to f ends with ctx and with the hold. ran reports whether Do has called f.
// So if err is nil, the tick is over, and ran says whether by this call.
//
// The tick must be after 1970 and a whole number of milliseconds; otherwise Do returns an error at once.
// That keeps out time.Now(), which no other process would compute. Do also returns an error if the tick is more than
// [MaxDuration] ahead of the store's clock. If a run succeeds for a tick that lies in the future by mistake, all ticks
// before it are over. Then use Forget of package dsync/admin: from then on they can run, in all processes.
//
// f runs on the calling goroutine. If it panics or calls runtime.Goexit, the run has failed.
// The error is f's, joined with [ErrLost] if the hold ended before f returned: then the run
// does not count, even if f returned nil. Other errors are those of [Mutex.LockContext].
//
// If ctx ends before the store has confirmed that the run counts, Do returns ctx's error and goes on to
// record it in the background. If the hold is lost before that, Do returns ErrLost; the next Do for the
// tick, or [Periodic.Last], shows whether the run counts.
func (p *Periodic) Do(ctx context.Context, tick time.Time, f func(context.Context) error) (ran bool, err error) {
	_, ran, err = p.DoValue(ctx, tick, func(ctx context.Context) ([]byte, error) { return nil, f(ctx) })
	return ran, err
}

// DoValue is Do for a function that returns a result of up to 64 KiB: how far it has come, for example, so that the
// next run can begin there. DoValue returns the result of the last run that succeeded, whether that is this run or one
// of a later tick, in this process or another. [Periodic.Last] returns it, too.
func (p *Periodic) DoValue(ctx context.Context, tick time.Time, f func(context.Context) ([]byte, error)) (value []byte, ran bool, err error) {
	t := p.ticks()
	ms, err := engine.TickAt(tick)
	if err != nil {
		return nil, false, fmt.Errorf("dsync: periodic %q: %w", p.t.key, err)
	}
	last, ran, err := t.do(ctx, ms, f) // asks the store each time, since a forgotten key must reach all processes
	if err != nil {
		return nil, ran, err
	}
	return last.Result(), ran, nil
}

// Last returns the last tick for which a run has succeeded, in UTC, and the result of that run. The tick
// is zero if there is none. A run in progress does not count. Errors are those of ctx, [ErrClosed] and
// those of the store.
func (p *Periodic) Last(ctx context.Context) (tick time.Time, value []byte, err error) {
	last, err := p.ticks().read(ctx)
	if last == nil {
		return time.Time{}, nil, err
	}
	return time.UnixMilli(last.Tick).UTC(), last.Result(), nil
}

func (p *Periodic) ticks() *ticks {
	if p.t.s == nil {
		panic("dsync: use of a zero Periodic; make one with Session.Periodic")
	}
	return &p.t
}
