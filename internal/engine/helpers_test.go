package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// These are the timings of the sessions in these tests, unless a test sets its own.
const (
	ttl    = testkit.TTL
	margin = 500 * time.Millisecond
	grace  = time.Second
	lease  = ttl - ttl/1000 - margin - grace // from the send of a heartbeat to the deadline
)

var background = context.Background()

var (
	newSession = testkit.NewSession
	newFaulty  = testkit.NewFaulty
	lock       = testkit.Lock
	wantErr    = testkit.WantErr
	waitAt     = testkit.WaitAt
	bubble     = synctest.Test
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// turn locks and unlocks m.
func turn(m sync.Locker) {
	m.Lock()
	defer m.Unlock()
}

// holders returns the holders of key in the store.
func holders(t testing.TB, store driver.Store, key string) []driver.Holder {
	t.Helper()
	st, err := store.Load(background, key, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return st.Holders
}

// wantFree checks that nobody holds the key in the store or waits for it there.
func wantFree(t testing.TB, store driver.Store, key string) {
	t.Helper()
	if h, n := holders(t, store, key), queueLength(t, store, key); len(h)+n != 0 {
		t.Errorf("the key is not free: holders %v and %d waiters", h, n)
	}
}

// queueLength returns the number of waiters for key in the store.
func queueLength(t testing.TB, store driver.Store, key string) int {
	t.Helper()
	st, err := store.Load(background, key, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return st.Waiting
}

// take calls acquire, for example Mutex.Hold, and returns its hold. It fails the test after five minutes.
func take(t testing.TB, acquire func(context.Context) (*dsync.Hold, error)) *dsync.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, 5*time.Minute)
	defer cancel()
	h, err := acquire(ctx)
	if err != nil {
		t.Fatalf("Hold: %v", err)
	}
	return h
}

// units acquires n units of m within five minutes.
func units(t testing.TB, m *dsync.Semaphore, n int64) *dsync.Hold {
	t.Helper()
	return take(t, func(ctx context.Context) (*dsync.Hold, error) { return m.Hold(ctx, n) })
}

// errOf returns the error of a call that returns a hold.
func errOf(_ *dsync.Hold, err error) error { return err }

// into returns a function that calls acquire and stores the hold in h.
func into(h **dsync.Hold, acquire func(context.Context) (*dsync.Hold, error)) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		*h, err = acquire(ctx)
		return err
	}
}
