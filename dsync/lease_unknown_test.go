package dsync_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// If no process learns that a lease was granted, the lease ends with its session, not at its own end. Here the reply to
// one of the lease's commands is lost, and then the session is lost. Soon after the process can reach the store again,
// the key is free for everybody. It does not matter whether the caller still waits, has given up or made only a try.
// (B37)
func TestLeaseOfALostReplyEndsWithItsSession(t *testing.T) {
	for _, method := range []dsynctest.Method{dsynctest.MethodAcquire, dsynctest.MethodExtend} {
		for _, caller := range []string{"waits", "gives up early", "gives up late", "tries"} {
			t.Run(fmt.Sprint(method, ", its caller ", caller), func(t *testing.T) {
				bubble(t, func(t *testing.T) { testLeaseOfALostReply(t, method, caller) })
			})
		}
	}
}

func testLeaseOfALostReply(t *testing.T, method dsynctest.Method, caller string) {
	memory := dsynctest.NewMemory()
	var f *dsynctest.Faulty
	var lost atomic.Bool
	f = newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
		if r.Method != method || lost.Swap(true) {
			return dsynctest.Fault{}
		}
		time.AfterFunc(time.Millisecond, f.Cut)
		time.AfterFunc(3*ttl, f.Heal)
		return dsynctest.Fault{LoseReply: true}
	})
	s, other := newSession(t, f, nil), newSession(t, memory, nil)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	began := time.Now()
	switch caller {
	case "tries":
		if _, err := s.Mutex("k").TryLease(ctx, 24*time.Hour); err == nil {
			t.Fatal("TryLease succeeded without a reply")
		}
	case "gives up early", "gives up late":
		after := ttl / 2
		if caller == "gives up late" {
			after = 2 * ttl
		}
		time.AfterFunc(after, cancel)
		if _, err := s.Mutex("k").Lease(ctx, 24*time.Hour); err == nil {
			t.Fatal("Lease succeeded without a reply")
		}
	default:
		l, err := s.Mutex("k").Lease(ctx, 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		l.Release(background)
	}
	mu := other.Mutex("k")
	lock(t, mu)
	if took := time.Since(began); took > 4*ttl {
		t.Errorf("the key was free only after %v, although the store was unreachable for only %v", took, 3*ttl)
	}
	mu.Unlock()
}

// The store executes an Extend, but the reply does not reach the holder before the lease is over. The key is then free
// at the end of the grace, or earlier if the holder calls Release. It does not stay held until the extended end. (B37)
func TestLeaseOfALostExtendIsReleased(t *testing.T) {
	const d = time.Hour
	for name, fault := range map[string]dsynctest.Fault{
		"the reply is lost":         {LoseReply: true},
		"the reply comes too late":  {ReplyDelay: 1500 * time.Millisecond},
		"the command is never made": {LoseRequest: true},
	} {
		for _, releases := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", and its holder releases it: ", releases), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					memory := dsynctest.NewMemory()
					extends := 0
					f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
						if r.Method == dsynctest.MethodExtend {
							if extends++; extends > 1 { // the first Extend sets the lease's end
								return fault
							}
						}
						return dsynctest.Fault{}
					})
					s, other := newSession(t, f, nil), newSession(t, memory, nil)
					began := time.Now()
					l, err := s.Mutex("k").Lease(background, d)
					if err != nil {
						t.Fatal(err)
					}
					over := d - d/1000 - margin - grace
					time.Sleep(over - time.Second)
					ctx, cancel := context.WithTimeout(background, time.Second/2)
					defer cancel()
					if _, err := l.Extend(ctx); err == nil {
						t.Fatal("Extend succeeded without a reply")
					}
					<-l.Lost()
					if took := time.Since(began); took != over {
						t.Errorf("the hold was lost after %v, want %v", took, over)
					}
					latest := over + grace
					if releases {
						wantErr(t, "Release", l.Release(background), dsync.ErrLost)
						latest = over
					}
					if fault.LoseRequest { // in this case the key may stay held until the end of the lease
						latest = d
					}
					mu := other.Mutex("k")
					lock(t, mu)
					if took := time.Since(began); took > latest+time.Second {
						t.Errorf("the key was free only after %v, want soon after %v", took, latest)
					}
					mu.Unlock()
				})
			})
		}
	}
}

// If an Extend got no reply and the store still does not answer, Release returns once the lease is certainly over. This
// takes twice the lease's length from the lease's beginning, because the store may have executed the Extend at the last
// moment. (B37)
func TestReleaseOfALostExtendEndsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = 5 * ttl
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		l, err := newSession(t, f, nil).Mutex("k").Lease(background, d)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(ttl)
		f.Cut()
		if _, err := l.Extend(background); err == nil {
			t.Fatal("Extend succeeded without a reply")
		}
		ctx, cancel := context.WithTimeout(background, 100*d)
		defer cancel()
		wantErr(t, "Release", l.Release(ctx), dsync.ErrLost, dsync.ErrLeaseOver)
		if took := time.Since(began); took < 2*d || took > 2*d+ttl {
			t.Errorf("Release returned %v after the lease began, want %v: the lease and what the Extend can have added", took, 2*d)
		}
	})
}

// An Extend may wait behind other commands until the lease is over. It is then not sent, because it would keep the key
// locked without a holder. (B37)
func TestExtendIsNotSentAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var extends atomic.Int64
		slow := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) (fault dsynctest.Fault) {
			if r.Method == dsynctest.MethodExtend {
				extends.Add(1)
			}
			if r.Method == dsynctest.MethodLoad {
				fault.Delay = time.Second
			}
			return fault
		})
		s := newSession(t, slow, nil)
		l, err := s.Mutex("k").Lease(background, ttl)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease - time.Second/2)
		for range 100 { // enough commands to keep the session at its limit of concurrent commands for seconds
			go admin.New(s).Status(background, "another")
		}
		synctest.Wait()
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, dsync.ErrLost)
		time.Sleep(5 * time.Second)
		if n := extends.Load(); n != 1 {
			t.Errorf("%d Extends were sent, want only the one that set the end of the lease", n)
		}
	})
}

// A waiter may be granted a lease while it is cut off, or after its process has died. Then other waiters and Break need
// not wait until the lease ends.
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
				leased := make(chan *dsync.Hold, 1)
				go func() {
					l, _ := s.Mutex("k").Lease(ctx, 24*time.Hour)
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
					if err := admin.New(a).Break(background, "k"); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began); took > 2*ttl {
					t.Errorf("waited %v for a lease that nobody used", took)
				}
				f.Heal()
				synctest.Wait()
			})
		})
	}
}
