package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// hookLog records calls of hold hooks, in order.
type hookLog struct {
	mu     sync.Mutex
	events []string
}

func (o *hookLog) add(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf(format, args...))
}

// hooks returns hooks that record the events of holds and, at the end of each hold, how long it lasted.
func (o *hookLog) hooks() *dsync.Hooks {
	return &dsync.Hooks{
		Granted:  func(g dsync.HoldInfo) { o.add("granted") },
		Released: func(r dsync.HoldInfo) { o.add("released %v", r.Held) },
		Lost: func(l dsync.HoldInfo) {
			how := "lost"
			switch {
			case l.ByHolder:
				how = "voluntary"
			case errors.Is(l.Cause, dsync.ErrRevoked):
				how = "revoked"
			case errors.Is(l.Cause, dsync.ErrClosed):
				how = "closed"
			}
			o.add("%s %v", how, l.Held)
		},
	}
}

// For each hold that Granted reports, either Released or Lost is called, once, and gets the duration of the hold.
func TestHooksReportOneEndOfEachHold(t *testing.T) {
	const second = time.Second
	tests := []struct {
		name string
		do   func(t *testing.T, s *dsync.Session, cut, heal func())
		want string
	}{
		{"unlock", func(t *testing.T, s *dsync.Session, _, _ func()) {
			mu := s.Mutex("k")
			lock(t, mu)
			time.Sleep(3 * second)
			mu.Unlock()
		}, "granted, released 3s"},
		{"release after", func(t *testing.T, s *dsync.Session, _, _ func()) {
			h := take(t, s.Mutex("k").Hold)
			time.Sleep(second)
			h.ReleaseAfter(background, time.Minute)
		}, "granted, released 1s"},
		{"hand-off", func(t *testing.T, s *dsync.Session, _, _ func()) {
			first, second := s.Mutex("k"), s.Mutex("k")
			lock(t, first)
			var wg sync.WaitGroup
			wg.Go(func() {
				lock(t, second)
				time.Sleep(20 * time.Millisecond)
				second.Unlock()
			})
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
			first.Unlock()
			wg.Wait()
		}, "granted, released 10ms, granted, released 20ms"},
		{"hand-off to a cancelled waiter", func(t *testing.T, s *dsync.Session, _, _ func()) {
			mu := s.Mutex("k")
			lock(t, mu)
			ctx, cancel := context.WithCancel(background)
			var wg sync.WaitGroup
			wg.Go(func() { s.Mutex("k").LockContext(ctx) })
			synctest.Wait()
			cancel()
			mu.Unlock()
			wg.Wait()
		}, ""}, // the hand-off or the cancellation may come first
		{"semaphore in parts", func(t *testing.T, s *dsync.Session, _, _ func()) {
			sem := s.Semaphore("k", 5)
			noErr(t, sem.Acquire(background, 3))
			sem.Release(1)
			time.Sleep(second)
			sem.Release(2)
		}, "granted, released 1s"},
		{"readers that share", func(t *testing.T, s *dsync.Session, _, _ func()) {
			rw := s.RWMutex("k")
			rw.RLock()
			rw.RLock()
			time.Sleep(second)
			rw.RUnlock()
			time.Sleep(second)
			rw.RUnlock()
		}, "granted, released 2s"},
		{"once", func(t *testing.T, s *dsync.Session, _, _ func()) {
			once := s.Once("k")
			once.Do(background, func(context.Context) error { return errors.New("not yet") })
			once.Do(background, func(context.Context) error { time.Sleep(second); return nil })
			once.Do(background, func(context.Context) error { return nil })
		}, "granted, released 0s, granted, released 1s"},
		{"hold", func(t *testing.T, s *dsync.Session, _, _ func()) {
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			noErr(t, err)
			h.Release(background)
			h.Release(background)
			h.WindDown(context.Canceled)
		}, "granted, released 0s"},
		{"hold that its holder ends", func(t *testing.T, s *dsync.Session, _, _ func()) {
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			noErr(t, err)
			time.Sleep(second)
			h.WindDown(context.Canceled)
			time.Sleep(grace / 2)
			h.Release(background)
		}, "granted, voluntary 1s"},
		{"lease that is released", func(t *testing.T, s *dsync.Session, _, _ func()) {
			l, err := s.Mutex("k").Lease(background, time.Minute)
			noErr(t, err)
			time.Sleep(2 * second)
			l.Release(background)
			l.Release(background)
		}, "granted, released 2s"},
		{"lease that is over, as planned", func(t *testing.T, s *dsync.Session, _, _ func()) {
			l, err := s.Mutex("k").Lease(background, 10*second)
			noErr(t, err)
			<-l.Lost()
			l.Release(background)
		}, "granted, voluntary " + lease.String()},
		{"loss", func(t *testing.T, s *dsync.Session, cut, heal func()) {
			h := take(t, s.Mutex("k").Hold)
			cut()
			<-h.Lost()
			heal()
			time.Sleep(ttl)
			h.Release(background)
		}, "granted, lost " + lease.String()},
		{"break", func(t *testing.T, s *dsync.Session, _, _ func()) {
			h := take(t, s.Mutex("k").Hold)
			var wg sync.WaitGroup
			wg.Go(func() { admin.New(s).Break(background, "k") })
			<-h.Lost()
			h.Release(background)
			wg.Wait()
		}, "granted, revoked 0s"},
		{"close", func(t *testing.T, s *dsync.Session, _, _ func()) {
			h := take(t, s.Mutex("k").Hold)
			time.Sleep(second)
			s.Close(background)
			h.Release(background)
		}, "granted, closed 1s"},
		{"no grant", func(t *testing.T, s *dsync.Session, _, _ func()) {
			mu := s.Mutex("k")
			lock(t, mu)
			s.Mutex("k").TryLock()
			ctx, cancel := context.WithTimeout(background, second)
			defer cancel()
			s.Mutex("k").LockContext(ctx)
			mu.Unlock()
		}, "granted, released 1s"},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(t *testing.T) {
			var got hookLog
			faulty := newFaulty(t, dsynctest.NewMemory(), nil)
			s := newSession(t, faulty, &dsync.Options{Hooks: got.hooks()})
			tt.do(t, s, faulty.Cut, faulty.Heal)
			synctest.Wait()
			if events := strings.Join(got.events, ", "); tt.want != "" && events != tt.want {
				t.Errorf("the hooks reported: %s\nwant: %s", events, tt.want)
			}
			grants := slices.DeleteFunc(slices.Clone(got.events), func(e string) bool { return e != "granted" })
			if len(got.events) != 2*len(grants) {
				t.Errorf("%d holds have %d ends: %q", len(grants), len(got.events)-len(grants), got.events)
			}
		})
	}
}

// Nobody holds a key while it lingers, so the holds before and after are reported separately.
func TestHooksReportHoldsOfALingeringKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var got hookLog
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Linger: time.Minute, Hooks: got.hooks()})
		mu := s.Mutex("k")
		for range 3 {
			lock(t, mu)
			time.Sleep(10 * time.Millisecond)
			mu.Unlock()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		want := slices.Repeat([]string{"granted", "released 10ms"}, 3)
		if !slices.Equal(got.events, want) {
			t.Errorf("the hooks reported %q, want %q", got.events, want)
		}
	})
}

// A hook that is added after the grant is still called when the hold ends, and gets the time since the grant.
func TestHooksAddedAfterTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var got hookLog
		s := newSession(t, dsynctest.NewMemory(), nil)
		mu := s.Mutex("k")
		lock(t, mu)
		s.AddHooks(got.hooks())
		time.Sleep(time.Second)
		mu.Unlock()
		synctest.Wait()
		if want := []string{"released 1s"}; !slices.Equal(got.events, want) {
			t.Errorf("the hooks reported %q, want %q", got.events, want)
		}
	})
}

// Granted gets the context of the call that acquired the hold. The hold does not keep that context; Released and
// Lost get none.
func TestHooksGetTheContextWithTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(background, key{}, "span")
		var got []any
		note := func(i dsync.HoldInfo) {
			if i.Context == nil {
				got = append(got, "none")
			} else {
				got = append(got, i.Context.Value(key{}))
			}
		}
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: &dsync.Hooks{Granted: note, Released: note, Lost: note}})
		h, err := s.Mutex("a").Hold(ctx)
		noErr(t, err)
		h.Lost() // now the hold has a context of its own
		h.Release(background)
		h, err = s.Mutex("b").Hold(ctx)
		noErr(t, err)
		s.Close(background)
		h.Release(background)
		synctest.Wait()
		if want := []any{"span", "none", "span", "none"}; !slices.Equal(got, want) {
			t.Errorf("the contexts of Granted, Released, Granted and Lost: %v, want %v", got, want)
		}
	})
}

// If no hooks for holds are set, Lock and Unlock of a lingering key need only one allocation, for the hold itself.
func TestUnsetHooksCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opt := &dsync.Options{Linger: time.Minute, Hooks: &dsync.Hooks{SessionLost: func(string, error) {}}}
		s := newSession(t, dsynctest.NewMemory(), opt)
		mu := s.Mutex("k")
		for range 2 { // wait until the claim lingers
			turn(mu)
			time.Sleep(5 * time.Second)
		}
		turn(mu)
		if n := testing.AllocsPerRun(200, func() { turn(mu) }); n > 1 {
			t.Errorf("Lock and Unlock of a lingering key make %v allocations, want at most 1", n)
		}
	})
}

// Hooks that were added twice are called twice, and each stop function ends the calls of one addition. Changing the
// Hooks later has no effect.
func TestAddedHooksAreCalledUntilStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		calls := 0
		h := &dsync.Hooks{Granted: func(dsync.HoldInfo) { calls++ }}
		stops := []func(){s.AddHooks(h), s.AddHooks(h)}
		h.Granted = func(dsync.HoldInfo) { t.Error("a function that was set after AddHooks was called") }
		for want := 2; ; want-- {
			calls = 0
			turn(s.Mutex("k"))
			synctest.Wait()
			if calls != want {
				t.Errorf("%d calls for a hold, want %d", calls, want)
			}
			if want == 0 {
				return
			}
			stops[want-1]()
		}
	})
}
