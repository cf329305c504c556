package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		least, most int64
	}{{false, 300, 8, 64}, {true, 300, 300, 300}, {true, 3000, 500, 1500}} {
		t.Run(fmt.Sprintf("%d keys, ctx has ended: %t", tt.keys, tt.ended), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
				if n := store.peak.Load(); n < tt.least || n > tt.most {
					t.Errorf("%d releases at once, want %d to %d", n, tt.least, tt.most)
				}
				if n := memory.Counts().Commands[dsynctest.MethodRelease]; n != tt.keys {
					t.Errorf("%d releases, want %d", n, tt.keys)
				}
			})
		})
	}
}

// A peakStore delays each Release, and records the greatest number of Releases that were under way at once.
type peakStore struct {
	*dsynctest.Memory
	now, peak atomic.Int64
}

func (s *peakStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Release == nil || e.Acquire != nil {
		return s.Memory.Edit(ctx, e)
	}
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for p := s.peak.Load(); n > p && !s.peak.CompareAndSwap(p, n); p = s.peak.Load() {
	}
	time.Sleep(10 * time.Millisecond)
	return s.Memory.Edit(ctx, e)
}
