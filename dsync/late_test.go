package dsync_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
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
			noErr(t, h.ReleaseAfter(background, d))
			theirs := other.Mutex("k")
			lock(t, theirs)
			if got := time.Since(called); got < d-time.Millisecond || got > d+100*time.Millisecond {
				t.Errorf("the key was kept for %v, want %v", got, d)
			}
			theirs.Unlock()
		})
	}
}

// lateNotices returns the store with every notice to a listener delayed by the given time.
func lateNotices(t *testing.T, store driver.Store, late time.Duration) driver.Store {
	return newFaulty(t, store, func(r dsynctest.Request) (f dsynctest.Fault) {
		if r.Method == dsynctest.MethodNotice {
			f.Delay = late
		}
		return f
	})
}

// B35: a key kept by ReleaseAfter stays held even if the notice of its grant arrives late. By then the session may have
// forgotten the claim.
func TestLateNoticeDoesNotFreeAKeptKey_B35(t *testing.T) {
	for _, late := range []time.Duration{ttl / 2, 2 * ttl, 5 * ttl} {
		inBubble(t, late.String(), func(t *testing.T) {
			const keep = 12 * ttl
			memory := dsynctest.NewMemory()
			a, c := newSession(t, memory, nil).Mutex("k"), newSession(t, memory, nil).Mutex("k")
			b := newSession(t, lateNotices(t, memory, late), nil).Mutex("k")
			lock(t, a)
			time.AfterFunc(time.Second, a.Unlock)
			kept := take(t, b.Hold) // learns of the grant by polling
			noErr(t, kept.ReleaseAfter(background, keep))
			began := time.Now()
			lock(t, c)
			if d := time.Since(began); d < keep-time.Millisecond { // the store's clock counts milliseconds
				t.Errorf("the key was kept for %v, want at least %v", d, keep)
			}
		})
	}
}

// Break frees a key kept by ReleaseAfter before its time is over.
func TestBreakFreesAKeyKeptByReleaseAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		h := take(t, s.Mutex("k").Hold)
		noErr(t, h.ReleaseAfter(background, 100*ttl))
		began := time.Now()
		noErr(t, admin.New(newSession(t, memory, nil)).Break(background, "k"))
		if d := time.Since(began); d > ttl {
			t.Errorf("Break returned after %v, want at most a TTL", d)
		}
	})
}

// A late copy of a lease's request may be granted the key under the lease's claim id. If Extend finds that, the lease is
// lost. The copy's grant is discarded once no further copy can join.
func TestExtendOfAnotherGrantIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, slowReadings(t, memory), nil)
		l, err := s.Mutex("k").Lease(background, ttl)
		noErr(t, err)
		h := holders(t, memory, "k")[0]
		time.Sleep(time.Millisecond) // a reading at the instant of the grant would prove nothing
		memory.Skew(2 * ttl)         // the store's clock jumps forward, which ends the lease in the store
		again := driver.Claim{Key: "k", ID: h.Claim, Session: h.Session, Kind: driver.KindMutex, Weight: 1, Limit: 1, Lease: 100 * ttl}
		if _, _, err := storecmd.Acquire(background, memory, again, false, nil, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, driver.ErrNotHeld)
		time.Sleep(confirmed)
		if l.Token() != 0 || !isClosed(l.Lost()) {
			t.Error("the lease has not ended")
		}
		time.Sleep(ttl)
		if h := holders(t, memory, "k"); len(h) > 0 {
			t.Errorf("the key is held by %v", h)
		}
	})
}
