package robfigcron_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/adapters/robfigcron"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// B35: on hosts whose clocks differ, a job runs once in each period, even if the job has ended before the other host
// requests the lock. If the lock were held only while a short job runs, the job would run on both hosts.
func TestJobRunsOncePerPeriod(t *testing.T) {
	const period, periods = time.Minute, 20
	tests := []struct {
		name         string
		apart, takes time.Duration
		atLeast      time.Duration
		wantRuns     int
	}{
		{"long job", 2 * time.Second, 5 * time.Second, time.Millisecond, periods},
		{"short job, lock held at least", 2 * time.Second, 10 * time.Millisecond, 30 * time.Second, periods},
		{"short job, lock free at its end", 2 * time.Second, 10 * time.Millisecond, time.Millisecond, 2 * periods},
		{"long job, lock held at least", 2 * time.Second, 5 * time.Second, time.Second, periods},
		{"at the same time", 0, 10 * time.Millisecond, 30 * time.Second, periods},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				var r runs
				for range 2 {
					l, _ := newLocker(t, store, robfigcron.Options{})
					schedule(t, period, l.JobWrapper("report", tt.atLeast)(cron.FuncJob(r.job(tt.takes))))
					time.Sleep(tt.apart)
				}
				time.Sleep(periods*period + period/2)
				n, overlap := r.count()
				if n != tt.wantRuns {
					t.Errorf("the job ran %d times in %d periods, want %d", n, periods, tt.wantRuns)
				}
				if overlap {
					t.Error("the job ran twice at the same time")
				}
			})
		})
	}
}

// The times of "@every" count from the start of each process. If atLeast is nearly the period, the job still runs
// once in each period, on whichever process is first. If atLeast is short, the job runs once in each period on every
// process.
func TestJobOfProcessesThatStartedApart(t *testing.T) {
	const period, periods = time.Minute, 60
	for atLeast, want := range map[time.Duration]int{59 * time.Second: periods, time.Millisecond: 4 * periods} {
		synctest.Test(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			var r runs
			for range 4 {
				l, _ := newLocker(t, store, robfigcron.Options{})
				schedule(t, period, l.JobWrapper("report", atLeast)(cron.FuncJob(r.job(10*time.Millisecond))))
				time.Sleep(period / 4)
			}
			time.Sleep(periods*period - period/8) // until each process has requested the lock once in each period
			if n, _ := r.count(); n != want {
				t.Errorf("with atLeast %v the job ran %d times in %d periods on 4 processes, want %d", atLeast, n, periods, want)
			}
		})
	}
}

// Runs that overlap in one process exclude each other.
func TestRunsOfOneProcessExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r runs
		l, log := newLocker(t, dsynctest.NewMemory(), robfigcron.Options{})
		schedule(t, time.Minute, l.JobWrapper("report", time.Millisecond)(cron.FuncJob(r.job(90*time.Second))))
		time.Sleep(150 * time.Second) // a run begins after 1 minute and is still running after 2
		if n, overlap := r.count(); n != 1 || overlap {
			t.Errorf("the job ran %d times, overlapping: %t; want once", n, overlap)
		}
		log.want(t, "info skip")
	})
}

// The store keeps the lock for the time atLeast from the start of the run, even if the process ends, but no longer.
func TestLockIsHeldAtLeast(t *testing.T) {
	for _, takes := range []time.Duration{0, 10 * time.Second, 40 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const atLeast = 30 * time.Second
				store := dsynctest.NewMemory()
				first, other := newSession(t, store), newSession(t, store)
				l, err := robfigcron.NewLocker(first, nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				l.JobWrapper("report", atLeast)(cron.FuncJob(func() { time.Sleep(takes) })).Run()
				first.Close(background)
				mu := other.Mutex("cron/report")
				mu.Lock()
				defer mu.Unlock()
				least := max(atLeast, takes)
				if held := time.Since(began); held < least || held > least+time.Second {
					t.Errorf("another process got the lock after %v, want %v", held, least)
				}
			})
		})
	}
}

// The context of a run ends at least the session's grace before another process gets the lock.
func TestContextEndsBeforeAnotherRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = ttl / 10
		store := dsynctest.NewMemory()
		link := dsynctest.NewFaulty(store, nil)
		defer link.Close()
		first, log := newLocker(t, link, robfigcron.Options{})
		other, _ := newLocker(t, store, robfigcron.Options{})
		var ended time.Time
		done := make(chan struct{})
		go func() {
			defer close(done)
			first.Job("report", time.Millisecond, func(ctx context.Context) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Hour):
				}
				ended = time.Now()
				if cause := context.Cause(ctx); !errors.Is(cause, dsync.ErrLost) {
					t.Errorf("the context's cause is %v, want ErrLost", cause)
				}
			}).Run()
		}()
		synctest.Wait()
		link.Cut()
		var began time.Time
		job := other.Job("report", time.Millisecond, func(context.Context) { began = time.Now() })
		for began.IsZero() {
			job.Run()
			time.Sleep(100 * time.Millisecond)
		}
		<-done
		if before := began.Sub(ended); ended.IsZero() || before < grace {
			t.Errorf("the context ended %v before the other process ran the job, want at least %v", before, grace)
		}
		log.want(t, "error unlock: lost")
	})
}

// If the store can't be reached, the run is skipped soon, and an error is logged.
func TestUnreachableStoreSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer link.Close()
		l, log := newLocker(t, link, robfigcron.Options{})
		link.Cut()
		began := time.Now()
		l.Job("report", time.Millisecond, func(context.Context) { t.Error("the job ran although the store can't be reached") }).Run()
		if took := time.Since(began); took > ttl {
			t.Errorf("the run was skipped only after %v, want at most the TTL", took)
		}
		log.want(t, "error skip: other")
	})
}

// A panic of the job is not recovered, and leaves no lock behind.
func TestPanicPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		l, log := newLocker(t, store, robfigcron.Options{})
		chain := cron.NewChain(cron.Recover(log), l.JobWrapper("report", time.Millisecond))
		chain.Then(cron.FuncJob(func() { panic("broken") })).Run()
		log.want(t, "error panic: other")
		time.Sleep(2 * time.Millisecond)
		if mu := newSession(t, store).Mutex("cron/report"); !mu.TryLock() {
			t.Error("the lock is still held after the panic")
		} else {
			mu.Unlock()
		}
	})
}

// Invalid arguments are refused.
func TestMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := robfigcron.NewLocker(nil, nil); err == nil {
			t.Error("NewLocker accepted a nil session")
		}
		s := newSession(t, dsynctest.NewMemory())
		l, err := robfigcron.NewLocker(s, &robfigcron.Options{Prefix: "jobs/", Logger: cron.DiscardLogger})
		if err != nil {
			t.Fatal(err)
		}
		panics := func(what, want string, f func()) {
			t.Helper()
			defer func() {
				t.Helper()
				if r, _ := recover().(string); !strings.Contains(r, want) {
					t.Errorf("%s: the panic is %q, want it to contain %s", what, r, want)
				}
			}()
			f()
		}
		panics("JobWrapper of a name that is no key", `"a\x00b"`, func() { l.JobWrapper("a\x00b", time.Minute) })
		panics("Job of a name that is no key", `"a\x00b"`, func() { l.Job("a\x00b", time.Minute, nil) })
		for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, driver.MaxDuration + 1} {
			want := "atLeast is " + d.String()
			panics("JobWrapper", want, func() { l.JobWrapper("report", d) })
			panics("Job", want, func() { l.Job("report", d, nil) })
		}
		l.Job("report", time.Millisecond, func(context.Context) {
			if st, err := admin.New(s).Status(background, "jobs/report"); err != nil || !st.Held() {
				t.Errorf("the key with the prefix is not held: %v, %v", st, err)
			}
		}).Run()
	})
}
