package robfigcron_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/adapters/robfigcron"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// late makes the jobs of a crontab begin late, as on a host whose clock is behind.
func late(d time.Duration) cron.Option {
	return cron.WithChain(func(j cron.Job) cron.Job {
		return cron.FuncJob(func() { time.Sleep(d); j.Run() })
	})
}

// On hosts whose clocks differ, a periodic job runs once at each time, however short it is, also if the first
// host fails.
func TestPeriodicRunsOncePerTick(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			var mu sync.Mutex
			var good []time.Time
			began := time.Now()
			for host, behind := range []time.Duration{0, 2 * time.Second, 50 * time.Second} {
				l, _ := newLocker(t, store, robfigcron.Options{})
				c := cron.New(cron.WithLogger(cron.DiscardLogger), late(behind))
				_, err := l.AddPeriodic(c, "* * * * *", "report", func(_ context.Context, tick time.Time) error {
					if fails && host == 0 {
						return errors.New("it fails here")
					}
					mu.Lock()
					defer mu.Unlock()
					good = append(good, tick)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				c.Start()
				defer func() { <-c.Stop().Done() }()
			}
			time.Sleep(20*time.Minute + 55*time.Second)
			mu.Lock()
			defer mu.Unlock()
			var want []time.Time
			for i := range 20 {
				want = append(want, began.Truncate(time.Minute).Add(time.Duration(i+1)*time.Minute))
			}
			if !slices.EqualFunc(good, want, time.Time.Equal) {
				t.Errorf("it succeeded %d times, want once in each of 20 minutes: %v", len(good), good)
			}
		})
	}
}

// A schedule that each process counts from its own start has no ticks; a job that cron has not begun has none
// either.
func TestPeriodicNeedsTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := newLocker(t, dsynctest.NewMemory(), robfigcron.Options{})
		c := cron.New()
		nothing := func(context.Context, time.Time) error { return nil }
		if _, err := l.AddPeriodic(c, "@every 1h", "report", nothing); err == nil || !strings.Contains(err.Error(), "@every 1h") || len(c.Entries()) > 0 {
			t.Errorf("@every 1h: %v, %d entries", err, len(c.Entries()))
		}
		if _, err := l.AddPeriodic(c, "nonsense", "report", nothing); err == nil {
			t.Error("no error for a spec that is nonsense")
		}
		id, err := l.AddPeriodic(c, "@hourly", "report", nothing)
		if err != nil {
			t.Fatal(err)
		}
		c.Entry(id).WrappedJob.Run()
		log.want(t, "error run: other")
	})
}
