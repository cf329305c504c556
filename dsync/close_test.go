package dsync_test

import (
	"context"
	"slices"
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

// If a session is lost during Close, it is not unregistered but lapses by itself: unregistering would cut its
// holders' grace short.
func TestCloseNeverUnregistersALostSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, nil)
		s := newSession(t, f, nil)
		h := take(t, s.Mutex("k").Hold)
		id := s.ID()
		f.Cut()
		time.Sleep(lease - grace/4)
		time.AfterFunc(grace/2, f.Heal)
		ctx, cancel := context.WithTimeout(background, grace*3/4)
		defer cancel()
		s.Close(ctx) // its holder is notified, and then the session is lost
		m, _, err := storecmd.Members(background, memory, id)
		if err != nil || len(m) != 1 || m[0].Expired {
			t.Errorf("within the grace of its holder the session is %+v (%v)", m, err)
		}
		h.Release(background)
	})
}

// If a heartbeat is under way, Close unregisters the session only after the reply: otherwise the heartbeat could reach
// the store after the session has ended.
func TestUnregisterWaitsForTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var beating, early atomic.Bool
		store := &beatStore{Memory: dsynctest.NewMemory(), beating: &beating, early: &early}
		s := newSession(t, store, nil)
		turn(s.Mutex("k"))
		for !beating.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		if err := s.Close(background); err != nil {
			t.Error(err)
		}
		if early.Load() {
			t.Error("unregistered while a heartbeat was under way")
		}
	})
}

// Even if Close fails to unregister the session, the key that the session held is free. The session stays in the list
// of members until it lapses.
func TestCloseFailsToUnregister(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodUnregister}
		})
		s, other := newSession(t, f, nil), newSession(t, memory, nil)
		lock(t, s.Mutex("k"))
		id := s.ID()
		members := func() int {
			all, _, err := admin.New(other).Members(background)
			if err != nil {
				t.Fatal(err)
			}
			return len(slices.DeleteFunc(all, func(m driver.Member) bool { return m.ID != id }))
		}
		wantErr(t, "Close", s.Close(background), context.DeadlineExceeded)
		wantErr(t, "LockContext after Close", s.Mutex("k").LockContext(background), dsync.ErrClosed)
		if !other.Mutex("k").TryLock() {
			t.Error("the key that the session held is not free")
		}
		if n := members(); n != 1 {
			t.Errorf("listed %d times after Close, want once, until it lapses", n)
		}
		time.Sleep(ttl)
		if n := members(); n != 0 {
			t.Errorf("listed %d times a TTL later, want not at all", n)
		}
	})
}

// A beatStore delays each heartbeat by a second. It records whether the session is unregistered during that second.
type beatStore struct {
	*dsynctest.Memory
	beating, early *atomic.Bool
}

func (s *beatStore) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	s.beating.Store(true)
	defer s.beating.Store(false)
	time.Sleep(time.Second)
	return s.Memory.Heartbeat(ctx, session, given)
}

func (s *beatStore) Expire(ctx context.Context, session string, owner bool) (time.Duration, error) {
	if owner && s.beating.Load() {
		s.early.Store(true)
	}
	return s.Memory.Expire(ctx, session, owner)
}

// When Close returns, the session's waiters have left the queue.
func TestCloseWaitsForReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease {
				return dsynctest.Fault{Delay: time.Second}
			}
			return dsynctest.Fault{}
		})
		s, other := newSession(t, f, nil), newSession(t, memory, nil)
		lock(t, other.Mutex("k"))
		go s.Mutex("k").LockContext(background)
		synctest.Wait()
		if n := queueLength(t, memory, "k"); n != 1 {
			t.Fatalf("%d waiters in the queue, want 1", n)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := queueLength(t, memory, "k"); n != 0 {
			t.Errorf("%d waiters are in the queue after Close, want none", n)
		}
	})
}

// B29: after Close a holder still has the rest of its grace, even if the store's clock jumps forward by less than the
// margin.
func TestCloseLeavesTheWholeGrace_B29(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s, other := newSession(t, memory, nil), newSession(t, memory, nil).Mutex("k")
		mu := s.Mutex("k")
		lock(t, mu)
		granted := make(chan time.Time, 1)
		go func() {
			other.Lock()
			granted <- time.Now()
		}()
		synctest.Wait()
		notified := make(chan time.Time, 1)
		lost := mu.Lost()
		go func() {
			<-lost
			notified <- time.Now()
		}()
		ended, cancel := context.WithCancel(background)
		cancel()
		if err := s.Close(ended); err != nil {
			t.Errorf("Close: %v", err)
		}
		memory.Skew(margin - 10*time.Millisecond)
		if d := (<-granted).Sub(<-notified); d < grace {
			t.Errorf("another session was granted the key %v after Lost closed, want at least the grace of %v", d, grace)
		}
	})
}

// If a lease runs out while Close waits for its holder, Close does not report that as an error.
func TestCloseDuringTheEndOfALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		l, err := s.Mutex("k").Lease(background, 4*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if _, err := l.Extend(background); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1700 * time.Millisecond) // 300 ms before the first deadline, 800 ms before the extended one
		if err := s.Close(background); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
