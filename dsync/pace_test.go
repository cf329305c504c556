package dsync_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// gaps returns the durations between successive times.
func gaps(times []time.Time) []time.Duration {
	var all []time.Duration
	for i := 1; i < len(times); i++ {
		all = append(all, times[i].Sub(times[i-1]))
	}
	return all
}

// wantJittered checks that all values are between low and high and are spread out.
func wantJittered(t *testing.T, what string, all []time.Duration, low, high time.Duration) {
	t.Helper()
	if len(all) < 20 {
		t.Fatalf("%s: %d of them, too few to judge", what, len(all))
	}
	least, most := slices.Min(all), slices.Max(all)
	if least < low || most > high {
		t.Errorf("%s are between %v and %v, want between %v and %v", what, least, most, low, high)
	}
	if most-least < (high-low)/4 {
		t.Errorf("%s are between %v and %v, too close together for jitter; want them spread between %v and %v", what, least, most, low, high)
	}
}

// timesOf returns a Faulty that records when method is called, and a function that returns these times.
func timesOf(t *testing.T, store driver.Store, method dsynctest.Method) (f *dsynctest.Faulty, times func() []time.Time) {
	var mu sync.Mutex
	var all []time.Time
	f = newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
		if r.Method == method {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, time.Now())
		}
		return dsynctest.Fault{}
	})
	return f, func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// Heartbeats are sent every interval ±10 %, so that the heartbeats of processes that were started together spread out.
func TestHeartbeatsAreJittered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, times := timesOf(t, dsynctest.NewMemory(), dsynctest.MethodHeartbeat)
		mu := newSession(t, f, nil).Mutex("k")
		lock(t, mu)
		time.Sleep(50 * ttl)
		wantJittered(t, "periods", gaps(times()), ttl/3*9/10, ttl/3*11/10)
		mu.Unlock()
	})
}

// The first retry follows quickly. Later retries back off, with jitter, to at most a twelfth of the TTL.
func TestRetriesAreSpacedAndJittered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &brokenStore{Memory: dsynctest.NewMemory()}
		f, times := timesOf(t, store, dsynctest.MethodAcquire)
		s := newSession(t, f, nil)
		turn(s.Mutex("warm"))
		store.fail(errDown)
		n := len(times())
		ctx, cancel := context.WithTimeout(background, 10*ttl)
		defer cancel()
		wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded, errDown)
		all := gaps(times()[n:])
		if all[0] > 20*time.Millisecond {
			t.Errorf("the first retry comes after %v, want at most 20 ms", all[0])
		}
		wantJittered(t, "later retries", all[10:], ttl/24, ttl/12)
	})
}

// The waiter at position n polls every min(n, 4) poll intervals, with ±20 % of jitter.
func TestPollsAreJittered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const step = 250 * time.Millisecond
		memory := dsynctest.NewMemory()
		memory.Polling = true
		held := newSession(t, memory, nil).Mutex("k")
		lock(t, held)
		ctx, cancel := context.WithCancel(background)
		var waiters sync.WaitGroup
		var polls []func() []time.Time
		for range 6 {
			f, times := timesOf(t, memory, dsynctest.MethodAcquire)
			s := newSession(t, f, nil)
			waiters.Go(func() { s.Mutex("k").LockContext(ctx) })
			synctest.Wait()
			polls = append(polls, times)
		}
		time.Sleep(10 * ttl)
		for i, times := range polls {
			d := step * time.Duration(min(i+1, 4))
			wantJittered(t, "polls", gaps(times()), d*8/10, d*12/10+time.Millisecond)
		}
		cancel()
		waiters.Wait()
		held.Unlock()
	})
}

// When a holder's session lapses, the waiter at position n waits for n-1 to 2(n-1) hundredths of the TTL before it
// tries to expire the session. So the waiters ahead of it try first.
func TestChecksAfterACrashAreJittered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waiters = 40
		memory := dsynctest.NewMemory()
		crashed := newFaulty(t, memory, nil)
		h := take(t, newSession(t, crashed, nil).Mutex("k").Hold)
		crashed.Cut()
		expiry := time.Now().Add(ttl)
		var guard sync.Mutex
		first := make(map[int]time.Duration)
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		for i := range waiters {
			f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method != dsynctest.MethodExpire {
					return dsynctest.Fault{}
				}
				guard.Lock()
				defer guard.Unlock()
				if _, ok := first[i]; !ok {
					first[i] = time.Since(expiry)
				}
				return dsynctest.Fault{LoseRequest: true} // so that every waiter has to try to expire the holder's session
			})
			s := newSession(t, f, &dsync.Options{PollInterval: time.Hour})
			wg.Go(func() { s.Mutex("k").LockContext(ctx) })
			synctest.Wait()
		}
		time.Sleep(2 * ttl)
		guard.Lock()
		var parts []time.Duration // each waiter's delay divided by the number of waiters ahead of it
		for i, d := range first {
			if back := time.Duration(i); back > 0 {
				parts = append(parts, d/back)
			} else if d > time.Millisecond {
				t.Errorf("the first waiter tried %v after the session lapsed, want at once", d)
			}
		}
		guard.Unlock()
		if len(parts) != waiters-1 {
			t.Errorf("%d of %d waiters have tried", len(parts)+1, waiters)
		}
		wantJittered(t, "the delays, divided by the number of waiters ahead,", parts, ttl/100, 2*ttl/100+time.Millisecond)
		cancel()
		wg.Wait()
		h.Release(background)
	})
}

// If several sessions ahead may have lapsed, one command reads them all. Sessions that are still alive cost no further
// command.
func TestLiveSessionsAheadAreReadTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const size = 8
		store := dsynctest.NewMemory()
		var held []*dsync.Semaphore
		for range size {
			sem := newSession(t, store, nil).Semaphore("k", size)
			acquire(t, sem, 1)
			held = append(held, sem)
		}
		f, expired := timesOf(t, store, dsynctest.MethodExpire)
		ctx, cancel := context.WithTimeout(background, ttl*3/2)
		defer cancel()
		before := store.Counts()
		wantErr(t, "Acquire", newSession(t, f, nil).Semaphore("k", size).Acquire(ctx, 1), context.DeadlineExceeded)
		if n := len(expired()); n != 0 {
			t.Errorf("%d Expires were sent, although all sessions are alive", n)
		}
		if n := store.Counts().Since(before).Commands[dsynctest.MethodMembers]; n < 2 || n > 3 {
			t.Errorf("read %d times within a TTL and a half, want 2 or 3 times", n)
		}
		for _, sem := range held {
			sem.Release(1)
		}
	})
}

// A key lingers for Linger from its last Unlock, not from an earlier Unlock.
func TestLingerCountsFromTheLastUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		mu := newSession(t, store, lingering()).Mutex("k")
		makeLinger(mu)
		time.Sleep(linger / 2)
		turn(mu)
		time.Sleep(linger * 3 / 4)
		if h := holders(t, store, "k"); len(h) != 1 {
			t.Errorf("the key is held by %v after three quarters of Linger, want still held by the process", h)
		}
		time.Sleep(linger/4 + time.Millisecond)
		synctest.Wait()
		if h := holders(t, store, "k"); len(h) != 0 {
			t.Errorf("the key is held by %v after Linger", h)
		}
	})
}

// Within HandOffTime, readers share their hold even when the listener has just been opened. A writer may have joined
// the queue unnoticed before that, but sharing delays the writer by at most HandOffTime.
func TestReadersShareThroughTheOpeningOfAListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodListen {
				return dsynctest.Fault{Delay: 20 * time.Millisecond}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, slow, &dsync.Options{Retention: -1, AlwaysListen: true})
		rw := s.RWMutex("k")
		rw.RLock()
		time.Sleep(30 * time.Millisecond)
		if !engine.Of(s).Local().Listening {
			t.Fatal("the listener is not open")
		}
		rw.RLock()
		if n := memory.Counts().Commands[dsynctest.MethodAcquire]; n != 1 {
			t.Errorf("two readers within HandOffTime sent %d requests, want 1", n)
		}
		rw.RUnlock()
		rw.RUnlock()
	})
}

// Do and Value send no command if their *Once knows that the key is sealed: from its own run, from an earlier Do that
// found the key sealed, or from an earlier Value.
func TestKnownOnceCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		ran, waited, read := s.Once("k"), s.Once("k"), s.Once("k")
		noErr(t, ran.Do(background, func(context.Context) error { return nil }))
		noErr(t, waited.Do(background, unwanted(t)))
		if _, done, err := read.Value(background); !done || err != nil {
			t.Fatal(done, err)
		}
		before := store.Counts()
		for _, once := range []*dsync.Once{ran, waited, read} {
			if err := once.Do(background, unwanted(t)); err != nil {
				t.Error(err)
			}
			if _, done, err := once.Value(background); !done || err != nil {
				t.Error(done, err)
			}
		}
		if d := store.Counts().Since(before); d.Total() != 0 {
			t.Errorf("Do and Value sent %v", d.Commands)
		}
	})
}

// A failing is a Memory that fails each call of one method while down is set, and counts these calls.
type failing struct {
	*dsynctest.Memory
	method string
	down   *atomic.Bool
	calls  *atomic.Int64
}

func (f failing) fails(method string) bool {
	if method == f.method && f.down.Load() {
		f.calls.Add(1)
		return true
	}
	return false
}

func (f failing) Expire(ctx context.Context, id string, owner bool) (time.Duration, error) {
	if f.fails("Expire") {
		return 0, errDown
	}
	return f.Memory.Expire(ctx, id, owner)
}

func (f failing) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	if f.fails("Sessions") {
		return nil, time.Time{}, errDown
	}
	return f.Memory.Sessions(ctx, q)
}

func (f failing) Revoke(ctx context.Context, session string, r driver.Revocation) ([]driver.Notice, error) {
	if f.fails("Revoke") {
		return nil, errDown
	}
	return f.Memory.Revoke(ctx, session, r)
}

// If a waiter's commands about other sessions keep failing, the pauses between the commands grow, but not beyond
// TTL/12. Once a command succeeds, the waiter gets the key.
func TestWhatWaitersAskBacksOff(t *testing.T) {
	for _, method := range []string{"Expire", "Sessions", "Revoke"} {
		inBubble(t, method, func(t *testing.T) {
			store := failing{dsynctest.NewMemory(), method, new(atomic.Bool), new(atomic.Int64)}
			waits := newSession(t, store, nil)
			served := make(chan struct{})
			switch method {
			case "Revoke":
				holds := newSession(t, store, nil)
				mu := holds.Mutex("k")
				lock(t, mu)
				go func() { <-mu.Lost(); mu.Unlock() }()
				store.down.Store(true)
				go func() {
					defer close(served)
					if err := errOf(waits.Mutex("k").ForceHold(background)); err != nil {
						t.Error(err)
					}
				}()
			default:
				for range 2 { // if two sessions may have lapsed, the waiter reads both to find out which have
					f := newFaulty(t, store, nil)
					noErr(t, newSession(t, f, nil).Semaphore("k", 2).Acquire(background, 1))
					f.Cut()
				}
				time.Sleep(ttl / 2)
				go func() {
					defer close(served)
					if err := waits.Semaphore("k", 2).Acquire(background, 1); err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(ttl / 4) // the waiter has read the sessions once
				store.down.Store(true)
				time.Sleep(ttl / 4)
			}
			time.Sleep(2 * ttl)
			// After the first few pauses, each is at least half of TTL/12.
			if n, most := store.calls.Load(), int64(2*(2*24+10)); n == 0 || n > most {
				t.Errorf("%d calls failed while the store was down, want some, and at most %d", n, most)
			}
			store.down.Store(false)
			healed := time.Now()
			<-served
			if took := time.Since(healed); took > ttl/4 {
				t.Errorf("the waiter was served %v after the store had recovered", took)
			}
		})
	}
}

// Even with a Grace of almost zero, a process that holds a key and has called Lost does not check the clock all the
// time.
func TestSmallGraceDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Grace: 2 * time.Microsecond, Retention: -1})
		mu := s.Mutex("k")
		lock(t, mu)
		_ = mu.Lost()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		time.Sleep(ttl / 100)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > 5000 {
			t.Errorf("%d allocations in %v, although nothing happened", n, ttl/100)
		}
		mu.Unlock()
	})
}
