package dsync_test

import (
	"context"
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

// L5: ForceHold is served before all waiters, and does not change the order of the waiters of other processes.
func TestForceHoldIsFirst(t *testing.T) {
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
				s = b // the session that calls ForceHold also has a waiter in the store's queue
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
		for i := range 3 { // more waiters of that session; they wait within its process, behind its first waiter
			wg.Go(func() {
				mu := b.Mutex("k")
				mu.Lock()
				order = append(order, fmt.Sprint("local ", i))
				mu.Unlock()
			})
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		var forced *dsync.Hold
		won := async(func() error { return into(&forced, b.Mutex("k").ForceHold)(background) })
		<-held.Lost()
		if d := time.Since(began); d > 0 {
			t.Errorf("the holder was notified after %v, want at once", d)
		}
		held.Unlock()
		if e := <-won; e.err != nil || e.at.Sub(began) > 10*time.Millisecond {
			t.Fatalf("ForceHold: %v after %v, want nil after at most 10ms", e.err, e.at.Sub(began))
		}
		if len(order) > 0 {
			t.Errorf("%v got the key before ForceHold", order)
		}
		time.Sleep(3 * ttl)
		if isClosed(forced.Lost()) {
			t.Error("the forced hold is lost")
		}
		if n := queueLength(t, store, "k"); n != 4 {
			t.Errorf("%d waiters in the queue, want the 4 of other processes", n)
		}
		forced.Release(background)
		wg.Wait()
		// ForceHold made its own session's waiter leave the queue and join it again at the end.
		if want := []string{"0", "1", "3", "4", "2", "local 0", "local 1", "local 2"}; !slices.Equal(order, want) {
			t.Errorf("after ForceHold the key was granted to %q, want %q", order, want)
		}
	})
}

// If two ForceHolds wait, both get the key, but never at the same time: the call that is served second revokes the hold
// of the first.
func TestForceHoldTwice(t *testing.T) {
	for name, setting := range map[string]struct{ here, polling bool }{
		"in two processes":           {},
		"in two processes that poll": {polling: true},
		"in one process":             {here: true},
	} {
		inBubble(t, name, func(t *testing.T) {
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
					h, err := mu.ForceHold(background)
					if err != nil {
						return err
					}
					if inside.Add(1) != 1 {
						t.Error("two callers of ForceHold hold the key at the same time")
					}
					<-h.Lost()
					time.Sleep(grace / 2)
					inside.Add(-1)
					h.Release(background)
					return nil
				})
			}
			first := use(b)
			time.Sleep(grace / 2)
			second := use(c)
			time.Sleep(grace)
			held.Unlock()
			time.Sleep(ttl)
			// The hold that was granted first has been revoked and released. The other one lasts.
			if len(first)+len(second) != 1 || inside.Load() != 1 {
				t.Errorf("%d holds have ended and %d last, want 1 and 1", len(first)+len(second), inside.Load())
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
	}
}

// When ForceHold is called, its own process may just have been granted the key: for a waiter that should have made way,
// or for a try. The waiter or try is notified like any other holder, so ForceHold does not wait forever.
func TestForceHoldMeetsALocalGrant(t *testing.T) {
	for _, try := range []bool{false, true} {
		inBubble(t, fmt.Sprint("try ", try), func(t *testing.T) {
			store := dsynctest.NewMemory()
			faulty := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				if r.Key == "k" && (r.Method == dsynctest.MethodAcquire || r.Method == dsynctest.MethodNotice) {
					return dsynctest.Fault{ReplyDelay: time.Second}
				}
				return dsynctest.Fault{}
			})
			s := newSession(t, faulty, nil)
			lock(t, s.Mutex("warm"))
			acquire := s.Mutex("k").Hold
			if try {
				acquire = s.Mutex("k").TryHold
			}
			var h, forced *dsync.Hold
			locked := async(func() error { return into(&h, acquire)(background) })
			time.Sleep(100 * time.Millisecond) // the key is granted; the reply is under way
			won := async(func() error { return into(&forced, s.Mutex("k").ForceHold)(background) })
			if e := <-locked; e.err != nil {
				t.Fatal(e.err)
			}
			<-h.Lost()
			time.Sleep(grace / 2)
			if len(won) > 0 {
				t.Error("ForceHold got the key before the Release")
			}
			wantErr(t, "release", h.Release(background), dsync.ErrRevoked)
			if e := <-won; e.err != nil || isClosed(forced.Lost()) {
				t.Error(e.err)
			}
		})
	}
}

// B36: if its ctx ends, ForceHold leaves nothing in the queue, neither in the process nor in the store. The other
// waiters continue as before.
func TestForceHoldGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		cut := newFaulty(t, store, nil)
		a := newSession(t, cut, nil)
		held := a.Mutex("k")
		lock(t, held)
		cut.Cut() // the holder can't be notified
		b := newSession(t, store, nil)
		waits := waitAt(t, store, "k", 1, newSession(t, store, nil).Mutex("k").LockContext, background)
		mine := b.Mutex("k")
		local := waitAt(t, store, "k", 2, mine.LockContext, background)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wantErr(t, "ForceHold", errOf(b.Mutex("k").ForceHold(ctx)), context.DeadlineExceeded)
		time.Sleep(time.Second)
		if n := queueLength(t, store, "k"); n != 2 {
			t.Errorf("%d waiters in the queue, want the 2 that have not given up", n)
		}
		if err := <-waits; err != nil {
			t.Error(err)
		}
		if err := admin.New(newSession(t, store, nil)).Break(background, "k"); err != nil {
			t.Error(err)
		}
		if err := <-local; err != nil || isClosed(mine.Lost()) {
			t.Errorf("the error of the waiter that made way: %v; want none, and a hold that is not lost", err)
		}
	})
}

// ForceHold revokes no hold if it fails because its ctx has ended or the key is of another kind.
func TestForceHoldThatFailsRevokesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, "ForceHold when ctx has ended", errOf(s.Mutex("k").ForceHold(ctx)), context.Canceled)
		for _, s := range []*dsync.Session{s, other} {
			_, err := forceWriter(s)(background)
			wantErr(t, "by force, as another kind", err, dsync.ErrMismatch)
		}
		time.Sleep(ttl)
		if isClosed(mu.Lost()) {
			t.Error("the holder was revoked")
		}
		mu.Unlock()
	})
}

// If its session is lost, ForceHold continues under the next one.
func TestForceHoldOutlivesItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		cut, faulty := newFaulty(t, store, nil), newFaulty(t, store, nil)
		a := newSession(t, cut, &dsync.Options{TTL: 10 * ttl})
		held := a.Mutex("k")
		lock(t, held)
		cut.Cut()
		b := newSession(t, faulty, nil)
		var forced *dsync.Hold
		won := async(func() error { return into(&forced, b.Mutex("k").ForceHold)(background) })
		time.Sleep(time.Second)
		waits := waitAt(t, store, "k", 2, newSession(t, store, nil).Mutex("k").LockContext, background)
		id := b.ID()
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		time.Sleep(ttl)
		if len(won) > 0 || b.ID() == id || b.ID() == "" {
			t.Fatalf("%d calls of ForceHold have returned; the session is %q and was %q", len(won), b.ID(), id)
		}
		cut.Heal()
		<-held.Lost()
		held.Unlock()
		if e := <-won; e.err != nil {
			t.Fatal(e.err)
		}
		if len(waits) > 0 {
			t.Error("ForceHold was not served first after the loss")
		}
		forced.Release(background)
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// ForceHold and Break free a key that lingers in the same or another process, at once if the store can notify. No loss
// is reported, because nobody held the key.
func TestForceOfALingeringKey(t *testing.T) {
	for _, test := range []struct {
		name    string
		polling bool
		here    bool
		most    time.Duration
	}{
		{"notified", false, false, 10 * time.Millisecond}, // Break opens a listener for the key
		{"polled", true, false, ttl*4/10 + 600*time.Millisecond},
		{"here", false, true, 10 * time.Millisecond},
		{"here, polled", true, true, 0},
	} {
		for _, forces := range []string{"Break", "ForceHold"} {
			inBubble(t, forces+" "+test.name, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = test.polling
				var lost atomic.Int64
				a := newSession(t, store, &dsync.Options{Linger: 5 * time.Minute, Hooks: &dsync.Hooks{Lost: func(dsync.HoldInfo) { lost.Add(1) }}})
				b := newSession(t, store, nil)
				if test.here {
					b = a
				}
				lock(t, b.Mutex("warm"))
				makeLinger(a.Mutex("k"))
				time.Sleep(time.Second)
				if len(holders(t, store, "k")) != 1 {
					t.Fatal("the key does not linger")
				}
				began := time.Now()
				acquire := b.Mutex("k").ForceHold
				if forces == "Break" {
					noErr(t, admin.New(b).Break(background, "k"))
					acquire = b.Mutex("k").TryHold
				}
				h := take(t, acquire)
				most := test.most
				if test.here && test.polling && forces == "Break" {
					most = 600 * time.Millisecond
				}
				if d := time.Since(began); d > most {
					t.Errorf("taking the lingering key took %v, want at most %v", d, most)
				}
				if isClosed(h.Lost()) || lost.Load() != 0 {
					t.Errorf("%d losses were reported, or the new hold is lost", lost.Load())
				}
				h.Release(background)
			})
		}
	}
}

// ForceHold notifies a holder in its own process, and waits until that holder has unlocked. It waits even if the hold
// is lost meanwhile.
func TestForceHoldWaitsForALocalUnlock(t *testing.T) {
	for _, p := range parties {
		if p.force == nil || p.name == "lease" {
			continue
		}
		inBubble(t, p.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			h := p.take(t, s)
			var next *holding
			won := async(func() (err error) { next, err = p.force(s)(background); return })
			synctest.Wait()
			if !isClosed(h.lost) {
				t.Fatal("the holder was not notified at once")
			}
			time.Sleep(5 * ttl)
			if len(won) > 0 {
				t.Fatal("ForceHold got the key before the hold that it broke was released")
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
	}
}

// A hold taken by force has no special rights: another ForceHold can revoke it.
func TestForcedHoldCanBeForced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var all []*dsync.Hold
		for range 10 {
			mu := newSession(t, store, &dsync.Options{AlwaysListen: true}).Mutex("k")
			began := time.Now()
			h := take(t, mu.ForceHold)
			if n := len(all); n > 0 {
				if d := time.Since(began); d != grace || !isClosed(all[n-1].Lost()) {
					t.Errorf("ForceHold got the key after %v, want it after the grace, with the holder notified", d)
				}
				all[n-1].Release(background)
				if isClosed(h.Lost()) || h.Token() == 0 {
					t.Error("the late Release ended the next hold")
				}
			}
			all = append(all, h)
			time.Sleep(time.Second)
		}
	})
}
