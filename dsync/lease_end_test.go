package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// errDown is the error that the stores of these tests return while they are down.
var errDown = errors.New("the store is down")

// slowReadings returns a store that answers everything but an Extend a millisecond late, so that an Extend has returned
// before a reading can confirm what it found.
func slowReadings(t *testing.T, memory *dsynctest.Memory) *dsynctest.Faulty {
	return newFaulty(t, memory, func(r dsynctest.Request) (fault dsynctest.Fault) {
		if r.Method != dsynctest.MethodExtend {
			fault.ReplyDelay = time.Millisecond
		}
		return fault
	})
}

// confirmed is how long a heartbeat and then a reading take with slowReadings, rounded up.
const confirmed = 3 * time.Millisecond

// If an Extend finds that the store no longer has the lease, the hold ends in the process as well, as soon as a reading
// after a heartbeat confirms it.
func TestExtendOfADroppedLeaseIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, slowReadings(t, memory), nil)
		l, err := s.Mutex("k").Lease(background, ttl)
		noErr(t, err)
		lost := l.Lost()
		time.Sleep(time.Millisecond) // a reading at the instant of the grant would prove nothing
		memory.Skew(ttl)             // by the store's clock the lease has ended
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, driver.ErrNotHeld)
		time.Sleep(confirmed)
		if !isClosed(lost) || l.Token() != 0 {
			t.Errorf("Lost closed is %t and the token is %d, want true and 0", isClosed(lost), l.Token())
		}
		_, err = l.Extend(background)
		wantErr(t, "a second Extend", err, dsync.ErrLost)
	})
}

// If Extend finds that the key's record was deleted, the lease is lost with that cause, and the log gets one error.
func TestExtendOfADeletedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		memory := dsynctest.NewMemory()
		s := newSession(t, slowReadings(t, memory), &dsync.Options{Retention: -1, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
		l, err := s.Mutex("k").Lease(background, time.Hour)
		noErr(t, err)
		time.Sleep(time.Millisecond) // a reading at the instant of the grant would prove nothing
		memory.DeleteRecord("k")
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, driver.ErrNotHeld)
		time.Sleep(confirmed)
		_, err = l.Extend(background)
		wantErr(t, "a second Extend", err, dsync.ErrLost, dsync.ErrRecordDeleted)
		synctest.Wait() // the log is written by another goroutine
		if said := log.String(); strings.Count(said, "level=ERROR") != 1 {
			t.Errorf("the log has %q, want one error", said)
		}
	})
}

// When a lease is broken, the next waiter in the holder's process gets the key without a Release. A lease's holder need
// not call Release, so waiters in its process would otherwise wait forever.
func TestBrokenLeaseFreesItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		a, b := newSession(t, memory, nil), newSession(t, memory, nil)
		l, err := a.Mutex("k").Lease(background, 100*ttl)
		noErr(t, err)
		noErr(t, admin.New(b).Break(background, "k"))
		if !isClosed(l.Lost()) {
			t.Error("the holder was not notified")
		}
		ctx, cancel := context.WithTimeout(background, ttl)
		defer cancel()
		if err := a.Mutex("k").LockContext(ctx); err != nil {
			t.Errorf("LockContext in the same process after the break: %v", err)
		}
	})
}

// A lease can outlive its session. If the session is lost, the lease's release is still retried, with back-off, until
// the store answers.
func TestReleaseOfALeaseAfterALossBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &deafStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		other := s.Mutex("other")
		otherHold := take(t, other.Hold)
		l, err := s.Mutex("k").Lease(background, 100*ttl)
		noErr(t, err)
		store.down.Store(true)
		<-otherHold.Lost()
		ctx, cancel := context.WithTimeout(background, ttl)
		defer cancel()
		wantErr(t, "Release", l.Release(ctx), context.DeadlineExceeded)
		// After a few quick retries, the delay between two retries is 1/24 to 1/12 of the TTL, so there are 12 to 24
		// retries in a TTL.
		if n := store.releases.Load(); n < 10 || n > 40 {
			t.Errorf("%d releases within a TTL, want 10 to 40", n)
		}
		store.down.Store(false)
		time.Sleep(ttl)
		if h := holders(t, store.Memory, "k"); len(h) != 0 {
			t.Errorf("the key is held by %v after the store is back", h)
		}
		otherHold.Release(background)
	})
}

// A deafStore fails every heartbeat and every release immediately while down is set.
type deafStore struct {
	*dsynctest.Memory
	down     atomic.Bool
	releases atomic.Int64
}

func (s *deafStore) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	if s.down.Load() {
		return driver.HeartbeatReply{}, errDown
	}
	return s.Memory.Heartbeat(ctx, session, given)
}

func (s *deafStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Release == nil || e.Acquire != nil || !s.down.Load() {
		return s.Memory.Edit(ctx, e)
	}
	if s.releases.Add(1) > 5000 {
		panic("more than 5,000 releases")
	}
	return driver.Edited{}, errDown
}

// If the session is lost before it learns when a newly granted lease ends, Lease discards the grant and requests the
// key again. It does so even if another process now holds the key.
func TestLeaseOfALostSessionIsRequestedAgain(t *testing.T) {
	t.Run("nobody else wants it", func(t *testing.T) { testLeaseOfALostSession(t, false) })
	t.Run("another takes it", func(t *testing.T) { testLeaseOfALostSession(t, true) })
}

func testLeaseOfALostSession(t *testing.T, taken bool) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var first atomic.Bool
		f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodExtend && !first.Swap(true)}
		})
		s := newSession(t, f, nil)
		leased := make(chan *dsync.Hold, 1)
		go func() {
			l, err := s.Mutex("k").Lease(background, 100*ttl)
			if err != nil {
				t.Error(err)
			}
			leased <- l
		}()
		synctest.Wait() // now the lease is granted, but its Extend is lost
		noErr(t, storecmd.Unregister(background, memory, s.ID()))
		if taken {
			mu := newSession(t, memory, nil).Mutex("k")
			lock(t, mu)
			time.AfterFunc(ttl/2, mu.Unlock)
		}
		l := <-leased
		if l == nil {
			return // reported above
		}
		if h := holders(t, memory, "k"); l.Token() == 0 || len(h) != 1 || h[0].Token != l.Token() || !h[0].Until.Equal(l.Until()) {
			t.Errorf("the lease has the token %d until %v, and the store says %v", l.Token(), l.Until(), h)
		}
	})
}

// If the replies to two concurrent Extends arrive in reverse order, the later end counts.
func TestExtendsAnsweredOutOfOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		extends := 0
		slow := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodExtend {
				if extends++; extends == 2 { // the first Extend, sent by Lease, learns the lease's end
					return dsynctest.Fault{ReplyDelay: 1500 * time.Millisecond}
				}
			}
			return dsynctest.Fault{}
		})
		l, err := newSession(t, slow, nil).Mutex("k").Lease(background, ttl)
		noErr(t, err)
		first := make(chan error, 1)
		go func() { _, err := l.Extend(background); first <- err }()
		time.Sleep(time.Second)
		sent := time.Now()
		until, err := l.Extend(background)
		noErr(t, err)
		if err := <-first; err != nil { // this Extend's end is a second earlier
			t.Fatal(err)
		}
		synctest.Wait()
		if got := l.Until(); !got.Equal(until) {
			t.Errorf("Until is %v, want %v", got, until)
		}
		<-l.Lost()
		if d := time.Since(sent); d != lease {
			t.Errorf("the lease lapsed %v after the later Extend was sent, want %v", d, lease)
		}
	})
}

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
		noErr(t, err)
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
			inBubble(t, fmt.Sprint(name, ", and its holder releases it: ", releases), func(t *testing.T) {
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
				noErr(t, err)
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
		noErr(t, err)
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
		noErr(t, err)
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

// If copies of a lease's requests arrive later, its end stays: nobody would learn of a later one.
func TestCopyOfAnExtendMovesNoEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, nil)
		f.Record()
		l, err := newSession(t, f, nil).Mutex("k").Lease(background, time.Minute)
		noErr(t, err)
		for _, when := range []string{"of the first Extend", "of both Extends"} {
			for _, later := range []time.Duration{time.Second, time.Minute - margin - grace - 2*time.Second} {
				time.Sleep(later)
				noErr(t, f.Replay(background))
				st, err := memory.Load(background, "k", 0)
				noErr(t, err)
				if got, want := st.Holders[0].Until, l.Until(); !got.Equal(want) {
					t.Errorf("after copies %s the lease ends at %v, want %v", when, got, want)
				}
			}
			_, err = l.Extend(background)
			noErr(t, err)
		}
	})
}

// A waiter may be granted a lease while it is cut off, or after its process has died. Then other waiters and Break need
// not wait until the lease ends.
func TestLeaseGrantedToALostWaiterEndsWithItsSession(t *testing.T) {
	for _, how := range []string{"lives on", "dies", "is broken"} {
		inBubble(t, how, func(t *testing.T) {
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
	}
}
