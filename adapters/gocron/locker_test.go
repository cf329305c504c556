package gocron_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	dsyncgocron "github.com/leasehold-go/leasehold/adapters/gocron"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// B35: two schedulers whose clocks differ run a job once in each period, even if the job has ended before the other
// scheduler requests the lock. If the lock were held only while a short job runs, the job would run on both.
func TestLockerRunsAJobOncePerPeriod(t *testing.T) {
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
				begin := time.Now().Add(time.Second)
				var r runs
				for i := range 2 {
					locker, err := dsyncgocron.NewLocker(newSession(t, store), tt.atLeast, nil)
					if err != nil {
						t.Fatal(err)
					}
					schedule(t, begin.Add(time.Duration(i)*tt.apart), period, r.job(i, tt.takes), gocron.WithDistributedLocker(locker))
				}
				time.Sleep(periods * period)
				on0, on1 := r.count()
				if on0+on1 != tt.wantRuns {
					t.Errorf("the job ran %d and %d times in %d periods, want %d times in total", on0, on1, periods, tt.wantRuns)
				}
				if r.overlap {
					t.Error("the job ran twice at the same time")
				}
			})
		})
	}
}

// The times of a gocron.DurationJob count from the start of each process. If atLeast is nearly the period, the job
// still runs once in each period, on whichever process is first. If atLeast is short, the job runs once in each
// period on every process.
func TestLockerOfProcessesThatStartedApart(t *testing.T) {
	const period, periods = time.Minute, 60
	for atLeast, want := range map[time.Duration]int{59 * time.Second: periods, time.Millisecond: 4 * periods} {
		synctest.Test(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			begin := time.Now()
			var r runs
			for i := range 4 {
				locker, err := dsyncgocron.NewLocker(newSession(t, store), atLeast, nil)
				if err != nil {
					t.Fatal(err)
				}
				schedule(t, begin.Add(time.Second+time.Duration(i)*15*time.Second), period, r.job(i%2, 10*time.Millisecond), gocron.WithDistributedLocker(locker))
			}
			time.Sleep(periods * period)
			if on0, on1 := r.count(); on0+on1 != want {
				t.Errorf("with atLeast %v the job ran %d times in %d periods on 4 processes, want %d", atLeast, on0+on1, periods, want)
			}
		})
	}
}

// The store keeps the lock for the time atLeast from the start of the job, even if the process ends, but no longer.
func TestLockIsHeldAtLeast(t *testing.T) {
	for _, takes := range []time.Duration{0, 10 * time.Second, 40 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const atLeast = 30 * time.Second
				store := dsynctest.NewMemory()
				first, other := newSession(t, store), newSession(t, store)
				locker, err := dsyncgocron.NewLocker(first, atLeast, nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				lock, err := locker.Lock(background, "report")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(takes)
				if err := lock.Unlock(background); err != nil {
					t.Fatal(err)
				}
				first.Close(background)
				mu := other.Mutex("gocron/report")
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

// Lock returns these errors if it can't acquire the lock.
func TestLockerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := dsyncgocron.NewLocker(nil, time.Minute, nil); err == nil {
			t.Error("NewLocker accepted a nil session")
		}
		store := dsynctest.NewMemory()
		s := newSession(t, store)
		for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, driver.MaxDuration + 1} {
			if _, err := dsyncgocron.NewLocker(s, d, nil); err == nil {
				t.Errorf("NewLocker accepted %v as atLeast", d)
			}
		}
		locker, err := dsyncgocron.NewLocker(s, time.Minute, &dsyncgocron.LockerOptions{Prefix: "jobs/"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Lock(background, "a\x00b"); !errors.Is(err, dsync.ErrInvalidKey) {
			t.Errorf("Lock of a name that is not a valid key returned %v, want ErrInvalidKey", err)
		}
		lock, err := locker.Lock(background, "report")
		if err != nil {
			t.Fatal(err)
		}
		if st, err := admin.New(s).Status(background, "jobs/report"); err != nil || !st.Held() {
			t.Errorf("the key with the prefix is not held: %v, %v", st, err)
		}
		began := time.Now()
		var held *dsync.HeldError
		if _, err := locker.Lock(background, "report"); !errors.As(err, &held) {
			t.Errorf("Lock of a job that is locked returned %v, want a HeldError", err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the second Lock waited for %v, want no wait", waited)
		}
		go admin.New(s).Break(background, "jobs/report")
		time.Sleep(ttl / 2)
		if err := lock.Unlock(background); !errors.Is(err, dsync.ErrLost) {
			t.Errorf("Unlock of a lost lock returned %v, want ErrLost", err)
		}
	})
}
