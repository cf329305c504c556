package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func session(t *testing.T, store driver.Store) *dsync.Session {
	t.Helper()
	locks, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

// Two processes together make as many calls at a time as there are slots, but never more.
func TestNeverMoreThanTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, workers = 3, 4
		store := dsynctest.NewMemory()
		var mu sync.Mutex
		now, most, done := 0, 0, 0
		add := func(calls int) {
			mu.Lock()
			defer mu.Unlock()
			now += calls
			most = max(most, now)
		}
		var pool sync.WaitGroup
		for range 2 {
			locks := session(t, store)
			for range workers {
				pool.Go(func() {
					err := work(t.Context(), locks, slots, func(context.Context) error {
						add(1)
						time.Sleep(300 * time.Millisecond)
						add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					done++
				})
			}
		}
		pool.Wait()
		if most != slots || done != 2*workers {
			t.Errorf("up to %d calls at a time, %d done; want %d and %d", most, done, slots, 2*workers)
		}
	})
}

// A worker that loses its slot ends its call before another worker gets the slot, and repeats the
// call when it has a new slot.
func TestLostSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := dsynctest.NewFaulty(store, nil)
		defer link.Close()
		first, second := session(t, link), session(t, store)
		var mu sync.Mutex
		var calls []string
		note := func(what string) (n int) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, what)
			return len(calls)
		}
		var loser sync.WaitGroup
		loser.Go(func() {
			err := work(t.Context(), first, 1, func(ctx context.Context) error {
				if note("first") > 1 {
					return nil
				}
				link.Cut()
				<-ctx.Done()
				note("first ends")
				return ctx.Err()
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		err := work(t.Context(), second, 1, func(context.Context) error {
			note("second")
			link.Heal()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		loser.Wait()
		if want := []string{"first", "first ends", "second", "first"}; !slices.Equal(calls, want) {
			t.Errorf("calls %q, want %q", calls, want)
		}
	})
}
