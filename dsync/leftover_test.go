package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A refusing store answers edits with ErrRefused. While acquire is set, it refuses edits with an Acquire; while release
// is set, it refuses edits with only a Release.
type refusing struct {
	driver.Store
	acquire, release atomic.Bool
}

func (s *refusing) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire != nil && s.acquire.Load() || e.Acquire == nil && e.Release != nil && s.release.Load() {
		return driver.Edited{}, fmt.Errorf("not authorized: %w", dsync.ErrRefused)
	}
	return s.Store.Edit(ctx, e)
}

// A TryLease expires the previous holder. If its ctx or session then ends before it learns when the new lease ends, the
// TryLease leaves nothing in the store.
func TestAbandonedTryAcquireLeavesNoLease(t *testing.T) {
	for _, closes := range []bool{false, true} {
		inBubble(t, fmt.Sprint("closes ", closes), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			crash := crashed(t, memory, []string{"k"})
			crash()
			time.Sleep(2 * ttl)
			f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodExtend}
			})
			s := newSession(t, f, nil)
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			if closes {
				time.AfterFunc(time.Second/2, func() { s.Close(background) })
			}
			if _, err := s.Mutex("k").TryLease(ctx, 24*time.Hour); err == nil {
				t.Fatal("TryLease succeeded although the lease's end was unknown")
			}
			time.Sleep(time.Second)
			if h := holders(t, memory, "k"); len(h) > 0 {
				t.Errorf("the key is held by %v", h)
			}
		})
	}
}

// If a queued waiter repeats its request and the store refuses it, the waiter is removed from the queue.
func TestRefusedWaiterLeavesTheQueue(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprint("polling ", polling), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			memory.Polling = polling
			mu := newSession(t, memory, nil).Mutex("k")
			lock(t, mu)
			r := &refusing{Store: memory}
			s := newSession(t, r, nil)
			lock(t, s.Mutex("what keeps the session alive"))
			got := make(chan error, 1)
			go func() { got <- s.Mutex("k").LockContext(background) }()
			time.Sleep(time.Second)
			r.acquire.Store(true)
			wantErr(t, "LockContext", <-got, dsync.ErrRefused)
			time.Sleep(time.Second)
			if n := queueLength(t, memory, "k"); n > 0 {
				t.Errorf("%d waiters are in the queue after the refused waiter has given up", n)
			}
			mu.Unlock()
		})
	}
}

// If the store refuses a release, Release, the StoreError hook and Healthy report the refusal. The release is retried
// until the store accepts it.
func TestRefusedReleaseIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		r := &refusing{Store: memory}
		var notified atomic.Int64
		s := newSession(t, r, &dsync.Options{Hooks: &dsync.Hooks{StoreError: func(op string, err error) {
			if op == "Release" && errors.Is(err, dsync.ErrRefused) {
				notified.Add(1)
			}
		}}})
		hold := take(t, s.Mutex("k").Hold)
		r.release.Store(true)
		began := time.Now()
		wantErr(t, "Release", hold.Release(background), dsync.ErrRefused)
		if d := time.Since(began); d > 0 {
			t.Errorf("Release waited for %v, although it was refused at once", d)
		}
		time.Sleep(time.Minute)
		wantErr(t, "Healthy", s.Healthy(), dsync.ErrNotReleased, dsync.ErrRefused)
		if n := notified.Load(); n < 10 || n > 600 {
			t.Errorf("the refused release was reported %d times in a minute", n)
		}
		r.release.Store(false)
		time.Sleep(time.Second)
		if h := holders(t, memory, "k"); len(h) > 0 {
			t.Errorf("the key is held by %v after the store accepted releases again", h)
		}
		if err := s.Healthy(); err != nil {
			t.Errorf("Healthy: %v", err)
		}
	})
}

// If the reply to a Release is lost, the next goroutine in the process waits until the attempt has timed out and an
// extra heartbeat is acknowledged. It need not wait for the next regular heartbeat.
func TestLostReplyOfARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		n := 0
		f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease {
				n++
				return dsynctest.Fault{LoseReply: n == 1}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, f, &dsync.Options{TTL: 30 * time.Second, HandOffTime: -1})
		mu := s.Mutex("k")
		lock(t, mu)
		got := make(chan time.Time, 1)
		go func() {
			if _, err := s.Mutex("k").Lease(background, ttl); err != nil { // not Lock, because the Acquire of a Lock would also contain the release
				t.Error(err)
			}
			got <- time.Now()
		}()
		time.Sleep(time.Second)
		began := time.Now()
		mu.Unlock()
		// The unanswered attempt times out after a sixth of the TTL.
		if d := (<-got).Sub(began); d > 30*time.Second/6+100*time.Millisecond {
			t.Errorf("the next goroutine got the key %v after Unlock", d)
		}
	})
}

// If nobody holds a key or waits for it, a try never returns ErrHeld, even if the request reaches the store too late to
// take effect. This can happen if the store's clock has jumped forward, or if requests and replies are slow.
func TestLateTryOfAFreeKeyIsNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		turn(s.Mutex("what has the session know the store's clock"))
		memory.Skew(ttl / 5)
		if err := errOf(s.Mutex("k").TryHold(background)); err != nil {
			t.Errorf("after the clock has jumped ahead: %v", err)
		}
		if err := errOf(s.Semaphore("s", 3).TryHold(background, 2)); err != nil {
			t.Errorf("a semaphore, after the clock has jumped ahead: %v", err)
		}
	})
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			switch r.Method {
			case dsynctest.MethodRegister:
				return dsynctest.Fault{ReplyDelay: ttl / 10}
			case dsynctest.MethodAcquire:
				return dsynctest.Fault{Delay: ttl / 10}
			}
			return dsynctest.Fault{}
		})
		if err := errOf(newSession(t, f, nil).Mutex("k").TryHold(background)); err != nil {
			t.Errorf("with slow requests: %v", err)
		}
	})
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, nil)
		turn(s.Mutex("what has the session know the store's clock"))
		late := &alwaysLate{Store: f}
		if err := errOf(newSession(t, late, nil).Mutex("k").TryHold(background)); err == nil || errors.Is(err, dsync.ErrHeld) {
			t.Errorf("if every request is late: %v, want an error other than ErrHeld", err)
		}
	})
}

// An alwaysLate store changes each Acquire so that it arrives too late to take effect.
type alwaysLate struct{ driver.Store }

func (s *alwaysLate) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire != nil {
		late := *e.Acquire
		late.NotAfter = time.Unix(0, 0)
		e.Acquire = &late
	}
	return s.Store.Edit(ctx, e)
}

// A waiter gives up while its request is under way. If the request is then answered, giving up costs one Release, which
// is sent after the answer.
func TestGivingUpDuringARequestCostsOneRelease(t *testing.T) {
	for _, held := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			slow, released := timesOf(t, memory, dsynctest.MethodRelease)
			s := newSession(t, newFaulty(t, slow, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method == dsynctest.MethodAcquire {
					return dsynctest.Fault{ReplyDelay: time.Second}
				}
				return dsynctest.Fault{}
			}), nil)
			other := newSession(t, memory, nil).Mutex("k")
			if held {
				lock(t, other)
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(background, time.Second/2)
			defer cancel()
			wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
			if d := time.Since(start); d != time.Second/2 {
				t.Errorf("the waiter gave up after %v, want when ctx ended", d)
			}
			time.Sleep(ttl)
			if all := released(); len(all) != 1 || all[0].Sub(start) < time.Second {
				t.Errorf("released at %v, want once, after %v", all, start.Add(time.Second))
			}
			if n := len(holders(t, memory, "k")) + queueLength(t, memory, "k"); held != (n == 1) || n > 1 {
				t.Errorf("%d claims are left; held by the other session: %t", n, held)
			}
			if held {
				other.Unlock()
			}
		})
	}
}
