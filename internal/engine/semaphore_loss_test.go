package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// L13: what a crashed process held is free at its last heartbeat + TTL, not before, and at most one
// wake-up later. What others hold stays theirs.
func TestCrashedHoldersPartIsFreeAtExpiry(t *testing.T) {
	for name, polling := range deliveries {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				draws := testkit.Draw(t)
				for range 10 {
					memory := dsynctest.NewMemory()
					memory.Polling = polling
					faulty := newFaulty(t, memory, nil)
					a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
					crashed, living, next := a.Semaphore("k", 5), b.Semaphore("k", 5), b.Semaphore("k", 5)
					acquire(t, crashed, 1)
					acquire(t, crashed, 2)
					acquire(t, living, 2)
					time.Sleep(draws.Below(ttl))
					faulty.Cut()
					m, _, err := storecmd.Members(background, memory, a.ID())
					if err != nil {
						t.Fatal(err)
					}
					wantErr(t, "TryAcquireContext", next.TryAcquireContext(background, 1), dsync.ErrHeld)
					acquire(t, next, 3)
					hs := holders(t, memory, "k")
					if d := hs[len(hs)-1].Since.Sub(m[0].LastHeartbeat.Add(ttl)); d < 0 || d > 10*time.Millisecond {
						t.Errorf("granted %v after the crashed session's last heartbeat + TTL", d)
					}
					if sum(t, memory, "k") != 5 || isClosed(living.Lost()) {
						t.Errorf("held by %v", hs)
					}
				}
			})
		})
	}
}

// A try takes over what a crashed process held.
func TestTryAcquireTakesALapsedPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		a, b := newSession(t, faulty, nil).Semaphore("k", 5), newSession(t, memory, nil).Semaphore("k", 5)
		acquire(t, a, 3)
		faulty.Cut()
		if !b.TryAcquire(2) || b.TryAcquire(1) {
			t.Error("more or less than the rest is free before expiry")
		}
		time.Sleep(ttl)
		if err := b.TryAcquireContext(background, 3); err != nil {
			t.Errorf("try after expiry: %v", err)
		}
	})
}

// Release takes lost units first, and frees none of those acquired since. Lost and Token report the
// loss until then.
func TestReleaseTakesLostUnitsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		m := newSession(t, faulty, nil).Semaphore("k", 10)
		acquire(t, m, 3)
		token, lost := m.Token(), m.Lost()
		faulty.Cut()
		<-lost
		faulty.Heal()
		acquire(t, m, 1)
		acquire(t, m, 2)
		for _, n := range []int64{1, 1} { // as many as one of the new holds, which it must not release
			if err := m.ReleaseContext(background, n); err != nil {
				t.Errorf("ReleaseContext of a part: %v", err)
			}
			if !isClosed(m.Lost()) || m.Token() != 0 {
				t.Error("Lost is open, or Token is not 0, while lost units are not released")
			}
		}
		if h := holders(t, memory, "k"); h[len(h)-2].Weight != 1 || h[len(h)-1].Weight != 2 {
			t.Errorf("held by %v: a hold that was not lost was released in place of a lost one", h)
		}
		time.Sleep(2 * ttl)
		wantErr(t, "ReleaseContext of the rest, and more", m.ReleaseContext(background, 2), dsync.ErrLost)
		if isClosed(m.Lost()) || m.Token() <= token {
			t.Errorf("token %d after %d", m.Token(), token)
		}
		if h := holders(t, memory, "k"); len(h) != 1 && len(h) != 2 || h[len(h)-1].Weight != 2 || h[len(h)-1].Token != m.Token() {
			t.Errorf("held by %v, want by the new hold of 2", h) // the lost one may still be there, because nobody requested it
		}
		if err := m.ReleaseContext(background, 2); err != nil {
			t.Errorf("ReleaseContext: %v", err)
		}
		other := newSession(t, memory, nil).Semaphore("k", 10)
		acquire(t, other, 10)
		other.Release(10)
	})
}

// The same if the lost hold is not the oldest.
func TestReleaseTakesRevokedUnitsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{AlwaysListen: true, HandOffTime: -1})
		m, rw := s.Semaphore("k", 10), s.RWMutex("rw")
		acquire(t, m, 1)
		acquire(t, m, 2)
		rlock(t, rw)
		rlock(t, rw) // without a turn, so readers don't share
		synctest.Wait()
		token, rtoken := m.Token(), rw.RToken()
		for _, key := range []string{"k", "rw"} {
			h := holders(t, store, key)
			if len(h) != 2 {
				t.Fatalf("held by %v", h)
			}
			notices, err := store.Revoke(background, s.ID(), driver.Revocation{Key: key, Claim: h[1].Claim})
			if err == nil {
				err = store.Notify(background, notices)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !isClosed(m.Lost()) || m.Token() != 0 || !isClosed(rw.RLost()) || rw.RToken() != 0 {
			t.Error("Lost is open, or Token is not 0, while lost units are not released")
		}
		m.Release(1) // a part of the 2
		wantErr(t, "ReleaseContext", m.ReleaseContext(background, 1), dsync.ErrLost, dsync.ErrRevoked)
		wantErr(t, "RUnlockContext", rw.RUnlockContext(background), dsync.ErrLost, dsync.ErrRevoked)
		if m.Token() != token || isClosed(m.Lost()) || rw.RToken() != rtoken || isClosed(rw.RLost()) {
			t.Error("what was not lost is over")
		}
		if err := errors.Join(m.ReleaseContext(background, 1), rw.RUnlockContext(background)); err != nil {
			t.Error(err)
		}
	})
}

// Nobody waits for the Release of lost units, not even in the same process: they are free when the
// lost session is expired, which is after the grace.
func TestSemaphoreLostPartIsFreeHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		s := newSession(t, faulty, nil)
		lost, next := s.Semaphore("k", 3), s.Semaphore("k", 3)
		acquire(t, lost, 3)
		faulty.Cut()
		<-lost.Lost()
		notified := time.Now()
		faulty.Heal()
		acquire(t, next, 3)
		if d := time.Since(notified); d < grace || d > 2*ttl {
			t.Errorf("free %v after it was lost, want at least the grace of %v, and soon after", d, grace)
		}
		wantErr(t, "late Release", lost.ReleaseContext(background, 3), dsync.ErrLost)
		time.Sleep(ttl)
		if isClosed(next.Lost()) || sum(t, memory, "k") != 3 {
			t.Error("a late Release freed what was acquired since")
		}
		next.Release(3)
	})
}

// Promise 9: the same for units lost by a Break.
func TestBreakFreesASemaphore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{AlwaysListen: true})
		m, here := s.Semaphore("k", 3), s.Semaphore("k", 3)
		acquire(t, m, 1)
		acquire(t, m, 2)
		time.Sleep(time.Second)
		waiting := acquiring(here, 3)
		lost, start := m.Lost(), time.Now()
		if err := admin.New(newSession(t, store, nil)).Break(background, "k"); err != nil {
			t.Errorf("Break: %v", err)
		}
		if !isClosed(lost) {
			t.Error("a holder was not notified")
		}
		// The second of two changes of a key is reported a little later.
		if err, d := <-waiting, time.Since(start); err != nil || d < grace || d > grace+20*time.Millisecond {
			t.Errorf("Acquire: %v, %v after Break, want the grace of %v", err, d, grace)
		}
		wantErr(t, "ReleaseContext", m.ReleaseContext(background, 3), dsync.ErrLost, dsync.ErrRevoked)
		time.Sleep(ttl)
		if isClosed(here.Lost()) || sum(t, store, "k") != 3 {
			t.Error("a late Release freed what was acquired since")
		}
		here.Release(3)
	})
}

// A cancelled waiter, local or in the store's queue, leaves nothing behind, and the waiters behind
// it continue at once.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	for _, same := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			m := s.Semaphore("k", 3)
			var others []*dsync.Semaphore
			for range 3 {
				o := s
				if !same {
					o = newSession(t, store, nil)
				}
				others = append(others, o.Semaphore("k", 3))
			}
			acquire(t, m, 2)
			ctx, cancel := context.WithCancel(background)
			errs := make(chan error, 2)
			for _, o := range others[:2] {
				go func() { errs <- o.Acquire(ctx, 3) }()
				synctest.Wait()
			}
			light := acquiring(others[2], 1)
			cancel()
			wantErr(t, "Acquire", <-errs, context.Canceled)
			wantErr(t, "Acquire", <-errs, context.Canceled)
			synctest.Wait()
			if len(light) != 1 {
				t.Errorf("same process %t: the waiter behind the cancelled one is not in", same)
			}
			wantErr(t, "ended ctx", m.Acquire(ctx, 1), context.Canceled)
			wantErr(t, "ended ctx", m.TryAcquireContext(ctx, 1), context.Canceled)
			others[2].Release(1)
			m.Release(2)
			if h, n := holders(t, store, "k"), queueLength(t, store, "k"); len(h)+n != 0 {
				t.Errorf("same process %t: left behind: holders %v and %d in the queue", same, h, n)
			}
		})
	}
}

// Close notifies the holders, waits for each until it has released everything, and ends the waits.
func TestCloseNotifiesSemaphoreHolders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		m := s.Semaphore("k", 3)
		acquire(t, m, 1)
		acquire(t, m, 2)
		lost := m.Lost()
		waiting := acquiring(s.Semaphore("k", 3), 1)
		closed := make(chan error, 1)
		go func() { closed <- s.Close(background) }()
		<-lost
		wantErr(t, "Acquire", <-waiting, dsync.ErrClosed)
		wantErr(t, "ReleaseContext", m.ReleaseContext(background, 2), dsync.ErrLost, dsync.ErrClosed)
		time.Sleep(grace / 2)
		if len(closed) != 0 {
			t.Error("closed before all was released")
		}
		m.Release(1)
		start := time.Now()
		if err := <-closed; err != nil || time.Since(start) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		if h := holders(t, store, "k"); len(h) != 0 {
			t.Errorf("left behind: %v", h)
		}
		wantErr(t, "Acquire", m.Acquire(background, 1), dsync.ErrClosed)
		wantErr(t, "Resize", m.Resize(background, 1), dsync.ErrClosed)
	})
}

// B10: an error of the store is neither success nor contention.
func TestSemaphoreReturnsStoreError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := errors.New("the store is broken")
		store := &brokenStore{Memory: dsynctest.NewMemory()}
		m := newSession(t, store, nil).Semaphore("k", 2)
		store.fail(broken)
		err := m.TryAcquireContext(background, 1)
		wantErr(t, "TryAcquireContext", err, broken)
		if errors.Is(err, dsync.ErrHeld) || m.TryAcquire(1) {
			t.Errorf("a broken store is ErrHeld, or success: %v", err)
		}
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wantErr(t, "Acquire", m.Acquire(ctx, 1), context.DeadlineExceeded, broken)
		store.fail(nil)
		acquire(t, m, 2)
		m.Release(2)
	})
}
