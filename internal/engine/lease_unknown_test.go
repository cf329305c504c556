package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A fixed lease that nobody learned of ends with its session, not when the lease would end.

// The reply to the request is lost, and the session with it.
func TestLeaseOfALostReplyEndsWithItsSession(t *testing.T) {
	for _, try := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			var f *dsynctest.Faulty
			var lost atomic.Bool
			f = newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method != dsynctest.MethodAcquire || lost.Swap(true) {
					return dsynctest.Fault{}
				}
				time.AfterFunc(time.Millisecond, f.Cut)
				time.AfterFunc(3*ttl, f.Heal)
				return dsynctest.Fault{LoseReply: true}
			})
			s, other := newSession(t, f, nil), newSession(t, memory, nil)
			began := time.Now()
			if try {
				if _, err := s.TryLease(background, "k", 24*time.Hour); err == nil {
					t.Fatal("TryAcquire succeeded without a reply")
				}
				time.Sleep(3 * ttl)
				if err := other.Mutex("k").TryLockContext(background); err != nil {
					t.Errorf("nobody owns the key: %v", err)
				}
				return
			}
			l, err := s.Lease(background, "k", 24*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 4*ttl {
				t.Errorf("Acquire of a free key took %v, and the store was unreachable for %v", took, 3*ttl)
			}
			l.Release(background)
		})
	}
}

// A waiter is granted its lease while it is cut off, or when it is long dead. Break does not wait for
// the end of the lease either.
func TestLeaseGrantedToALostWaiterEndsWithItsSession(t *testing.T) {
	for _, how := range []string{"lives on", "dies", "is broken"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				f := newFaulty(t, memory, nil)
				a, s := newSession(t, memory, nil), newSession(t, f, nil)
				mu := a.Mutex("k")
				lock(t, mu)
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				leased := make(chan *dsync.Lease, 1)
				go func() {
					l, _ := s.Lease(ctx, "k", 24*time.Hour)
					leased <- l
				}()
				time.Sleep(time.Second)
				f.Cut()
				if how != "lives on" {
					cancel()
					time.Sleep(3 * ttl)
				}
				mu.Unlock()
				began := time.Now()
				switch how {
				case "lives on":
					time.Sleep(3 * ttl)
					f.Heal()
					began = time.Now()
					l := <-leased
					defer l.Release(background)
				case "dies":
					lock(t, mu)
					mu.Unlock()
				default:
					if err := a.Break(background, "k"); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began); took > 2*ttl {
					t.Errorf("waited %v for a lease that nobody had", took)
				}
				f.Heal()
				synctest.Wait()
			})
		})
	}
}
