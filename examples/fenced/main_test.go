package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
)

// A holder is frozen until its lease has ended. It then still writes with its old token, which is smaller than the
// next holder's. The document here only imitates the fence's rule; dsync/mongo and integration test the fence on
// MongoDB.
func TestLateWriteHasTheSmallerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := dsynctest.NewFaulty(store, nil)
		defer link.Close()
		var mu sync.Mutex // serializes writes to the document
		var seen int64
		var log []string
		writer := func(name string, store driver.Store, think time.Duration) error {
			locks, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second})
			if err != nil {
				return err
			}
			defer locks.Close(context.Background())
			return run(t.Context(), locks, think, func(_ context.Context, token int64) error {
				mu.Lock()
				defer mu.Unlock()
				if token < seen {
					return fence.ErrStale
				}
				seen, log = token, append(log, name)
				return nil
			})
		}
		var anna sync.WaitGroup
		anna.Go(func() {
			if err := writer("anna", link, time.Minute); !errors.Is(err, fence.ErrStale) {
				t.Errorf("the write after the lease: got %v, want ErrStale", err)
			}
		})
		synctest.Wait()
		link.Cut() // to other processes, the holder now seems frozen
		if err := writer("bert", store, time.Second); err != nil {
			t.Error(err)
		}
		anna.Wait()
		if want := []string{"bert"}; !slices.Equal(log, want) {
			t.Errorf("written by %q, want %q", log, want)
		}
	})
}
