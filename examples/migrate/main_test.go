package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// When the migrating process dies half-way, another one completes the migration. All waiting
// processes and one that starts later get its result.
func TestAnotherGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := dsynctest.NewFaulty(store, nil)
		defer link.Close()
		var mu sync.Mutex
		rows := map[string]int64{}
		start := func(store driver.Store) (string, error) {
			locks, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second})
			if err != nil {
				return "", err
			}
			defer locks.Close(context.Background())
			return migrate(t.Context(), locks, 4*time.Second, func(_ context.Context, plan string, token int64) error {
				mu.Lock()
				defer mu.Unlock()
				if rows[plan] == 0 {
					rows[plan] = token
				}
				return nil
			})
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := start(link); !errors.Is(err, dsync.ErrLost) {
				t.Errorf("the first process: %v, want ErrLost", err)
			}
		})
		time.Sleep(2500 * time.Millisecond)
		link.Cut()
		results := make([]string, 4)
		for i := range 3 {
			all.Go(func() {
				var err error
				if results[i], err = start(store); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		results[3], _ = start(store)
		first, last := rows[plans[0]], rows[plans[len(plans)-1]]
		if first == 0 || first >= last || len(rows) != len(plans) {
			t.Errorf("rows %v, want all plans, and tokens of a later run at the end", rows)
		}
		want := fmt.Sprintf("6 plans, with token %d", last)
		for _, got := range results {
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}
