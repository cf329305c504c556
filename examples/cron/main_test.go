package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// At each tick the job runs on only one of three hosts, whether their clocks agree or are up to two hours apart. The
// job takes no time at all, some, or most of the period.
func TestOncePerTick(t *testing.T) {
	const every, ticks = time.Minute, 8
	for _, takes := range []time.Duration{0, every / 6, every/2 + every/6} {
		for _, offset := range []time.Duration{0, 10 * time.Millisecond, 7 * time.Second, time.Hour} {
			t.Run(takes.String()+" "+offset.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(every / 2) // start halfway between two ticks, so that no host starts just before a tick
					ctx, cancel := context.WithTimeout(t.Context(), ticks*every+every/3)
					defer cancel()
					store := dsynctest.NewMemory()
					var hosts sync.WaitGroup
					var mu sync.Mutex
					runs := map[time.Time]int{}
					for i := range 3 {
						locks, err := dsync.New(store, nil)
						if err != nil {
							t.Fatal(err)
						}
						defer locks.Close(context.Background())
						now := func() time.Time { return time.Now().Add(time.Duration(i-1) * offset) }
						hosts.Go(func() {
							run(ctx, locks, every, now, func(ctx context.Context, tick time.Time) error {
								mu.Lock()
								runs[tick.Round(0)]++
								mu.Unlock()
								select {
								case <-time.After(takes):
								case <-ctx.Done():
									t.Errorf("the job's context ended: %v", context.Cause(ctx))
								}
								return nil
							})
						})
					}
					hosts.Wait()
					if len(runs) != ticks && offset < time.Hour {
						t.Errorf("the job ran at %d ticks, want %d", len(runs), ticks)
					}
					for tick, n := range runs {
						if n != 1 {
							t.Errorf("at %v the job ran %d times, want once", tick, n)
						}
					}
				})
			})
		}
	}
}
