package dsync_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A listenerCount counts the open listeners.
type listenerCount struct {
	*dsynctest.Memory
	open atomic.Int64
}

func (s *listenerCount) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	return s.Memory.Listen(ctx, session, keys, f)
}

func newListenerCount() *listenerCount { return &listenerCount{Memory: dsynctest.NewMemory()} }

// wantListeners checks that n listeners are open.
func (s *listenerCount) wantListeners(t *testing.T, when string, n int64) {
	t.Helper()
	synctest.Wait()
	if got := s.open.Load(); got != n {
		t.Errorf("%s %d listeners are open, want %d", when, got, n)
	}
}

// An open listener is a cost to the store, so it is closed when no hold, wait, lingering key or observation needs it.
func TestListenerEndsWhenNobodyNeedsIt(t *testing.T) {
	t.Run("waits", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			store := newListenerCount()
			held, mu := newSession(t, store.Memory, nil).Mutex("k"), newSession(t, store, nil).Mutex("k")
			lock(t, held)
			time.AfterFunc(time.Second, held.Unlock)
			time.AfterFunc(time.Second/2, func() { store.wantListeners(t, "during the wait", 1) })
			lock(t, mu)
			mu.Unlock()
			time.Sleep(5 * ttl)
			store.wantListeners(t, "long after the wait", 0)
		})
	})
	t.Run("gives up", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			store := newListenerCount()
			held, s := newSession(t, store.Memory, nil).Mutex("k"), newSession(t, store, nil)
			lock(t, held)
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
			time.Sleep(5 * ttl)
			store.wantListeners(t, "long after the wait", 0)
			held.Unlock()
		})
	})
	t.Run("lingers", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			store := newListenerCount()
			mu := newSession(t, store, lingering()).Mutex("k")
			makeLinger(mu)
			store.wantListeners(t, "while the key lingers", 1)
			time.Sleep(linger + 5*ttl)
			store.wantListeners(t, "long after it was released", 0)
		})
	})
	t.Run("observes", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			store := newListenerCount()
			s := newSession(t, store, nil)
			var cancels []context.CancelFunc
			for _, key := range []string{"k", "k", "l"} {
				ctx, cancel := context.WithCancel(background)
				engine.Of(s).Observe(ctx, key, func(driver.State, error) {}, func() {})
				cancels = append(cancels, cancel)
			}
			time.Sleep(ttl)
			for _, cancel := range cancels {
				store.wantListeners(t, "while somebody observes", 1)
				cancel()
				time.Sleep(5 * ttl)
			}
			store.wantListeners(t, "long after the last observer", 0)
		})
	})
}

// The listener stays open for a TTL after a wait, so that frequent waits share one listener. With
// Options.AlwaysListen it stays open as long as the session lives.
func TestListenerIsKeptBetweenWaits(t *testing.T) {
	for _, always := range []bool{false, true} {
		t.Run(fmt.Sprint("AlwaysListen ", always), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := newListenerCount()
				held, s := newSession(t, store.Memory, nil).Mutex("k"), newSession(t, store, &dsync.Options{AlwaysListen: always})
				lock(t, held)
				time.Sleep(5 * ttl)
				before := store.Counts().Commands[dsynctest.MethodListen] // number of the holder's calls of Listen
				for range 10 {
					ctx, cancel := context.WithTimeout(background, time.Second)
					wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
					cancel()
					pause := ttl / 2
					if always {
						pause = 5 * ttl
					}
					time.Sleep(pause)
				}
				if n := store.Counts().Commands[dsynctest.MethodListen] - before; n != 1 {
					t.Errorf("%d listeners were opened for ten waits, want 1", n)
				}
				held.Unlock()
			})
		})
	}
}

// If a session is lost, its listener is closed. After the next registration, the session opens a new listener.
func TestListenerEndsWithItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newListenerCount()
		f := newFaulty(t, store, nil)
		s := newSession(t, f, &dsync.Options{AlwaysListen: true})
		mu := s.Mutex("k")
		for range 3 {
			h := take(t, mu.Hold)
			f.Cut()
			<-h.Lost()
			f.Heal()
			h.Release(background)
		}
		lock(t, mu)
		time.Sleep(ttl)
		store.wantListeners(t, "after three losses", 1)
		mu.Unlock()
		s.Close(background)
		store.wantListeners(t, "after Close", 0)
	})
}

// While a broken listener can't be reopened, waiters poll as often as if the store could not
// notify.
func TestWaitersPollWhileTheListenerIsBroken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &breakableStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		held := newSession(t, store.Memory, nil).Mutex("k")
		lock(t, held)
		ctx, cancel := context.WithCancel(background)
		waited := make(chan error, 1)
		go func() { waited <- s.Mutex("k").LockContext(ctx) }()
		polls := func() int {
			time.Sleep(ttl) // wait until the polls that were scheduled earlier have been sent
			before := store.Counts()
			time.Sleep(ttl)
			return store.Counts().Since(before).Commands[dsynctest.MethodAcquire]
		}
		if n := polls(); n > 4 {
			t.Errorf("%d polls in %v while the listener is open, want one or two", n, ttl)
		}
		store.broken.Store(true)
		breakNow := store.stop.Load()
		(*breakNow)()
		if n, want := polls(), int(ttl/(250*time.Millisecond)); n < want*3/4 || n > want*5/4 {
			t.Errorf("%d polls in %v while the listener is broken, want about %d", n, ttl, want)
		}
		if l := engine.Of(s).Local(); l.Listening || l.Polling {
			t.Errorf("Local says Listening %t and Polling %t, want neither", l.Listening, l.Polling)
		}
		store.broken.Store(false)
		time.Sleep(ttl)
		if n := polls(); n > 4 {
			t.Errorf("%d polls in %v when the listener is open again, want one or two", n, ttl)
		}
		cancel()
		wantErr(t, "LockContext", <-waited, context.Canceled)
		held.Unlock()
	})
}

// A breakableStore ends its listener when stop is called. While broken is set, it opens no listener.
type breakableStore struct {
	*dsynctest.Memory
	broken atomic.Bool
	stop   atomic.Pointer[context.CancelFunc]
}

func (s *breakableStore) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	if s.broken.Load() {
		return errDown
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.stop.Store(&cancel)
	s.Memory.Listen(ctx, session, keys, f)
	return errDown
}

// breakFor breaks the listener. After d, it can be reopened.
func (s *breakableStore) breakFor(d time.Duration) {
	s.broken.Store(true)
	(*s.stop.Load())()
	time.Sleep(d)
	s.broken.Store(false)
}

// A waiter that joins the queue while the holder's listener is broken gets the key at the holder's Unlock, although no
// notice has reached the holder. The key does not linger: the listener was opened after the grant, so it may have
// missed a notice.
func TestLingerYieldsToWaitersWhileTheListenerWasBroken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &breakableStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, lingering())
		mu, next := s.Mutex("k"), newSession(t, store.Memory, nil).Mutex("k")
		makeLinger(mu)
		mu.Lock()
		locked := make(chan time.Time)
		go func() {
			time.Sleep(time.Second)
			next.Lock()
			locked <- time.Now()
			next.Unlock()
		}()
		store.breakFor(2 * time.Second)
		time.Sleep(ttl)
		if !engine.Of(s).Local().Listening {
			t.Fatal("the listener is not open again")
		}
		start := time.Now()
		mu.Unlock()
		if d := (<-locked).Sub(start); d > time.Second {
			t.Errorf("another process got the key %v after the Unlock", d)
		}
	})
}

// A notice of a grant may arrive after the claim has ended. It then costs no command, even if it is almost a heartbeat
// interval late.
func TestNoticesLateByAHeartbeatCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const period = 3 * time.Second
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodNotice {
				return dsynctest.Fault{Delay: period * 3 / 4}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, slow, &dsync.Options{Retention: -1, AlwaysListen: true, HeartbeatInterval: period})
		lock(t, s.Mutex("held"))
		time.Sleep(ttl)
		for range 20 { // at different moments between two heartbeats
			before := memory.Counts()
			turn(s.Mutex("k"))
			time.Sleep(period*3/4 + period/10)
			if n := memory.Counts().Since(before).Commands[dsynctest.MethodRelease]; n != 1 {
				t.Fatalf("Lock and Unlock cost %d releases, want 1", n)
			}
		}
	})
}
