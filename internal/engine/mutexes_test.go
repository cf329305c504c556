package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// heldKeys returns which of the keys somebody holds in the store.
func heldKeys(t *testing.T, store *dsynctest.Memory, keys ...string) (held []string) {
	t.Helper()
	for _, key := range keys {
		if len(holders(t, store, key)) > 0 {
			held = append(held, key)
		}
	}
	return held
}

func wantHeld(t *testing.T, when string, store *dsynctest.Memory, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := heldKeys(t, store, "a", "b", "c"); !slices.Equal(got, want) {
		t.Errorf("%s: %v are held, want %v", when, got, want)
	}
}

// Whatever order the keys are given in, they are locked in theirs: what comes before a key that is held is held too, and
// what comes after it is not.
func TestMutexesLockInOneOrder(t *testing.T) {
	for _, keys := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "b", "a", "c"}} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s, other := newSession(t, store, nil), newSession(t, store, nil)
			mu := other.Mutex("b")
			lock(t, mu)
			m := s.Mutexes(keys...)
			if got := m.Keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("Keys of %v: %v", keys, got)
			}
			locked := async(func() error { return m.LockContext(background) })
			wantHeld(t, "while it waits for b", store, "a", "b")
			mu.Unlock()
			if e := <-locked; e.err != nil {
				t.Fatal(e.err)
			}
			wantHeld(t, "locked", store, "a", "b", "c")
			tokens := make(map[int64]bool)
			for _, key := range keys {
				if got := m.Token(key); got == 0 || got != holders(t, store, key)[0].Token {
					t.Errorf("the token of %q is %d, and in the store %d", key, got, holders(t, store, key)[0].Token)
				} else {
					tokens[got] = true
				}
			}
			lost := m.Lost()
			if !m.Held() || isClosed(lost) {
				t.Error("not held")
			}
			m.Unlock()
			if m.Held() || !isClosed(lost) || m.Token("a") != 0 || !isClosed(m.Lost()) {
				t.Error("held after Unlock")
			}
			wantHeld(t, "unlocked", store)
		})
	}
}

// A try locks all or none, and says which key it failed for.
func TestMutexesTryLocksAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		slow := newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{Delay: 10 * time.Millisecond} })
		s, other := newSession(t, slow, nil), newSession(t, store, &dsync.Options{Host: "elsewhere"})
		m := s.Mutexes("a", "b", "c")
		for _, key := range []string{"a", "b", "c"} {
			mu := other.Mutex(key)
			lock(t, mu)
			held := (*dsync.HeldError)(nil)
			if err := m.TryLockContext(background); !errors.As(err, &held) || held.Key != key || held.Host != "elsewhere" {
				t.Errorf("with %q held: %v", key, err)
			}
			if got := heldKeys(t, store, "a", "b", "c"); !slices.Equal(got, []string{key}) || m.TryLock() || m.Held() {
				t.Errorf("with %q held, a try leaves %v held", key, got)
			}
			mu.Unlock()
		}
		if !m.TryLock() || !m.Held() {
			t.Fatal("the keys are free, and a try fails")
		}
		if other.Mutexes("c", "d").TryLock() || len(holders(t, store, "d")) > 0 {
			t.Error("of two that have a key in common both are locked, or a part of one")
		}
		m.Unlock()
	})
}

// A LockContext that fails leaves nothing locked.
func TestMutexesLockAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		mu := other.Mutex("c")
		lock(t, mu)
		m := s.Mutexes("a", "b", "c")
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		err := m.LockContext(ctx)
		wantErr(t, "LockContext", err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), `"c"`) || m.Held() {
			t.Errorf("%v, held %v", err, m.Held())
		}
		wantHeld(t, "its ctx ended", store, "c")
		mu.Unlock()

		if err := other.RWMutex("b").RLockContext(background); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "with b as another kind", m.LockContext(background), dsync.ErrMismatch)
		wantHeld(t, "b is of another kind", store, "b")

		m = s.Mutexes("a", "c")
		lock(t, other.Mutex("c"))
		locked := async(func() error { return m.LockContext(background) })
		synctest.Wait()
		s.Close(background)
		if e := <-locked; !errors.Is(e.err, dsync.ErrClosed) {
			t.Errorf("closed: %v", e.err)
		}
		wantHeld(t, "closed", store, "b", "c")
	})
}

// When one hold is lost, all are lost for the holder: one channel, one context, no tokens. The rest stays held until
// Unlock, which reports the loss.
func TestMutexesAreLostWhenOneIs(t *testing.T) {
	for _, key := range []string{"a", "b", "c"} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s, other := newSession(t, store, nil), newSession(t, store, nil)
			m := s.Mutexes("a", "b", "c")
			m.Lock()
			lost := m.Lost()
			ctx, cancel := m.Context(background)
			defer cancel()
			time.Sleep(2 * time.Second) // it listens
			broken := async(func() error { return admin.New(other).Break(background, key) })
			synctest.Wait()
			if !isClosed(lost) || m.Held() || ctx.Err() == nil {
				t.Errorf("%q is lost: closed %v, held %v, the context's Err %v", key, isClosed(lost), m.Held(), ctx.Err())
			}
			wantErr(t, "the cause", context.Cause(ctx), dsync.ErrLost, dsync.ErrRevoked)
			for _, k := range m.Keys() {
				if m.Token(k) != 0 {
					t.Errorf("%q is lost, and %q has a token", key, k)
				}
			}
			wantHeld(t, "before Unlock", store, "a", "b", "c")
			wantErr(t, "UnlockContext", m.UnlockContext(background), dsync.ErrLost)
			if e := <-broken; e.err != nil {
				t.Error(e.err)
			}
			wantHeld(t, "after Unlock", store)
			m.Lock()
			if isClosed(m.Lost()) || m.Token("a") == 0 {
				t.Error("the next hold is lost, too")
			}
			m.Unlock()
		})
	}
	bubble(t, func(t *testing.T) { // with the session
		memory := dsynctest.NewMemory()
		store := newFaulty(t, memory, nil)
		m := newSession(t, store, nil).Mutexes("a", "b")
		m.Lock()
		start, lost := time.Now(), m.Lost()
		store.Cut()
		<-lost
		if d := time.Since(start); d > lease {
			t.Errorf("lost %v after the last heartbeat, want %v", d, lease)
		}
		store.Heal()
		m.Unlock()
	})
}

// If a hold is lost while others are waited for, the wait ends, what is held is released, and all begins again. So nobody
// is kept waiting for a part, and Lock returns with all or none.
func TestMutexesBeginAgainAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		c := other.Mutex("c")
		lock(t, c)
		m := s.Mutexes("a", "b", "c")
		locked := async(func() error { return m.LockContext(background) })
		wantHeld(t, "waiting for c", store, "a", "b", "c")
		a := other.Mutex("a")
		got := async(func() error { return a.ForceLock(background) })
		if e := <-got; e.err != nil {
			t.Fatal(e.err)
		}
		wantHeld(t, "a is lost", store, "a", "c")
		if len(locked) > 0 || queueLength(t, store, "c") > 0 {
			t.Errorf("it waits for c with a part: %d in the queue", queueLength(t, store, "c"))
		}
		c.Unlock()
		wantHeld(t, "c is free", store, "a")
		a.Unlock()
		if e := <-locked; e.err != nil || !m.Held() {
			t.Errorf("%v, held %v", e.err, m.Held())
		}
		m.Unlock()
	})
}

func TestMutexesOtherForms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		m := s.Mutexes("b", "a")
		testkit.WantString(t, store, m, `mutexes ["a" "b"]`)

		failed := errors.New("failed")
		err := m.Do(background, func(ctx context.Context) error {
			wantHeld(t, "in Do", store, "a", "b")
			go admin.New(other).Break(background, "b")
			<-ctx.Done()
			return failed
		})
		wantErr(t, "Do", err, failed, dsync.ErrLost)
		wantHeld(t, "after Do", store)

		mu := other.Mutex("b")
		lock(t, mu)
		locked := m.LockChan(background)
		synctest.Wait()
		mu.Unlock()
		if !<-locked || !m.Held() {
			t.Error("LockChan: not locked")
		}
		m.Unlock()
		ctx, cancel := context.WithCancel(background)
		m.LockChan(ctx)
		wantHeld(t, "offered", store, "a", "b")
		cancel()
		wantHeld(t, "nobody received it", store)

		m.Lock()
		for _, d := range []time.Duration{0, dsync.MaxDuration + 1} {
			if err := m.UnlockAfter(background, d); err == nil || !m.Held() {
				t.Errorf("UnlockAfter %v: %v, held %v", d, err, m.Held())
			}
		}
		if err := m.UnlockAfter(background, time.Minute); err != nil || m.Held() {
			t.Errorf("UnlockAfter: %v", err)
		}
		start := time.Now()
		if m.Lock(); time.Since(start) < time.Minute {
			t.Errorf("locked after %v, want a minute", time.Since(start))
		}
		m.Unlock()

		for what, f := range map[string]func(){
			"unlock of unlocked": m.Unlock,
			"without keys":       func() { s.Mutexes() },
			"invalid":            func() { s.Mutexes("a", "") },
			"zero":               func() { new(dsync.Mutexes).Lock() },
			"not one of":         func() { m.Token("c") },
		} {
			func() {
				defer func() {
					if r := fmt.Sprint(recover()); !strings.Contains(r, strings.TrimPrefix(what, "in")) && !strings.Contains(r, what) {
						t.Errorf("%s: %s", what, r)
					}
				}()
				f()
			}()
		}
	})
}

// 100 processes that each lock 5 of 20 keys, for ten minutes, while some are cut off and others crash: nobody holds a key
// that another holds, and nobody ever stalls. No deadlock is reported.
func TestMutexesNeverStall(t *testing.T) {
	testkit.Large(t)
	const processes, keys, each = 100, 20, 5
	minutes, draws := testkit.Rounds(1, 10), testkit.Draw(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		ctx, stop := context.WithCancel(background)
		var busy [keys]atomic.Int32
		var turns, losses, deadlocks atomic.Int64
		var longest time.Duration
		var mu sync.Mutex
		var faulty []*dsynctest.Faulty
		var wg sync.WaitGroup
		for i := range processes {
			f := newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{Delay: time.Duration(draws.IntN(2000)) * time.Microsecond}
			})
			faulty = append(faulty, f)
			s := newSession(t, f, &dsync.Options{Hooks: &dsync.Hooks{Deadlock: func(dsync.DeadlockInfo) { deadlocks.Add(1) }}})
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for ctx.Err() == nil {
					var names []string
					mine := r.Perm(keys)[:each]
					for _, k := range mine {
						names = append(names, fmt.Sprint("key ", k))
					}
					m, start := s.Mutexes(names...), time.Now()
					if m.LockContext(ctx) != nil {
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(start))
					mu.Unlock()
					turns.Add(1)
					for _, k := range mine {
						if n := busy[k].Add(1); n > 1 {
							t.Errorf("key %d is held by %d", k, n)
						}
					}
					crashes := r.IntN(300) == 0
					if crashes {
						f.Cut()
						<-m.Lost()
						losses.Add(1)
					} else {
						time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
					}
					for _, k := range mine {
						busy[k].Add(-1)
					}
					m.Unlock()
					if crashes {
						time.Sleep(ttl)
						f.Heal()
					}
				}
			})
		}
		for range minutes * 6 {
			before := turns.Load()
			time.Sleep(10 * time.Second)
			if turns.Load() == before {
				t.Errorf("nobody had a turn for ten seconds")
			}
			some := faulty[draws.IntN(processes)]
			some.Cut()
			go func() {
				time.Sleep(2 * ttl)
				some.Heal()
			}()
		}
		time.Sleep(3 * ttl)
		stop()
		wg.Wait()
		t.Logf("%d turns in %d min, the longest wait %v, %d losses", turns.Load(), minutes, longest, losses.Load())
		if losses.Load() == 0 {
			t.Error("nobody crashed, so little was shown")
		}
		if deadlocks.Load() > 0 {
			t.Errorf("%d deadlocks were reported", deadlocks.Load())
		}
	})
}
