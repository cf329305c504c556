package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// L5: ForceLock is served before all waiters, and leaves them in their order.
func TestForceLockIsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := newSession(t, store, &dsync.Options{AlwaysListen: true})
		held := a.Mutex("k")
		lock(t, held)
		var order []string
		var wg sync.WaitGroup
		b := newSession(t, store, nil)
		for i := range 5 {
			s := newSession(t, store, nil)
			if i == 2 {
				s = b // the session that forces has a waiter of its own in the store's queue
			}
			wg.Go(func() {
				mu := s.Mutex("k")
				mu.Lock()
				order = append(order, fmt.Sprint(i))
				time.Sleep(time.Millisecond)
				mu.Unlock()
			})
			time.Sleep(10 * time.Millisecond)
		}
		for i := range 3 { // and some more behind that one
			wg.Go(func() {
				mu := b.Mutex("k")
				mu.Lock()
				order = append(order, fmt.Sprint("local ", i))
				mu.Unlock()
			})
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		forced := b.Mutex("k")
		won := async(func() error { return forced.ForceLock(background) })
		<-held.Lost()
		if d := time.Since(began); d > 0 {
			t.Errorf("notified after %v", d)
		}
		held.Unlock()
		if e := <-won; e.err != nil || e.at.Sub(began) > 10*time.Millisecond {
			t.Fatalf("ForceLock: %v after %v", e.err, e.at.Sub(began))
		}
		if len(order) > 0 {
			t.Errorf("%v came first", order)
		}
		time.Sleep(3 * ttl)
		if isClosed(forced.Lost()) {
			t.Error("the forced hold is lost")
		}
		if n := queueLength(t, store, "k"); n != 4 {
			t.Errorf("%d in the queue, want 4 of other processes", n)
		}
		forced.Unlock()
		wg.Wait()
		// The waiter of the same session stepped aside for ForceLock, and moved to the end of the
		// queue.
		if want := []string{"0", "1", "3", "4", "2", "local 0", "local 1", "local 2"}; !slices.Equal(order, want) {
			t.Errorf("after it came %q, want %q", order, want)
		}
	})
}

// Of two ForceLocks the later is served before the earlier, and each revokes the current holder.
func TestForceLockTwice(t *testing.T) {
	for name, setting := range map[string]struct{ here, polling bool }{
		"in two processes":            {},
		"in two processes, that poll": {polling: true},
		"in one process":              {here: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = setting.polling
				held := newSession(t, store, &dsync.Options{AlwaysListen: true}).Mutex("k")
				lock(t, held)
				b := newSession(t, store, nil)
				c := newSession(t, store, nil)
				if setting.here {
					c = b
				}
				var inside atomic.Int64
				use := func(s *dsync.Session) <-chan ended {
					mu := s.Mutex("k")
					return async(func() error {
						if err := mu.ForceLock(background); err != nil {
							return err
						}
						if inside.Add(1) != 1 {
							t.Error("two inside")
						}
						<-mu.Lost()
						time.Sleep(grace / 2)
						inside.Add(-1)
						mu.Unlock()
						return nil
					})
				}
				first := use(b)
				time.Sleep(grace / 2)
				second := use(c)
				time.Sleep(grace)
				held.Unlock()
				time.Sleep(ttl)
				// Whoever holds is revoked by the other; the last one stays.
				if len(first)+len(second) != 1 || inside.Load() != 1 {
					t.Errorf("%d have finished, %d inside", len(first)+len(second), inside.Load())
				}
				if err := admin.New(newSession(t, store, nil)).Break(background, "k"); err != nil {
					t.Error(err)
				}
				for _, e := range []ended{<-first, <-second} {
					if e.err != nil {
						t.Error(e.err)
					}
				}
			})
		})
	}
}

// ForceLock meets a grant of its own process: a waiter that was granted while it should have
// stepped aside, or a try. It is notified like any holder, so that ForceLock does not wait forever.
func TestForceLockMeetsALocalGrant(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprint("try ", try), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				faulty := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
					if r.Key == "k" && (r.Method == dsynctest.MethodAcquire || r.Method == dsynctest.MethodNotice) {
						return dsynctest.Fault{ReplyDelay: time.Second}
					}
					return dsynctest.Fault{}
				})
				s := newSession(t, faulty, nil)
				lock(t, s.Mutex("warm"))
				mu := s.Mutex("k")
				locked := async(func() error {
					if try {
						return mu.TryLockContext(background)
					}
					return mu.LockContext(background)
				})
				time.Sleep(100 * time.Millisecond) // granted; the reply is under way
				forced := s.Mutex("k")
				won := async(func() error { return forced.ForceLock(background) })
				if e := <-locked; e.err != nil {
					t.Fatal(e.err)
				}
				<-mu.Lost()
				time.Sleep(grace / 2)
				if len(won) > 0 {
					t.Error("forced before the Unlock")
				}
				wantErr(t, "unlock", mu.UnlockContext(background), dsync.ErrRevoked)
				if e := <-won; e.err != nil || isClosed(forced.Lost()) {
					t.Error(e.err)
				}
			})
		})
	}
}

// B36: a ForceLock whose ctx ends leaves nothing in the queue, neither locally nor in the store.
// The others continue as before.
func TestForceLockGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		cut := newFaulty(t, store, nil)
		a := newSession(t, cut, nil)
		held := a.Mutex("k")
		lock(t, held)
		cut.Cut() // it can't be notified
		b := newSession(t, store, nil)
		waits := waitAt(t, store, "k", 1, newSession(t, store, nil).Mutex("k").LockContext, background)
		mine := b.Mutex("k")
		local := waitAt(t, store, "k", 2, mine.LockContext, background)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wantErr(t, "ForceLock", b.Mutex("k").ForceLock(ctx), context.DeadlineExceeded)
		time.Sleep(time.Second)
		if n := queueLength(t, store, "k"); n != 2 {
			t.Errorf("%d in the queue, want 2 that wait on", n)
		}
		if err := <-waits; err != nil {
			t.Error(err)
		}
		if err := admin.New(newSession(t, store, nil)).Break(background, "k"); err != nil {
			t.Error(err)
		}
		if err := <-local; err != nil || isClosed(mine.Lost()) {
			t.Errorf("the waiter that stepped aside: %v", err)
		}
	})
}

// A ForceLock that fails, because its ctx has ended or the key is of another kind, revokes nobody.
func TestForceLockThatFailsRevokesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, "ForceLock when ctx has ended", s.Mutex("k").ForceLock(ctx), context.Canceled)
		for _, s := range []*dsync.Session{s, other} {
			wantErr(t, "ForceLock of another kind", s.RWMutex("k").ForceLock(background), dsync.ErrMismatch)
		}
		time.Sleep(ttl)
		if isClosed(mu.Lost()) {
			t.Error("the holder was revoked")
		}
		mu.Unlock()
	})
}

// A ForceLock continues through the loss of its session.
func TestForceLockOutlivesItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		cut, faulty := newFaulty(t, store, nil), newFaulty(t, store, nil)
		a := newSession(t, cut, &dsync.Options{TTL: 10 * ttl})
		held := a.Mutex("k")
		lock(t, held)
		cut.Cut()
		b := newSession(t, faulty, nil)
		mu := b.Mutex("k")
		won := async(func() error { return mu.ForceLock(background) })
		time.Sleep(time.Second)
		waits := waitAt(t, store, "k", 2, newSession(t, store, nil).Mutex("k").LockContext, background)
		id := b.ID()
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		time.Sleep(ttl)
		if len(won) > 0 || b.ID() == id || b.ID() == "" {
			t.Fatalf("%d, session %q after %q", len(won), b.ID(), id)
		}
		cut.Heal()
		<-held.Lost()
		held.Unlock()
		if e := <-won; e.err != nil {
			t.Fatal(e.err)
		}
		if len(waits) > 0 {
			t.Error("not first in the queue after the loss")
		}
		mu.Unlock()
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// ForceLock gets a lingering key, here or elsewhere, at once where the store notifies, and nobody
// is notified of a loss.
func TestForceOfALingeringKey(t *testing.T) {
	for _, test := range []struct {
		name    string
		polling bool
		here    bool
		most    time.Duration
	}{
		{"notified", false, false, 10 * time.Millisecond}, // Break opens a listener of the key
		{"polled", true, false, ttl*4/10 + 600*time.Millisecond},
		{"here", false, true, 10 * time.Millisecond},
		{"here, polled", true, true, 0},
	} {
		for _, forces := range []string{"Break", "ForceLock"} {
			t.Run(forces+" "+test.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					store := dsynctest.NewMemory()
					store.Polling = test.polling
					var lost atomic.Int64
					a := newSession(t, store, &dsync.Options{Linger: 5 * time.Minute, Hooks: &dsync.Hooks{Lost: func(dsync.LostInfo) { lost.Add(1) }}})
					b := newSession(t, store, nil)
					if test.here {
						b = a
					}
					lock(t, b.Mutex("warm"))
					makeLinger(a.Mutex("k"))
					time.Sleep(time.Second)
					if len(holders(t, store, "k")) != 1 {
						t.Fatal("does not linger")
					}
					began := time.Now()
					mu := b.Mutex("k")
					if forces == "ForceLock" {
						if err := mu.ForceLock(background); err != nil {
							t.Fatal(err)
						}
					} else if err := errors.Join(admin.New(b).Break(background, "k"), mu.TryLockContext(background)); err != nil {
						t.Fatal(err)
					}
					most := test.most
					if test.here && test.polling && forces == "Break" {
						most = 600 * time.Millisecond
					}
					if d := time.Since(began); d > most {
						t.Errorf("took %v, want at most %v", d, most)
					}
					if isClosed(mu.Lost()) || lost.Load() != 0 {
						t.Errorf("%d losses", lost.Load())
					}
					mu.Unlock()
				})
			})
		}
	}
}

// A hold of the same process is notified, and must be unlocked first even if it was lost.
func TestForceLockWaitsForALocalUnlock(t *testing.T) {
	for _, p := range parties {
		if p.force == nil || p.name == "lease" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				s := newSession(t, store, nil)
				h := p.take(t, s)
				var next *holding
				won := async(func() (err error) { next, err = p.force(s)(background); return })
				synctest.Wait()
				if !isClosed(h.lost) {
					t.Fatal("not notified at once")
				}
				time.Sleep(5 * ttl)
				if len(won) > 0 {
					t.Fatal("locked before the Unlock of the hold it broke")
				}
				if n := len(holders(t, store, "k")); n != 0 {
					t.Errorf("%d holders in the store after the grace", n)
				}
				wantErr(t, "unlock", h.done(), dsync.ErrLost, dsync.ErrRevoked)
				if e := <-won; e.err != nil || time.Since(e.at) > 0 {
					t.Fatal(e.err)
				}
				next.done()
			})
		})
	}
}

// A hold that was forced has no special rights: another ForceLock can revoke it.
func TestForcedHoldCanBeForced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var mus []*dsync.Mutex
		for range 10 {
			mu := newSession(t, store, &dsync.Options{AlwaysListen: true}).Mutex("k")
			began := time.Now()
			if err := mu.ForceLock(background); err != nil {
				t.Fatal(err)
			}
			if n := len(mus); n > 0 {
				if d := time.Since(began); d != grace || !isClosed(mus[n-1].Lost()) {
					t.Errorf("forced after %v", d)
				}
				mus[n-1].Unlock()
				if isClosed(mu.Lost()) || mu.Token() == 0 {
					t.Error("the late Unlock ended the next hold")
				}
			}
			mus = append(mus, mu)
			time.Sleep(time.Second)
		}
	})
}
