package dsync_test

import (
	"bytes"
	"context"
	"errors"
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

// If an Extend finds that the store no longer has the lease, the hold ends in the process as well.
func TestExtendOfADroppedLeaseIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		l, err := s.Mutex("k").Lease(background, ttl)
		if err != nil {
			t.Fatal(err)
		}
		lost := l.Lost()
		memory.Skew(ttl) // by the store's clock the lease has ended
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, dsync.ErrLost, driver.ErrNotHeld)
		if !isClosed(lost) || l.Token() != 0 {
			t.Errorf("Lost closed is %t and the token is %d, want true and 0", isClosed(lost), l.Token())
		}
		_, err = l.Extend(background)
		wantErr(t, "a second Extend", err, dsync.ErrLost)
	})
}

// If Extend finds that the key's record was deleted, its error says so, and the log gets one error.
func TestExtendOfADeletedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, &dsync.Options{Retention: -1, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
		l, err := s.Mutex("k").Lease(background, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		memory.DeleteRecord("k")
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, dsync.ErrLost, dsync.ErrRecordDeleted)
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
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.New(b).Break(background, "k"); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err := storecmd.Unregister(background, memory, s.ID()); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() { _, err := l.Extend(background); first <- err }()
		time.Sleep(time.Second)
		sent := time.Now()
		until, err := l.Extend(background)
		if err != nil {
			t.Fatal(err)
		}
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
