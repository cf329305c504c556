package measure_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// inMemory returns a function that opens sessions on the store.
func inMemory(store *dsynctest.Memory, opt dsync.Options) func(context.Context) (*dsync.Session, error) {
	return func(context.Context) (*dsync.Session, error) { return dsync.New(store, &opt) }
}

func TestContest(t *testing.T) {
	c, err := measure.NewContest(t.Context(), measure.Mutexes(inMemory(dsynctest.NewMemory(), dsync.Options{HandOffTime: -1})), 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var remaining atomic.Int64
	remaining.Store(300)
	if err := c.Run(t.Context(), func() bool { return remaining.Add(-1) >= 0 }); err != nil {
		t.Fatal(err)
	}
	if c.Acquisitions != 300 {
		t.Errorf("%d acquisitions, want 300", c.Acquisitions)
	}
	if c.Share < 0 || c.Share > 1 {
		t.Errorf("share %v, want 0 to 1", c.Share)
	}
}

func TestContestFindsTwoHolders(t *testing.T) {
	c, err := measure.NewContest(t.Context(), broken{}, 4, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var remaining atomic.Int64
	remaining.Store(50_000_000)
	if err := c.Run(t.Context(), func() bool { return remaining.Add(-1) >= 0 }); err == nil {
		t.Errorf("%d acquisitions of a lock that excludes nobody, and no error", c.Acquisitions)
	}
}
