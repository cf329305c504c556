package dsync_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// If the store's clock is ahead of the session's estimate, a request can arrive too late to count. The session then
// repeats it at once, using the store's time from the reply. So after a fail-over to a server whose clock is ahead,
// waiters need not wait for their next poll.
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

// ReleaseAfter keeps the key for exactly d from the call. Here an earlier request for the key got no answer, so the
// session must discard the claim later. That makes no difference.
func TestReleaseAfterCountsFromTheCall(t *testing.T) {
	for _, d := range []time.Duration{ttl / 10, ttl / 5, time.Minute} {
		bubble(t, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			var lose atomic.Bool
			f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{LoseReply: r.Method == dsynctest.MethodAcquire && lose.CompareAndSwap(true, false)}
			})
			s, other := newSession(t, f, nil), newSession(t, memory, nil)
			turn(s.Mutex("warm"))
			lose.Store(true)
			h := take(t, s.Mutex("k").Hold) // learns of the grant from the reply to the second request
			called := time.Now()
			if err := h.ReleaseAfter(background, d); err != nil {
				t.Fatal(err)
			}
			theirs := other.Mutex("k")
			lock(t, theirs)
			if got := time.Since(called); got < d-time.Millisecond || got > d+100*time.Millisecond {
				t.Errorf("the key was kept for %v, want %v", got, d)
			}
			theirs.Unlock()
		})
	}
}
