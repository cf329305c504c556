package dsync

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Periodic runs a function once for each tick among all processes: a nightly job, for example. It is made by
// [Session.Periodic]. A tick is the time for which a run is scheduled, such as 02:00 of a day. All processes must
// compute it alike, from the schedule. Then at most one run succeeds for each tick, whatever the clocks of their
// hosts say. Once a run has succeeded, its tick and all earlier ones are over. The store keeps the last tick that
// succeeded, and its result, until somebody calls Inspector.Forget of package dsync/admin.
//
// For a local time such as 02:00, call [time.Date] with the same named zone in all processes, not with time.Local.
// For an interval, a tick is a fixed time plus a multiple of the interval.
//
// As with [Once], more than one run may begin for a tick. A Periodic calls nothing by itself. If f fails, the
// processes that wait for the tick call their own functions, one after another, until one succeeds. If none does,
// nothing runs until somebody calls Do with the tick again. docs/recipes.md has a loop for that.
//
// Runs do not overlap, and waiters are served in the order of their ticks. A tick is missed if nobody waits for it
// when a run for a later tick begins, and that run succeeds. [Periodic.Last] shows missed ticks: a run can begin
// where the last successful run has ended.
type Periodic struct{ t ticks }

// String returns the kind and the key, such as `periodic "nightly"`.
func (p *Periodic) String() string { return fmt.Sprintf("%s %q", driver.KindPeriodic, p.t.key) }

// Do calls f unless the tick is over, that is unless a run has succeeded for it or for a later tick. When f returns
// nil, the tick is over. ran reports whether Do has called f. Otherwise Do is like [Once.Do].
//
// The tick must be in whole milliseconds, which keeps out time.Now(), later than the start of 1970, and at most 50
// years ahead of the store's clock.
func (p *Periodic) Do(ctx context.Context, tick time.Time, f func(context.Context) error) (ran bool, err error) {
	_, ran, err = p.DoValue(ctx, tick, func(ctx context.Context) ([]byte, error) { return nil, f(ctx) })
	return ran, err
}

// DoValue is Do for a function that returns a result of up to 64 KiB, such as how far the run has come. It returns
// the result of the last run that succeeded: this one, or one in any process for the same or a later tick.
func (p *Periodic) DoValue(ctx context.Context, tick time.Time, f func(context.Context) ([]byte, error)) (value []byte, ran bool, err error) {
	t := p.ticks()
	ms, err := engine.TickAt(tick)
	if err != nil {
		return nil, false, fmt.Errorf("dsync: periodic %q: %w", p.t.key, err)
	}
	last, ran, err := t.do(ctx, ms, f) // ask the store each time, because the key may have been forgotten since
	if err != nil {
		return nil, ran, err
	}
	return last.Result(), ran, nil
}

// Last returns the last tick for which a run has succeeded, in UTC, and the result of that run. The tick is
// zero if there is none. Errors are those of ctx, [ErrClosed] and those of the store.
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
