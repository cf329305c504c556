package dsync_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Options, leases and ReleaseAfter refuse durations above driver.MaxDuration, because sums and multiples of them would
// overflow.
func TestDurationsAboveTheMaximumAreRefused(t *testing.T) {
	for _, d := range []time.Duration{driver.MaxDuration + time.Millisecond, math.MaxInt64 / 2, time.Duration(math.MaxInt64).Truncate(time.Millisecond), math.MaxInt64} {
		wantRefused := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "must be at most") || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("%s accepted %v, or its error does not say what is valid: %v", what, d, err)
			}
		}
		for name, opt := range map[string]dsync.Options{
			"TTL":               {TTL: d},
			"Margin":            {Margin: d},
			"Grace":             {Grace: d},
			"HeartbeatInterval": {HeartbeatInterval: d},
			"PollInterval":      {PollInterval: d},
			"HandOffTime":       {HandOffTime: d},
			"Linger":            {Linger: d},
			"Retention":         {Retention: d},
		} {
			_, err := dsync.New(dsynctest.NewMemory(), &opt)
			wantRefused(name, err)
		}
		bubble(t, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			_, err := s.Mutex("k").Lease(background, d)
			wantRefused("Lease", err)
			_, err = s.Mutex("k").TryLease(background, d)
			wantRefused("TryLease", err)
			h := take(t, s.Mutex("k").Hold)
			wantRefused("ReleaseAfter", h.ReleaseAfter(background, d))
			if h.Token() == 0 {
				t.Error("a refused ReleaseAfter has released the hold")
			}
			h.Release(background)
		})
	}
}

// Durations of exactly driver.MaxDuration work.
func TestLongestDurations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		l, err := a.Mutex("lease").Lease(background, driver.MaxDuration)
		noErr(t, err)
		noErr(t, take(t, a.Mutex("kept").Hold).ReleaseAfter(background, driver.MaxDuration))
		time.Sleep(time.Hour)
		for _, key := range []string{"lease", "kept"} {
			wantErr(t, "TryHold of "+key, errOf(b.Mutex(key).TryHold(background)), dsync.ErrHeld)
		}
		if isClosed(l.Lost()) {
			t.Error("the lease was lost within an hour")
		}
	})
}

// A waiter far back in the queue polls only every four PollIntervals. The product does not overflow even with the
// longest possible PollInterval.
func TestPollSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{Delay: 10 * time.Millisecond} })
		lock(t, newSession(t, store, nil).Mutex("k"))
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		const n = 6
		done := make(chan error, n)
		for range n {
			s := newSession(t, faulty, &dsync.Options{PollInterval: driver.MaxDuration})
			go func() { done <- s.Mutex("k").LockContext(ctx) }()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		before := store.Counts()
		for range n {
			<-done
		}
		if sent := store.Counts().Since(before).Commands[dsynctest.MethodAcquire]; sent > 0 {
			t.Errorf("within a minute, waiters that poll every %v sent %d requests", driver.MaxDuration, sent)
		}
	})
}

// A try for all units of the largest possible semaphore returns ErrHeld if somebody holds some of them.
func TestTryAllOfTheLargestSemaphore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil).Semaphore("k", math.MaxInt64), newSession(t, store, nil).Semaphore("k", math.MaxInt64)
		noErr(t, a.Acquire(background, 1))
		wantErr(t, "a try for all", errOf(b.TryHold(background, math.MaxInt64)), dsync.ErrHeld)
		a.Release(1)
		if !b.TryAcquire(math.MaxInt64) {
			t.Error("a try for all units of a free semaphore failed")
		}
		b.Release(math.MaxInt64)
	})
}

// The goroutines of a process can request weights whose sum overflows an int64. Each goroutine still gets its answer.
// Here the sum wraps around to 0 once one goroutine is done.
func TestWeightsThatAddUpToZero(t *testing.T) {
	bubble(t, func(t *testing.T) {
		faulty := newFaulty(t, dsynctest.NewMemory(), func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Delay: 10 * time.Millisecond}
		})
		sem := newSession(t, faulty, nil).Semaphore("k", math.MaxInt64)
		const n, weight = 5, 1 << 62
		errs := make(chan error, n)
		for range n {
			go func() {
				h, err := sem.TryHold(background, weight)
				if err == nil {
					defer h.Release(background)
				}
				errs <- err
			}()
		}
		got := 0
		for range n {
			if err := <-errs; err == nil {
				got++
			} else {
				wantErr(t, "TryHold", err, dsync.ErrHeld)
			}
		}
		if got != 1 {
			t.Errorf("%d of %d tries for more than half succeeded, want 1", got, n)
		}
	})
}
