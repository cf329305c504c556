package dsync_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// Promise 7: without contention, a Lock and its Unlock cost two commands and two writes.
func TestUncontendedLockCost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		mu := newSession(t, store, nil).Mutex("k")
		lock(t, mu)
		mu.Unlock()
		before := store.Counts()
		for range 100 {
			turn(mu)
		}
		if d := store.Counts().Since(before); d.Total() != 200 || d.Writes != 200 {
			t.Errorf("100 × Lock and Unlock took %d commands (%v) and %d writes, want 200 and 200", d.Total(), d.Commands, d.Writes)
		}
	})
}

// Promise 7: in each heartbeat interval, a session sends one heartbeat (a write) and one read, whether it holds one
// lock or ten thousand. If it holds nothing, it sends no read.
func TestHeldLocksCost(t *testing.T) {
	testkit.Large(t)
	for _, locks := range []int{0, 1, 10_000} {
		inBubble(t, fmt.Sprint(locks), func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			var held []*dsync.Mutex
			for i := range locks {
				mu := s.Mutex(fmt.Sprint(i))
				mu.Lock()
				held = append(held, mu)
			}
			turn(s.Mutex("not held"))
			time.Sleep(2 * ttl) // until the session has begun or stopped listening
			before := store.Counts()
			const periods = 100
			time.Sleep(periods * ttl / 3)
			d := store.Counts().Since(before)
			beats := d.Commands[dsynctest.MethodHeartbeat]
			total := beats * (1 + min(1, locks))
			if d.Total() != total || d.Writes != beats || beats < periods*9/10 || beats > periods*11/10+1 {
				t.Errorf("in %d periods: %v commands and %d writes, want one heartbeat per period, and as many reads if anything is held", periods, d.Commands, d.Writes)
			}
			for _, mu := range held {
				if isClosed(mu.Lost()) {
					t.Fatal("a hold was lost")
				}
				mu.Unlock()
			}
		})
	}
}

// Promise 7, B11: a failed try costs one command, plus at most one read of the holder's session per TTL. It writes
// nothing.
func TestFailedTryCost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		held := a.Mutex("k")
		lock(t, held)
		warm := b.Mutex("warm")
		lock(t, warm)
		before := store.Counts()
		const ttls, perTTL = 10, 100
		for range ttls * perTTL {
			wantErr(t, "TryHold", errOf(b.Mutex("k").TryHold(background)), dsync.ErrHeld)
			time.Sleep(ttl / perTTL)
		}
		d := store.Counts().Since(before)
		if n := d.Commands[dsynctest.MethodAcquire]; n != ttls*perTTL {
			t.Errorf("%d tries sent %d Acquires, want one each", ttls*perTTL, n)
		}
		if n := d.Commands[dsynctest.MethodMembers]; n > ttls {
			t.Errorf("%d reads of sessions in %d TTLs, want at most one per TTL", n, ttls)
		}
		if n := d.Commands[dsynctest.MethodHeartbeat]; d.Writes != n {
			t.Errorf("%d writes and %d heartbeats, want as many of both", d.Writes, n)
		}
		// Within one TTL, the tries send at most one command besides their own Acquires.
		before = store.Counts()
		for range 100 {
			b.Mutex("k").TryLock()
		}
		if d := store.Counts().Since(before); d.Commands[dsynctest.MethodAcquire] != 100 || d.Total() > 101 {
			t.Errorf("100 tries sent the commands %v, want 100 Acquires and at most one other", d.Commands)
		}
		held.Unlock()
		warm.Unlock()
	})
}

// Every request for a claim except the first is marked as repeated, so a store can tell a waiter from a newcomer.
func TestRepeatedRequestsSaySo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &repeatStore{Memory: dsynctest.NewMemory()}
		held, s := newSession(t, store.Memory, nil).Mutex("k"), newSession(t, store, nil)
		lock(t, held)
		mu := s.Mutex("k")
		time.AfterFunc(10*ttl, held.Unlock)
		for range 2 { // one claim that waits and one that doesn't
			lock(t, mu)
			mu.Unlock()
		}
		if len(store.repeated) != 2 {
			t.Fatalf("%d claims were requested, want 2", len(store.repeated))
		}
		for claim, repeated := range store.repeated {
			if repeated[0] || slices.Contains(repeated[1:], false) {
				t.Errorf("the requests of %s were marked as repeated: %t, want all but the first", claim, repeated)
			}
			if n := len(repeated); strings.HasSuffix(claim, ".1") && n < 3 {
				t.Errorf("%s was requested %d times, want at least 3, since its waiter polls", claim, n)
			}
		}
	})
}

// A repeatStore records which requests for a claim are marked as repeated.
type repeatStore struct {
	*dsynctest.Memory
	mu       sync.Mutex
	repeated map[string][]bool // by claim
}

func (s *repeatStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if j := e.Acquire; j != nil {
		s.mu.Lock()
		if s.repeated == nil {
			s.repeated = make(map[string][]bool)
		}
		s.repeated[j.Claim.ID] = append(s.repeated[j.Claim.ID], j.Repeated)
		s.mu.Unlock()
	}
	return s.Memory.Edit(ctx, e)
}

// Promise 7: after a waiter has joined the queue, its wait writes nothing.
func TestWaitingWritesNothing(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprint("polling ", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			held := newSession(t, store, nil).Mutex("k")
			lock(t, held)
			var wg sync.WaitGroup
			for range 10 {
				mu := newSession(t, store, nil).Mutex("k")
				wg.Go(func() { turn(mu) })
			}
			time.Sleep(time.Second)
			before := store.Counts()
			time.Sleep(10 * ttl)
			d := store.Counts().Since(before)
			if n := d.Commands[dsynctest.MethodHeartbeat]; d.Writes != n {
				t.Errorf("%d writes while 10 sessions wait, but only %d heartbeats", d.Writes, n)
			}
			held.Unlock()
			wg.Wait()
		})
	}
}

// Promises 5 and 7: with 1,000 sessions in the queue, a release costs one command and one notice, and wakes one
// session.
func TestReleaseWakesOne(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		const waiters = 1000
		store := dsynctest.NewMemory()
		held := newSession(t, store, nil).Mutex("k")
		lock(t, held)
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		got := make(chan *dsync.Mutex, waiters)
		for range waiters {
			mu := newSession(t, store, nil).Mutex("k")
			wg.Go(func() {
				if mu.LockContext(ctx) == nil {
					got <- mu
				}
			})
		}
		synctest.Wait()
		if n := queueLength(t, store, "k"); n != waiters {
			t.Fatalf("%d waiters in the queue, want %d", n, waiters)
		}
		before := store.Counts()
		held.Unlock()
		synctest.Wait() // no time passes, so only the release can have caused what happens
		d := store.Counts().Since(before)
		if d.Total() != 2 || d.Commands[dsynctest.MethodRelease] != 1 || d.Commands[dsynctest.MethodNotify] != 1 {
			t.Errorf("a release with %d waiters in the queue: commands %v, want one Release and one Notify", waiters, d.Commands)
		}
		if len(got) != 1 {
			t.Fatalf("%d waiters acquired the key, want 1", len(got))
		}
		next := <-got
		cancel()
		wg.Wait()
		next.Unlock()
	})
}

// Promise 5: a waiter that misses a notice still gets its lock, but later.
func TestLostNoticesCostNoProgress(t *testing.T) {
	for _, ready := range []bool{false, true} { // whether the listener reports that it is ready
		inBubble(t, fmt.Sprint("ready ", ready), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			deaf := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodNotice && (r.Claim != "" || !ready)}
			})
			held, waits := newSession(t, memory, nil).Mutex("k"), newSession(t, deaf, nil).Mutex("k")
			for range 20 {
				lock(t, held)
				time.AfterFunc(3*time.Second, held.Unlock)
				start := time.Now()
				lock(t, waits)
				if d := time.Since(start); d > 3*time.Second+ttl*12/10 {
					t.Errorf("waited %v for a lock that was free after 3s", d)
				}
				waits.Unlock()
			}
		})
	}
}

// L4, promise 5: PollInterval sets how often waiters poll if the store can't notify.
func TestPollCanBeSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, poll := range []time.Duration{0, 50 * time.Millisecond, 2 * time.Second} {
			store := dsynctest.NewMemory()
			store.Polling = true
			held, s := newSession(t, store, nil).Mutex("k"), newSession(t, store, &dsync.Options{PollInterval: poll})
			lock(t, held)
			before := store.Counts()
			ctx, cancel := context.WithTimeout(background, ttl)
			wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
			cancel()
			want := poll
			if poll == 0 {
				want = 250 * time.Millisecond
			}
			n := store.Counts().Since(before).Commands[dsynctest.MethodAcquire]
			if lo, hi := int(ttl/want*8/10)-1, int(ttl/want*12/10)+3; n < lo || n > hi {
				t.Errorf("PollInterval %v: polled %d times in %v, want about %d", poll, n, ttl, ttl/want)
			}
			held.Unlock()
		}
	})
}

// A session has one listener. The session opens its listener for the first waiter, and closes it some time after the
// last waiter is done. A hold of less than a second opens no listener.
func TestListensOnlyWhileSomeoneWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		for i := range 10 {
			lock(t, a.Mutex(fmt.Sprint(i)))
		}
		time.Sleep(900 * time.Millisecond)
		before := store.Counts().Commands[dsynctest.MethodListen]
		if before != 0 {
			t.Errorf("%d listeners without a waiter", before)
		}
		time.Sleep(ttl)
		before = store.Counts().Commands[dsynctest.MethodListen]
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() { b.Mutex(fmt.Sprint(i)).LockContext(ctx) })
		}
		time.Sleep(ttl)
		if n := store.Counts().Commands[dsynctest.MethodListen] - before; n != 1 {
			t.Errorf("%d listeners for 10 waiters of one session, want 1", n)
		}
		cancel()
		wg.Wait()
		time.Sleep(3 * ttl)
		wait, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wantErr(t, "LockContext", b.Mutex("0").LockContext(wait), context.DeadlineExceeded)
		if n := store.Counts().Commands[dsynctest.MethodListen] - before; n != 2 {
			t.Errorf("%d listeners after a pause of three TTLs, want 2", n)
		}
	})
}

// A brokenStore fails every Acquire while an error is set.
type brokenStore struct {
	*dsynctest.Memory
	err atomic.Value // error
}

type failure struct{ err error }

func (s *brokenStore) fail(err error) { s.err.Store(failure{err}) }

func (s *brokenStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if f, _ := s.err.Load().(failure); f.err != nil && e.Acquire != nil {
		return driver.Edited{}, f.err
	}
	return s.Memory.Edit(ctx, e)
}
