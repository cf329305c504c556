package dsync_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

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
		t.Run(method, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
						if err := newSession(t, f, nil).Semaphore("k", 2).Acquire(background, 1); err != nil {
							t.Fatal(err)
						}
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
