package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
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
			noErr(t, err)
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
		noErr(t, err)
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

// A closableStore has a Close method and counts the Loads that are under way.
type closableStore struct {
	driver.Store
	closes   atomic.Int64
	closeCtx error // ctx.Err() when Close was called
	err      error // what Close returns
	running  atomic.Int64
	early    atomic.Int64 // Loads under way when Close was called
}

func (s *closableStore) Close(ctx context.Context) error {
	s.closes.Add(1)
	s.closeCtx = ctx.Err()
	s.early.Store(s.running.Load())
	return s.err
}

func (s *closableStore) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	s.running.Add(1)
	defer s.running.Add(-1)
	time.Sleep(time.Second) // ignores ctx
	return s.Store.Load(ctx, key, waiters)
}

// Close closes the store after all commands of the session have returned. Even if its own ctx has ended, Close passes a
// live context to the store's Close, so that the store can close its connections properly.
func TestCloseClosesTheStoreLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &closableStore{Store: dsynctest.NewMemory()}
		s, err := dsync.New(store, nil)
		noErr(t, err)
		turn(s.Mutex("k"))
		loaded := make(chan error, 1)
		go func() { _, err := engine.Of(s).Load(background, "k"); loaded <- err }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(background)
		cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := store.running.Load() + store.early.Load(); n != 0 {
			t.Error("Close did not wait for a command of the session")
		}
		if store.closeCtx != nil {
			t.Errorf("the store was closed with a ctx whose error was %v", store.closeCtx)
		}
		wantErr(t, "Load", <-loaded, dsync.ErrClosed)
	})
}

// A second Close waits for the first and returns its error. It does not close the store again.
func TestSecondCloseReturnsTheSameError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		failed := errors.New("the store did not close")
		store := &closableStore{Store: dsynctest.NewMemory(), err: failed}
		s, err := dsync.New(store, &dsync.Options{TTL: ttl})
		noErr(t, err)
		h := take(t, s.Mutex("k").Hold)
		var done [2]time.Duration
		start := time.Now()
		var wg sync.WaitGroup
		for i := range done {
			wg.Go(func() {
				wantErr(t, "Close", s.Close(background), failed)
				done[i] = time.Since(start)
			})
		}
		wg.Wait()
		if done[0] != grace || done[1] != grace {
			t.Errorf("the two calls returned after %v, want both to return when the holder's grace is over", done)
		}
		wantErr(t, "a late Close", s.Close(background), failed)
		if n := store.closes.Load(); n != 1 {
			t.Errorf("the store was closed %d times, want once", n)
		}
		h.Release(background)
	})
}

// If a registration is under way when Close begins, no session is left behind.
func TestCloseDuringARegistration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRegister {
				return dsynctest.Fault{Delay: time.Second, ReplyDelay: time.Second / 2}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, slow, nil)
		locked := make(chan error, 1)
		go func() { locked <- s.Mutex("k").LockContext(background) }()
		time.Sleep(time.Second / 2)
		if err := s.Close(background); err != nil {
			t.Errorf("Close: %v", err)
		}
		wantErr(t, "LockContext", <-locked, dsync.ErrClosed)
		slow.Wait() // until the commands under way are done
		if m, _, err := storecmd.Members(background, memory); err != nil || len(m) != 0 {
			t.Errorf("after Close, the members are %v (%v), want none", m, err)
		}
		if id := s.ID(); id != "" {
			t.Errorf("after Close the session has the id %s", id)
		}
	})
}

// If its ctx has ended, Close does not wait for a holder's grace, even if Break has just notified that holder.
func TestCloseAfterABreakDoesNotWaitForTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s, other := newSession(t, memory, &dsync.Options{AlwaysListen: true}), newSession(t, memory, nil)
		h := take(t, s.Mutex("k").Hold)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(background, time.Millisecond)
		defer cancel()
		wantErr(t, "Break", admin.New(other).Break(ctx, "k"), context.DeadlineExceeded)
		if !isClosed(h.Lost()) {
			t.Fatal("the holder was not notified")
		}
		start := time.Now()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if d := time.Since(start); d > grace/10 {
			t.Errorf("Close took %v, although its ctx had ended; the grace is %v", d, grace)
		}
		h.Release(background)
	})
}

// Close releases several keys at the same time: more than one, but not thousands. If its ctx has ended, it releases
// hundreds at the same time, because it then has only the time of one attempt left.
func TestCloseReleasesSomeAtATime(t *testing.T) {
	for _, tt := range []struct {
		ended       bool
		keys        int
		least, most int
	}{{false, 300, 8, 64}, {true, 300, 300, 300}, {true, 3000, 500, 1500}} {
		inBubble(t, fmt.Sprintf("%d keys, ctx has ended: %t", tt.keys, tt.ended), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			store := &peakStore{Memory: memory}
			s := newSession(t, store, nil)
			for i := range tt.keys {
				h := take(t, s.Mutex(fmt.Sprint(i)).Hold)
				if !tt.ended {
					lost := h.Lost()
					go func() {
						<-lost
						h.Release(background)
					}()
				}
			}
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			if tt.ended {
				cancel()
			}
			if err := s.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			if n := store.underWay.Peak(); n < tt.least || n > tt.most {
				t.Errorf("%d releases at once, want %d to %d", n, tt.least, tt.most)
			}
			if n := memory.Counts().Commands[dsynctest.MethodRelease]; n != tt.keys {
				t.Errorf("%d releases, want %d", n, tt.keys)
			}
		})
	}
}

// A peakStore delays each Release, and counts those that are under way.
type peakStore struct {
	*dsynctest.Memory
	underWay testkit.Gauge
}

func (s *peakStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Release == nil || e.Acquire != nil {
		return s.Memory.Edit(ctx, e)
	}
	defer s.underWay.Begin()()
	time.Sleep(10 * time.Millisecond)
	return s.Memory.Edit(ctx, e)
}
