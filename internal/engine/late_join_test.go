package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A request that arrives too late to count, because the store's clock is ahead of the session's
// estimate, is repeated at once with the time from its reply. So a fail-over to a server whose
// clock is ahead delays nobody until the next poll.
func TestRequestThatCameTooLateIsRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		memory.Polling = true
		s := newSession(t, memory, &dsync.Options{PollInterval: time.Hour})
		turn(s.Mutex("warm"))
		memory.Skew(ttl / 2)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		mu := s.Mutex("k")
		if err := mu.LockContext(ctx); err != nil {
			t.Fatalf("LockContext of a free key: %v", err)
		}
		mu.Unlock()
	})
}

// UnlockAfter keeps the key for d from the call, even if it must release twice because a request
// for the key was never answered. The later release does not prolong that time, and does not
// shorten it.
func TestUnlockAfterCountsFromTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = time.Minute
		memory := dsynctest.NewMemory()
		var releases atomic.Int64
		var lose atomic.Bool
		f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease && r.Key == "k" {
				releases.Add(1)
			}
			return dsynctest.Fault{LoseReply: r.Method == dsynctest.MethodAcquire && lose.CompareAndSwap(true, false)}
		})
		s := newSession(t, f, nil)
		turn(s.Mutex("warm"))
		lose.Store(true)
		mu := s.Mutex("k")
		lock(t, mu) // by the second request
		called := time.Now()
		if err := mu.UnlockAfter(background, d); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if n := releases.Load(); n < 2 {
			t.Fatalf("%d releases: the request that was not answered was forgotten", n)
		}
		h := holders(t, memory, "k")
		if len(h) != 1 {
			t.Fatalf("held by %v, want by the process still", h)
		}
		if got := h[0].Until.Sub(called); got < d-time.Millisecond || got > d+100*time.Millisecond {
			t.Errorf("kept until %v after UnlockAfter, want %v", got, d)
		}
	})
}
