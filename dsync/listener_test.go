package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// Promise 5: if the key is granted before the waiter's listener is open, the waiter learns of the grant when the
// listener opens, not only by its next poll.
func TestGrantBeforeTheListenerIsReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodListen {
				return dsynctest.Fault{Delay: time.Second}
			}
			return dsynctest.Fault{}
		})
		held := newSession(t, memory, nil).Mutex("k")
		mu := newSession(t, slow, &dsync.Options{PollInterval: time.Hour}).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Second/2, held.Unlock)
		start := time.Now()
		lock(t, mu)
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("the key was locked after %v, want when the listener was ready", d)
		}
		mu.Unlock()
	})
}

// Promise 5: a notice may arrive while a request is under way. It takes effect even if the store composed the reply to
// that request earlier.
func TestNoticeDuringAnAttemptIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const poll = time.Minute
		memory := dsynctest.NewMemory()
		asked, succeed := 0, make(chan struct{})
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method != dsynctest.MethodAcquire || r.Key != "k" {
				return dsynctest.Fault{}
			}
			if asked++; asked == 2 { // the first request joins the queue; this request is a poll
				time.AfterFunc(time.Second/2, func() { close(succeed) })
			}
			return dsynctest.Fault{ReplyDelay: time.Second}
		})
		a, b := newSession(t, memory, nil), newSession(t, slow, &dsync.Options{PollInterval: poll, AlwaysListen: true})
		run := make(chan error, 1)
		go func() {
			run <- a.Once("k").Do(background, func(context.Context) error { <-succeed; return nil })
		}()
		lock(t, b.Mutex("warm"))
		synctest.Wait()
		var sealed time.Time
		go func() { <-succeed; sealed = time.Now() }()
		noErr(t, b.Once("k").Do(background, unwanted(t)))
		synctest.Wait()
		if d := time.Since(sealed); d > poll/2 {
			t.Errorf("the waiter returned %v after the Once was done, want at once", d)
		}
		if err := <-run; err != nil {
			t.Error(err)
		}
	})
}

// If a listener breaks, it is reopened.
func TestBrokenListenerIsReopened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &breakingStore{Memory: dsynctest.NewMemory()}
		held := newSession(t, store.Memory, nil).Mutex("k")
		mu := newSession(t, store, &dsync.Options{PollInterval: time.Hour}).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Second, held.Unlock)
		start := time.Now()
		lock(t, mu)
		if d := time.Since(start); d > 2*time.Second || store.opened != 2 {
			t.Errorf("the key was locked after %v, and %d listeners were opened, want at most 2s and 2 listeners", d, store.opened)
		}
		mu.Unlock()
	})
}

// A breakingStore breaks its first listener as soon as it is open.
type breakingStore struct {
	*dsynctest.Memory
	opened int
}

func (s *breakingStore) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	if s.opened++; s.opened == 1 {
		f(driver.Notice{Type: driver.NoticeReady})
		return errors.New("the connection broke")
	}
	return s.Memory.Listen(ctx, session, keys, f)
}

// If a listener always breaks as soon as it is open, it is reopened with back-off. Each opening costs a heartbeat and a
// request by every waiter.
func TestReopeningAListenerBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		held := newSession(t, memory, nil).Mutex("k")
		lock(t, held)
		s := newSession(t, brittle{memory}, &dsync.Options{TTL: 30 * time.Second})
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		go s.Mutex("k").LockContext(ctx)
		time.Sleep(10 * time.Second)
		before := memory.Counts().Commands
		time.Sleep(time.Minute)
		after := memory.Counts().Commands
		// The back-off is between a twenty-fourth and a twelfth of the TTL.
		const most = 60 / (30.0 / 24)
		for _, m := range []dsynctest.Method{dsynctest.MethodListen, dsynctest.MethodHeartbeat, dsynctest.MethodAcquire} {
			if n := after[m] - before[m]; n > 2*most {
				t.Errorf("%d %s in a minute, want at most twice %v", n, m, most)
			}
		}
	})
}

// A brittle store breaks each listener as soon as it is open.
type brittle struct{ *dsynctest.Memory }

func (b brittle) Listen(_ context.Context, _ string, _ []string, f func(driver.Notice)) error {
	f(driver.Notice{Type: driver.NoticeReady})
	time.Sleep(2 * time.Millisecond)
	return errors.New("broken")
}

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
	inBubble(t, "waits", func(t *testing.T) {
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
	inBubble(t, "gives up", func(t *testing.T) {
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
	inBubble(t, "lingers", func(t *testing.T) {
		store := newListenerCount()
		mu := newSession(t, store, lingering()).Mutex("k")
		makeLinger(mu)
		store.wantListeners(t, "while the key lingers", 1)
		time.Sleep(linger + 5*ttl)
		store.wantListeners(t, "long after it was released", 0)
	})
	inBubble(t, "observes", func(t *testing.T) {
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
}

// The listener stays open for a TTL after a wait, so that frequent waits share one listener. With
// Options.AlwaysListen it stays open as long as the session lives.
func TestListenerIsKeptBetweenWaits(t *testing.T) {
	for _, always := range []bool{false, true} {
		inBubble(t, fmt.Sprint("AlwaysListen ", always), func(t *testing.T) {
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
