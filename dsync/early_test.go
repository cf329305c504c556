package dsync_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// If a fail-over undoes an Unlock, the claim holds the key again until the session discards the claim at its next
// heartbeat. Until then nobody else gets the key.
func TestUndoneUnlock(t *testing.T) {
	for name, unlock := range map[string]func(s *dsync.Session){
		"Mutex": func(s *dsync.Session) { turn(s.Mutex("k")) },
		"RWMutex, writing": func(s *dsync.Session) {
			turn(s.RWMutex("k"))
		},
		"RWMutex, reading": func(s *dsync.Session) {
			turn(s.RWMutex("k").RLocker())
		},
		"Semaphore": func(s *dsync.Session) {
			m := s.Semaphore("k", 2)
			if err := m.Acquire(background, 1); err != nil {
				t.Error(err)
			}
			m.Release(1)
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := finalStore{dsynctest.NewMemory()}
			s := newSession(t, store, nil)
			unlock(s)
			store.FailOver()
			if h := holders(t, store, "k"); len(h) != 1 {
				t.Fatalf("the key is held by %v, want the undone claim", h)
			}
			began := time.Now()
			eventuallyFree(t, store, s)
			if took := time.Since(began); took > 11*time.Second {
				t.Errorf("the key was free only after %v, want within 11 s", took)
			}
			unlock(newSession(t, store, nil))
		})
	}
}

// If a fail-over undoes an Unlock, the session discards the claim as soon as a heartbeat has reached the new primary.
// It does so even if copies of the claim's request may still arrive. If a copy makes the claim join again, the session
// discards it again.
func TestUndoneUnlockEndsWithTheHeartbeat(t *testing.T) {
	for _, copies := range []bool{false, true} {
		inBubble(t, fmt.Sprint("a copy comes: ", copies), func(t *testing.T) {
			memory := dsynctest.NewMemory() // this store never sets State.Final
			store := &firstJoin{Store: memory}
			beats := make(chan struct{}, 1)
			opt := &dsync.Options{Retention: -1, Hooks: &dsync.Hooks{Heartbeat: func(_, _ time.Duration, err error) {
				select {
				case beats <- struct{}{}:
				default:
				}
			}}}
			s, other := newSession(t, store, opt), newSession(t, memory, nil)
			if _, err := engine.Of(s).Register(background); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl/3 - ttl/20) // shortly before the next heartbeat
			turn(s.Mutex("k"))
			memory.FailOver()
			if h := holders(t, memory, "k"); len(h) != 1 {
				t.Fatalf("the key is held by %v, want the undone claim", h)
			}
			<-beats
			synctest.Wait()
			wantFree(t, memory, "k")
			if copies {
				if _, err := memory.Edit(background, *store.edit.Load()); err != nil || len(holders(t, memory, "k")) != 1 {
					t.Fatalf("the copy did not get the key: %v", err)
				}
			}
			began := time.Now()
			mu := other.Mutex("k")
			lock(t, mu)
			if took := time.Since(began); took > ttl/2 {
				t.Errorf("the key was free %v after the heartbeat", took)
			}
			mu.Unlock()
		})
	}
}

// A fail-over undoes an Unlock, so a claim that nobody uses holds the key. When a try in the same process finds the key
// held, the session sends a heartbeat at once and discards the claim, so the next try succeeds.
func TestOwnTryAfterAnUndoneUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		turn(s.Mutex("k"))
		memory.FailOver()
		s.Mutex("k").TryLock()
		time.Sleep(ttl / 100)
		h, err := s.Mutex("k").TryHold(background)
		if err != nil {
			t.Fatalf("the second try, a moment after the first: %v", err)
		}
		h.Release(background)
	})
}

// eventuallyFree waits up to two minutes for the key "k" to be free.
func eventuallyFree(t *testing.T, store driver.Store, s *dsync.Session) {
	t.Helper()
	for range 120 {
		if len(holders(t, store, "k")) == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("the key was not free within two minutes; %v", s)
}

// If a fail-over undoes an Unlock, a waiter that arrives afterwards gets the key when the undone claim is discarded.
// The waiter may be in the same process or in another.
func TestUndoneUnlockAndAWaiter(t *testing.T) {
	for _, own := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			store := finalStore{dsynctest.NewMemory()}
			s := newSession(t, store, nil)
			m := s.Mutex("k")
			lock(t, m)
			first := m.Token()
			m.Unlock()
			store.FailOver()
			next := s
			if !own {
				next = newSession(t, store, nil)
			}
			ctx, cancel := context.WithTimeout(background, 12*time.Second)
			defer cancel()
			n := next.Mutex("k")
			noErr(t, n.LockContext(ctx))
			if n.Token() <= first {
				t.Errorf("the token is %d, want more than %d", n.Token(), first)
			}
			n.Unlock()
		})
	}
}

// A fail-over never undoes the Release of a Hold or a lease, or the release after a failed run of a Once.
func TestCommittedUnlock(t *testing.T) {
	for name, unlock := range map[string]func(t *testing.T, s *dsync.Session){
		"Mutex": func(t *testing.T, s *dsync.Session) {
			if err := take(t, s.Mutex("k").Hold).Release(background); err != nil {
				t.Error(err)
			}
		},
		"reader": func(t *testing.T, s *dsync.Session) {
			if err := take(t, s.RWMutex("k").RHold).Release(background); err != nil {
				t.Error(err)
			}
		},
		"Semaphore": func(t *testing.T, s *dsync.Session) {
			if err := units(t, s.Semaphore("k", 2), 1).Release(background); err != nil {
				t.Error(err)
			}
		},
		"Lease": func(t *testing.T, s *dsync.Session) {
			l, err := s.Mutex("k").Lease(background, time.Minute)
			noErr(t, err)
			if err := l.Release(background); err != nil {
				t.Error(err)
			}
		},
		"Once that failed": func(t *testing.T, s *dsync.Session) {
			s.Once("k").Do(background, func(context.Context) error { return context.Canceled })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := finalStore{dsynctest.NewMemory()}
			s := newSession(t, store, nil)
			unlock(t, s)
			synctest.Wait()
			before := holders(t, store, "k")
			store.FailOver()
			if after := holders(t, store, "k"); len(after) > len(before) {
				t.Errorf("the key is held by %v after the fail-over, and by %v before", after, before)
			}
		})
	}
}

// If the primary's term is still the same, the next heartbeat confirms that no Unlock was undone. So an Unlock costs no
// more commands than a Release.
func TestUnlockCostsNoThirdCommand(t *testing.T) {
	counts := func(turn func(*dsync.Mutex)) (got map[dsynctest.Method]int) {
		bubble(t, func(t *testing.T) {
			store := finalStore{dsynctest.NewMemory()}
			s := newSession(t, store, nil)
			for range 100 {
				turn(s.Mutex("k"))
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			got = store.Counts().Commands
			delete(got, dsynctest.MethodHeartbeat) // their times vary
		})
		return got
	}
	early := counts(func(m *dsync.Mutex) { turn(m) })
	committed := counts(func(m *dsync.Mutex) { take(t, m.Hold).Release(background) })
	if !maps.Equal(early, committed) {
		t.Errorf("with Unlock: %v; with Hold.Release: %v", early, committed)
	}
}
