package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
)

// L11: New refuses invalid options with an error that names the valid values.
func TestOptionsThatCannotWork(t *testing.T) {
	for _, test := range []struct {
		name, want string
		opt        dsync.Options
	}{
		{"negative TTL", "at least 1s", dsync.Options{TTL: -1}},
		{"small TTL", "at least 1s", dsync.Options{TTL: 999 * time.Millisecond}},
		{"TTL in microseconds", "whole milliseconds", dsync.Options{TTL: time.Second + time.Microsecond}},
		{"negative margin", "must be positive", dsync.Options{Margin: -1}},
		{"negative grace", "must be positive", dsync.Options{Grace: -1}},
		{"heartbeat too seldom", "raise TTL", dsync.Options{TTL: 10 * time.Second, HeartbeatInterval: 7 * time.Second}},
		{"heartbeat too often", "at least 10ms", dsync.Options{HeartbeatInterval: time.Millisecond}},
		{"grace eats the lease", "raise TTL", dsync.Options{TTL: 10 * time.Second, Grace: 8 * time.Second}},
		{"small poll", "at least 10ms", dsync.Options{PollInterval: time.Microsecond}},
		{"short retention", "two TTLs", dsync.Options{Retention: time.Second}},
		{"large metadata", "4096", dsync.Options{Meta: map[string]string{"k": strings.Repeat("x", 4097)}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := dsync.New(dsynctest.NewMemory(), &test.opt)
			if s != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New returned %v, %v; want an error with %q", s, err, test.want)
			}
		})
	}
	if _, err := dsync.New(nil, nil); err == nil {
		t.Error("New accepted a nil store")
	}
	for _, opt := range []dsync.Options{{}, {TTL: time.Second}, {TTL: 1500 * time.Millisecond}, {TTL: time.Hour, HeartbeatInterval: time.Second}} {
		s, err := dsync.New(dsynctest.NewMemory(), &opt)
		if err != nil {
			t.Errorf("New(%+v): %v", opt, err)
			continue
		}
		s.Close(background)
	}
}

// After a loss, the session continues under a new id, and its waiters request their keys again. The old registration
// lapses by itself: the session does not unregister it, and sends nothing more under the old id.
func TestLostSessionContinuesUnderANewID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var mu sync.Mutex
		sent := map[string][]string{} // commands sent after the loss, by session
		lostID := ""
		faulty := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if lostID != "" && r.Method != dsynctest.MethodExpire && (r.Session == lostID || strings.HasPrefix(r.Claim, lostID+".")) {
				sent[r.Session] = append(sent[r.Session], string(r.Method))
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, faulty, nil)
		held := s.Mutex("held")
		lock(t, held)
		other := newSession(t, memory, nil).Mutex("awaited")
		lock(t, other)
		waited := make(chan struct{})
		awaited := s.Mutex("awaited")
		go func() { awaited.Lock(); close(waited) }()
		synctest.Wait()
		id := s.ID()

		faulty.Cut()
		<-held.Lost()
		synctest.Wait()
		mu.Lock()
		lostID = id
		mu.Unlock()
		faulty.Heal()
		time.Sleep(ttl / 2)
		if s.ID() == id || s.ID() == "" {
			t.Errorf("the id is %q after the loss of %q", s.ID(), id)
		}
		if m, now, err := storecmd.Members(background, memory, id); err != nil || len(m) != 1 || m[0].Expired && now.Before(m[0].LastHeartbeat.Add(ttl)) {
			t.Errorf("the lost session is %+v (%v): it must lapse by itself", m, err)
		}
		other.Unlock()
		<-waited
		awaited.Unlock()
		held.Unlock()
		time.Sleep(ttl)
		mu.Lock()
		defer mu.Unlock()
		if len(sent) != 0 {
			t.Errorf("sent under the lost id: %v", sent)
		}
	})
}

// B24, S1: the library generates the ids of sessions, and they never repeat. The names of processes may repeat.
func TestIdentitiesAreDistinct(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		opt := dsync.Options{Host: "same", App: "same"}
		ids, tokens := map[string]bool{}, map[int64]bool{}
		for range 100 {
			o := opt
			s := newSession(t, store, &o)
			mu := s.Mutex("k")
			lock(t, mu)
			if ids[s.ID()] || s.ID() == "" || tokens[mu.Token()] {
				t.Fatalf("id %q or token %d appeared twice", s.ID(), mu.Token())
			}
			ids[s.ID()], tokens[mu.Token()] = true, true
			mu.Unlock()
		}
	})
}

// B14: Close takes a round trip or two, even if its context has ended. Afterwards, the session's waiters have left
// their queues, and the session's keys are free. If the context had ended, the keys are free only at the end of the
// holders' grace.
func TestCloseFreesEverything(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		inBubble(t, fmt.Sprint("cancelled ", cancelled), func(t *testing.T) {
			const trip = 10 * time.Millisecond
			memory := dsynctest.NewMemory()
			slow := newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{ReplyDelay: trip} })
			s, other := newSession(t, slow, nil), newSession(t, memory, nil)
			mu := s.Mutex("k")
			lock(t, mu)
			held := other.Mutex("awaited")
			lock(t, held)
			waiting := make(chan error)
			go func() { waiting <- s.Mutex("awaited").LockContext(background) }()
			time.Sleep(time.Second)
			go func() {
				<-mu.Lost()
				mu.Unlock()
			}()
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			if cancelled {
				cancel()
			}
			id := s.ID()
			go func() { wantErr(t, "the waiter", <-waiting, dsync.ErrClosed) }()
			start := time.Now()
			if err := s.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			if d := time.Since(start); d > 2*trip {
				t.Errorf("Close took %v, want at most a release and an unregister of %v each", d, trip)
			}
			if h, n := holders(t, memory, "k"), queueLength(t, memory, "awaited"); !cancelled && len(h) != 0 || n != 0 {
				t.Errorf("after Close: holders %v, %d in the queue", h, n)
			}
			if m, _, _ := storecmd.Members(background, memory, id); len(m) != 1 || !m[0].Expired {
				t.Errorf("after Close the session is %+v, want it expired", m)
			}
			lock(t, other.Mutex("k"))
			if d := time.Since(start); d > grace+margin+100*time.Millisecond {
				t.Errorf("the key was free %v after Close", d)
			}
			wantErr(t, "LockContext on a closed session", s.Mutex("x").LockContext(background), dsync.ErrClosed)
			wantErr(t, "TryHold on a closed session", errOf(s.Mutex("x").TryHold(background)), dsync.ErrClosed)
			if err := s.Close(background); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
}

// B29, promise 1: holders have their grace even if Close's context ends early. A notified holder may still be working
// during its grace, so its key is granted to nobody else.
func TestCloseGrantsTheGrace(t *testing.T) {
	for _, limit := range []time.Duration{0, grace / 2, time.Hour} {
		inBubble(t, fmt.Sprint("ctx of ", limit), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			s, other := newSession(t, memory, nil), newSession(t, memory, nil)
			h := take(t, s.Mutex("k").Hold)
			ctx, cancel := context.WithTimeout(background, limit)
			defer cancel()
			var notified time.Time
			go func() {
				<-h.Lost()
				notified = time.Now()
			}()
			taken := make(chan time.Time, 1)
			go func() {
				lock(t, other.Mutex("k"))
				taken <- time.Now()
			}()
			synctest.Wait()
			if err := s.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			synctest.Wait()
			if d := time.Since(notified); d > min(limit, grace) {
				t.Errorf("Close took %v, want at most %v", d, min(limit, grace))
			}
			// If ctx ends before the grace does, the key becomes free by itself at the end of the grace, and no notice
			// is sent.
			late := 50 * time.Millisecond
			if limit < grace {
				late = 6 * time.Second // nobody notifies the waiter, so it may learn of the free key later
			}
			if d := (<-taken).Sub(notified); d < grace || d > grace+late {
				t.Errorf("the key was taken %v after the holder was notified, want about the grace of %v", d, grace)
			}
			wantErr(t, "Release after Close", h.Release(background), dsync.ErrLost, dsync.ErrClosed)
		})
	}
}

// If the store is unreachable, Close returns an error, and the session lapses by itself.
func TestCloseWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		s, other := newSession(t, faulty, nil), newSession(t, memory, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		faulty.Cut()
		start := time.Now()
		ctx, cancel := context.WithCancel(background)
		cancel()
		if err := s.Close(ctx); err == nil {
			t.Error("Close returned nil, although the store was unreachable")
		}
		if d := time.Since(start); d > ttl/3 {
			t.Errorf("Close took %v, want at most a third of the TTL", d)
		}
		lock(t, other.Mutex("k"))
		if d := time.Since(start); d < grace || d > ttl+100*time.Millisecond {
			t.Errorf("the key was taken %v after Close, want between the grace and the TTL", d)
		}
	})
}

// For a holder that is still busy, Close sends a Release that keeps the key for the rest of the grace. If this
// Release is not answered, Close does not unregister the session: others could drop the claims of an unregistered
// session at once.
func TestCloseLeavesAGraceThatIsUnconfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodRelease}
		})
		const grace = 3 * time.Second // longer than an attempt may take
		s, other := newSession(t, faulty, &dsync.Options{Grace: grace}), newSession(t, memory, nil)
		lock(t, s.Mutex("k"))
		start := time.Now()
		ctx, cancel := context.WithCancel(background)
		cancel()
		if err := s.Close(ctx); err == nil {
			t.Error("Close returned nil, although a release was not answered")
		}
		for errOf(other.Mutex("k").TryHold(background)) != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(start); d < grace {
			t.Errorf("the key was taken %v after the holder was notified, want at least the grace of %v", d, grace)
		}
	})
}

// Lock panics on a closed session, and if the key is in use as another kind.
func TestLockPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s, other := newSession(t, memory, nil), newSession(t, memory, nil)
		mu := other.Mutex("k")
		lock(t, mu)
		closed := newSession(t, memory, nil)
		closed.Close(background)
		for name, tc := range map[string]struct {
			lock func()
			want string
		}{
			"closed":                {closed.Mutex("k").Lock, "closed"},
			"closed, readers":       {closed.RWMutex("k").RLock, "closed"},
			"kind here":             {other.RWMutex("k").Lock, "mutex"},
			"kind in another":       {s.RWMutex("k").Lock, "mutex"},
			"kind, RLocker":         {s.RWMutex("k").RLocker().Lock, "mutex"},
			"kind here, for reader": {other.RWMutex("k").RLock, "mutex"},
		} {
			func() {
				defer func() {
					if r := fmt.Sprint(recover()); !strings.Contains(r, `"k"`) || !strings.Contains(r, tc.want) {
						t.Errorf("%s: panic %q, want one that says %q", name, r, tc.want)
					}
				}()
				limit := time.AfterFunc(time.Minute, func() { panic(name + ": Lock waits") })
				defer limit.Stop()
				tc.lock()
				t.Errorf("%s: Lock returned", name)
			}()
		}
		mu.Unlock()
	})
}

// If the session is closed while Lock waits, Lock never returns, because a panic would crash a program that is only
// shutting down. (This test can't use a bubble, in which every goroutine must end.)
func TestLockThatWaitsOnAClosedSession(t *testing.T) {
	s, err := dsync.New(dsynctest.NewMemory(), nil)
	noErr(t, err)
	mu := s.Mutex("k")
	mu.Lock()
	defer mu.Unlock()
	locked := make(chan struct{})
	go func() { s.Mutex("k").Lock(); close(locked) }()
	for len(engine.Of(s).Local().Waits) == 0 {
		time.Sleep(time.Millisecond)
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	s.Close(ended)
	select {
	case <-locked:
		t.Error("Lock returned on a closed session")
	case <-time.After(50 * time.Millisecond):
	}
}

// B12, B13: hooks that block, panic, lock a key or call Close delay no heartbeat.
func TestHooksDisturbNothing(t *testing.T) {
	for _, name := range []string{"sleep", "panic", "close", "lock", "none"} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			var s *dsync.Session
			var count atomic.Int64
			closed := make(chan struct{})
			hook := func() {
				calls := count.Add(1)
				switch name {
				case "sleep":
					time.Sleep(5 * ttl)
				case "panic":
					panic("a hook panics")
				case "lock":
					mu := s.Mutex(fmt.Sprint("hook ", calls))
					mu.Lock()
					mu.Unlock()
				case "close":
					if calls == 3 {
						if err := s.Close(background); err != nil {
							t.Errorf("Close in a hook: %v", err)
						}
						close(closed)
					}
				}
			}
			opt := &dsync.Options{Logger: slog.New(slog.DiscardHandler)}
			if name != "none" {
				opt.Hooks = &dsync.Hooks{
					Heartbeat:      func(time.Duration, time.Duration, error) { hook() },
					SessionStarted: func(string) { hook() },
				}
			}
			s = newSession(t, store, opt)
			mu := s.Mutex("k")
			lock(t, mu)
			if name == "close" {
				<-mu.Lost()
				mu.Unlock()
				<-closed
				return
			}
			time.Sleep(20 * ttl)
			if isClosed(mu.Lost()) {
				t.Error("the hold was lost because of a hook")
			}
			mu.Unlock()
			if count.Load() == 0 && name != "none" {
				t.Error("no hook was called")
			}
			s.Close(background)
			time.Sleep(10 * ttl) // until the hook that sleeps returns
		})
	}
}

// The Heartbeat hooks of Options and of AddHooks are all called equally often. Reports for them are merged only while
// a hook is slow.
func TestEveryHeartbeatHookIsCalled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		calls := make([]int, 3)
		hooks := func(i int) *dsync.Hooks {
			return &dsync.Hooks{Heartbeat: func(time.Duration, time.Duration, error) { calls[i]++ }}
		}
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: hooks(0)})
		s.AddHooks(hooks(1))
		s.AddHooks(hooks(2))
		if _, err := engine.Of(s).Register(background); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ttl)
		synctest.Wait()
		if calls[0] < 20 || calls[1] != calls[0] || calls[2] != calls[0] {
			t.Errorf("in 10 TTLs the hooks were called %d times; they must be called equally often, about 30 times", calls)
		}
		s.Close(background)
	})
}

// B04, E1: the Lost hook is called exactly once for each hold that ends before its holder releases it. It is never
// called for other holds. All hooks are called in the order of the events.
func TestHooksReportGrantsAndLosses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		faulty := newFaulty(t, dsynctest.NewMemory(), nil)
		var events []string
		add := func(format string, args ...any) { events = append(events, fmt.Sprintf(format, args...)) }
		s := newSession(t, faulty, &dsync.Options{Hooks: &dsync.Hooks{
			Granted: func(g dsync.HoldInfo) { add("granted %s %t", g.Key, g.Token > 0) },
			Lost: func(l dsync.HoldInfo) {
				add("lost %s %t %t", l.Key, errors.Is(l.Cause, dsync.ErrLost), errors.Is(l.Cause, dsync.ErrClosed))
			},
			SessionStarted: func(string) { add("started") },
			SessionLost:    func(string, error) { add("session lost") },
		}})
		mu := s.Mutex("k")
		lock(t, mu)
		mu.Unlock()
		h := take(t, mu.Hold)
		faulty.Cut()
		<-h.Lost()
		faulty.Heal()
		h.Lost()
		h.Release(background)
		h = take(t, mu.Hold)
		time.AfterFunc(time.Millisecond, func() { h.Release(background) })
		s.Close(background)
		synctest.Wait()
		want := []string{
			"started", "granted k true", "granted k true", "lost k true false", "session lost",
			"started", "granted k true", "lost k true true",
		}
		if strings.Join(events, ", ") != strings.Join(want, ", ") {
			t.Errorf("hooks were called for\n%q, want\n%q", events, want)
		}
	})
}

func TestClockJumpIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var jumps []time.Duration
		s := newSession(t, store, &dsync.Options{Hooks: &dsync.Hooks{ClockJump: func(d time.Duration) { jumps = append(jumps, d) }}})
		lock(t, s.Mutex("k"))
		for _, d := range []time.Duration{margin / 2, 2 * time.Second, -margin / 2, -time.Minute} {
			time.Sleep(ttl)
			store.Skew(d)
		}
		time.Sleep(ttl)
		synctest.Wait()
		if len(jumps) != 2 || (jumps[0]-2*time.Second).Abs() > 2*time.Millisecond || (jumps[1]+time.Minute).Abs() > 2*time.Millisecond {
			t.Errorf("jumps %v were reported, want 2s and -1m", jumps)
		}
	})
}

// B19: a session that used a key as another kind, as a holder or as a waiter, blocks nobody after it has expired.
func TestKindOfAnExpiredSessionIsForgotten(t *testing.T) {
	for _, try := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			f := newFaulty(t, store, nil)
			gone, s := newSession(t, f, nil), newSession(t, store, nil)
			h := units(t, gone.Semaphore("k", 3), 2)
			go gone.Semaphore("k", 3).Acquire(background, 2)
			synctest.Wait()
			f.Cut()
			wantErr(t, "LockContext while the other session may be alive", s.Mutex("k").LockContext(background), dsync.ErrMismatch)
			time.Sleep(ttl)
			mu := s.Mutex("k")
			var err error
			if try {
				err = errOf(mu.TryHold(background))
			} else {
				err = mu.LockContext(background)
			}
			if err != nil {
				t.Errorf("try %v: %v", try, err)
			}
			if !isClosed(h.Lost()) {
				t.Error("the key was taken before Lost closed")
			}
			f.Heal()
		})
	}
}

// B33: the values of the caller's context, such as a transaction, do not reach the store. The commands have deadlines of
// their own.
func TestCommandsHaveContextsOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		store := &valueStore{Memory: dsynctest.NewMemory(), key: key{}}
		s := newSession(t, store, nil)
		ctx := context.WithValue(background, key{}, "a transaction")
		mu := s.Mutex("k")
		h, err := mu.Hold(ctx)
		noErr(t, err)
		noErr(t, h.Release(ctx))
		if h, err = mu.TryHold(ctx); err != nil {
			t.Fatal(err)
		}
		noErr(t, h.ReleaseAfter(ctx, time.Second))
		if store.seen {
			t.Error("the caller's values reached the store")
		}
		if store.edits != 4 || store.bounded != store.edits {
			t.Errorf("%d edits, %d of them with a deadline; want 4 of 4", store.edits, store.bounded)
		}
	})
}

type valueStore struct {
	*dsynctest.Memory
	key            any
	seen           bool
	edits, bounded int
}

func (s *valueStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	s.look(ctx)
	return s.Memory.Edit(ctx, e)
}

func (s *valueStore) look(ctx context.Context) {
	s.seen = s.seen || ctx.Value(s.key) != nil
	s.edits++
	if _, bounded := ctx.Deadline(); bounded {
		s.bounded++
	}
}

// Session.Options returns the options in force, with the defaults and the current poll interval.
func TestOptionsInForce(t *testing.T) {
	for _, polling := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			hooks := &dsync.Hooks{}
			s, err := dsync.New(store, &dsync.Options{Name: "me", Hooks: hooks, Meta: map[string]string{"a": "b"}})
			noErr(t, err)
			defer s.Close(background)
			o := s.Options()
			if o.TTL != 30*time.Second || o.Margin != 500*time.Millisecond || o.Grace != 3*time.Second || o.HeartbeatInterval != 10*time.Second ||
				o.HandOffTime != 50*time.Millisecond || o.Retention != 7*24*time.Hour || o.Name != "me" || o.Host == "" || o.Hooks != hooks || o.Logger == nil {
				t.Errorf("%+v", o)
			}
			o.Meta["a"] = "c"
			if got := s.Options().Meta["a"]; got != "b" {
				t.Errorf("a change of the returned Meta has changed the session's: %q", got)
			}
			turn(s.Mutex("k"))
			lock(t, s.Mutex("k")) // a second later the session listens
			time.Sleep(2 * time.Second)
			want := 30 * time.Second
			if polling {
				want = 250 * time.Millisecond
			}
			if got := s.Options().PollInterval; got != want {
				t.Errorf("polling %t: PollInterval %v, want %v", polling, got, want)
			}
			if _, err := dsync.New(store, &o); err != nil {
				t.Errorf("New with the options that another session returned: %v", err)
			}
			members, _, err := admin.New(s).Members(background)
			noErr(t, err)
			shown := members[0].Settings // these also contain the version from the program's build info
			if shown.Heartbeat != o.HeartbeatInterval || shown.Margin != o.Margin || shown.Grace != o.Grace || shown.Poll != 0 {
				t.Errorf("other sessions see %+v, but the options are %+v", shown, o)
			}
		})
	}
}
