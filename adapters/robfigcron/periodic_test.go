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

// On hosts whose clocks differ, a periodic job succeeds once at each time, even if it is very short, and even if the
// first host's run fails.
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
				t.Errorf("the job succeeded %d times, want once in each of 20 minutes: %v", len(good), good)
			}
		})
	}
}

// AddPeriodic refuses a schedule that each process counts from its own start, because such a schedule has no ticks. A
// call of Run that does not come from cron has no tick either, so it does not call f.
func TestPeriodicNeedsTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := newLocker(t, dsynctest.NewMemory(), robfigcron.Options{})
		c := cron.New()
		nothing := func(context.Context, time.Time) error { return nil }
		if _, err := l.AddPeriodic(c, "@every 1h", "report", nothing); err == nil || !strings.Contains(err.Error(), "@every 1h") || len(c.Entries()) > 0 {
			t.Errorf("AddPeriodic of @every 1h returned %v and left %d entries, want an error that quotes the spec, and no entry", err, len(c.Entries()))
		}
		if _, err := l.AddPeriodic(c, "nonsense", "report", nothing); err == nil {
			t.Error("AddPeriodic accepted an invalid spec")
		}
		id, err := l.AddPeriodic(c, "@hourly", "report", func(context.Context, time.Time) error {
			t.Error("a run that cron has not begun called f")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Entry(id).WrappedJob.Run()
		log.want(t, "info skip")
	})
}

// delay is cron.DelayIfStillRunning with a channel instead of a sync.Mutex, because waiting for a mutex stops the
// clock of a bubble.
func delay(cron.Logger) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		turn := make(chan struct{}, 1)
		return cron.FuncJob(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			j.Run()
		})
	}
}

// B43: a chain that delays or skips runs while another run is in progress loses no tick, and keeps the order of the
// ticks.
func TestPeriodicMakesUpForDelayedRuns(t *testing.T) {
	for name, wrapper := range map[string]func(cron.Logger) cron.JobWrapper{"delay": delay, "skip": cron.SkipIfStillRunning} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l, _ := newLocker(t, dsynctest.NewMemory(), robfigcron.Options{})
				c := cron.New(cron.WithLogger(cron.DiscardLogger), cron.WithChain(wrapper(cron.DiscardLogger)))
				var ticks []time.Time
				_, err := l.AddPeriodic(c, "* * * * *", "report", func(_ context.Context, tick time.Time) error {
					ticks = append(ticks, tick)
					if len(ticks)%5 == 1 {
						time.Sleep(150 * time.Second)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				c.Start()
				time.Sleep(20*time.Minute + 30*time.Second)
				<-c.Stop().Done()
				var want []time.Time
				for i := range 20 {
					want = append(want, began.Truncate(time.Minute).Add(time.Duration(i+1)*time.Minute))
				}
				if !slices.EqualFunc(ticks, want, time.Time.Equal) {
					t.Errorf("in 20 minutes f ran for the ticks %v, want one for each minute", ticks)
				}
			})
		})
	}
}

// B43: Stop ends the waiting runs within about a second, and leaves their ticks to the other processes. It does not
// interrupt a run that is in progress.
func TestStopEndsRunsThatWait(t *testing.T) {
	waits := []struct {
		name string
		wait func(t *testing.T, store *dsynctest.Memory, faulty *dsynctest.Faulty)
	}{
		{"another process runs", func(t *testing.T, store *dsynctest.Memory, _ *dsynctest.Faulty) {
			p := newSession(t, store).Periodic("cron/report")
			go p.Do(background, time.UnixMilli(1000), func(context.Context) error { time.Sleep(time.Hour); return nil })
		}},
		{"the store is silent", func(_ *testing.T, _ *dsynctest.Memory, faulty *dsynctest.Faulty) { faulty.Cut() }},
	}
	for _, tt := range waits {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				faulty := dsynctest.NewFaulty(store, nil)
				defer faulty.Close()
				tt.wait(t, store, faulty)
				l, _ := newLocker(t, faulty, robfigcron.Options{})
				c := cron.New(cron.WithLogger(cron.DiscardLogger))
				if _, err := l.AddPeriodic(c, "* * * * *", "report", func(context.Context, time.Time) error {
					t.Error("f was called, want every run to wait until Stop")
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				c.Start()
				time.Sleep(5*time.Minute + 30*time.Second)
				stop := time.Now()
				<-c.Stop().Done()
				if took := time.Since(stop); took > 2*time.Second {
					t.Errorf("the waiting runs ended %v after Stop, want at most 2s", took)
				}
				faulty.Heal()
				time.Sleep(2 * time.Hour)
				if last, _, err := newSession(t, store).Periodic("cron/report").Last(background); err != nil || last.Unix() > 1 {
					t.Errorf("the store has the last tick %v (error %v), want none from the stopped runs", last, err)
				}
			})
		})
	}

	t.Run("f is running", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, _ := newLocker(t, dsynctest.NewMemory(), robfigcron.Options{})
			c := cron.New(cron.WithLogger(cron.DiscardLogger), cron.WithChain(delay(nil)))
			var ticks int
			if _, err := l.AddPeriodic(c, "* * * * *", "report", func(ctx context.Context, _ time.Time) error {
				ticks++
				select {
				case <-ctx.Done():
					t.Error("Stop has ended the context of a run")
				case <-time.After(10 * time.Minute):
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			c.Start()
			time.Sleep(5*time.Minute + 30*time.Second)
			<-c.Stop().Done()
			if ticks != 1 {
				t.Errorf("f was called %d times, want only the call that was in progress at Stop", ticks)
			}
		})
	})
}
