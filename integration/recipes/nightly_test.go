package recipes_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// nights returns the last 02:00 by the clocks of the zone, which is due, and the next.
func nights(now time.Time, zone *time.Location) (due, next time.Time) {
	year, month, day := now.In(zone).Date()
	for ; ; day++ {
		next = time.Date(year, month, day, 2, 0, 0, 0, zone)
		if next.After(now) {
			return time.Date(year, month, day-1, 2, 0, 0, 0, zone), next
		}
	}
}

func nightly(ctx context.Context, p *dsync.Periodic, zone *time.Location, job func(context.Context, time.Time) error) {
	for ctx.Err() == nil {
		tick, next := nights(time.Now(), zone)
		_, err := p.Do(ctx, tick, func(ctx context.Context) error { return job(ctx, tick) })
		wait := time.Until(next) // the job may have taken hours
		if err != nil {
			slog.Error("the nightly job", "tick", tick, "err", err)
			wait = min(wait, 10*time.Minute) // it has failed here, and maybe on all hosts
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// One run succeeds each night, even if all hosts fail at first, and even if the clocks change that
// night. A job that takes hours still begins on time each night.
func TestNightly(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for _, begin := range []time.Time{time.Date(2000, 3, 30, 12, 0, 0, 0, newYork), time.Date(2000, 10, 26, 12, 0, 0, 0, newYork)} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(begin))
			store := dsynctest.NewMemory()
			ctx, cancel := context.WithCancel(context.Background())
			var mu sync.Mutex
			var nights []string // nights of successful runs
			failed := 0
			var wg sync.WaitGroup
			for range 3 {
				locks, err := dsync.New(store, &dsync.Options{TTL: time.Hour}) // so that heartbeats are rare and the test is fast
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { locks.Close(context.Background()) })
				wg.Go(func() {
					nightly(ctx, locks.Periodic("nightly"), newYork, func(_ context.Context, tick time.Time) error {
						mu.Lock()
						fails, first := failed < 4, len(nights) == 0
						if fails {
							failed++
						}
						mu.Unlock()
						if fails {
							return errors.New("it fails")
						}
						if late := time.Since(tick); !first && late > time.Minute {
							t.Errorf("the run for %v began %v late", tick, late)
						}
						time.Sleep(3 * time.Hour) // don't hold mu here: a bubble's time stops while a goroutine waits for a mutex
						mu.Lock()
						defer mu.Unlock()
						nights = append(nights, tick.In(newYork).Format(time.DateOnly))
						return nil
					})
				})
			}
			time.Sleep(7 * 24 * time.Hour)
			cancel()
			wg.Wait()
			var want []string
			for day := range 8 { // the first is the night before the time begin, because its tick was still due
				want = append(want, begin.AddDate(0, 0, day).Format(time.DateOnly))
			}
			if mu.Lock(); !slices.Equal(nights, want) {
				t.Errorf("the nights of the runs that succeeded: %q, want %q", nights, want)
			}
			mu.Unlock()
		})
	}
}
