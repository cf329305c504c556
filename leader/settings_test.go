package leader_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/leader"
)

// outage cuts f off for half a TTL, and returns when the hooks have been called for everything that happened in that
// time.
func outage(f *dsynctest.Faulty) {
	f.Cut()
	time.Sleep(ttl / 2)
	f.Heal()
	time.Sleep(ttl)
	synctest.Wait()
}

// If an Election neither campaigns nor observes, its session does not refer to the Election. So the Election's hooks
// are not called, and it can be garbage-collected.
func TestUnusedElectionsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, nil)
		const n = 10_000
		var called int
		made := make([]weak.Pointer[leader.Options], n)
		for i := range made {
			opt := &leader.Options{}
			opt.Hooks = &leader.Hooks{
				Elected:   func(context.Context, leader.Term) { called++ },
				Refreshed: func(leader.Reading) { called++; runtime.KeepAlive(opt) },
			}
			electionOf(t, s, opt)
			made[i] = weak.Make(opt)
		}
		campaign(t, electionOf(t, s, nil))
		outage(f)
		if called != 0 {
			t.Errorf("hooks of elections that were never used were called %d times", called)
		}
		runtime.GC()
		left := 0
		for _, p := range made {
			if p.Value() != nil {
				left++
			}
		}
		if left > 1 { // the last Election may still be referenced from the stack
			t.Errorf("%d of %d unused elections are kept", left, n)
		}
	})
}

// String returns the name and the state of a value, and sends no command.
func TestString(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		e := electionOf(t, s, nil)
		ctx, cancel := context.WithCancel(background)
		g, _, err := leader.NewGroup(ctx, s, "a b", &leader.GroupOptions{BalanceInterval: -1})
		noErr(t, err)
		want := func(value fmt.Stringer, want string) {
			t.Helper()
			testkit.WantString(t, store, value, want)
		}
		want(e, `election "e": not leading`)
		want(g, `group "a b": 0 of 0 functions running`)
		campaign(t, e)
		e.Resign(background)
		want(e, `election "e": not leading`)
		campaign(t, e)
		want(e, `election "e": leading, term 2`)
		e.Pause(background)
		want(e, `election "e": not leading, paused`)

		held := electionNamed(t, newSession(t, store, nil), "a b/c")
		campaign(t, held)
		c, err := g.Go("c", func(ctx context.Context) error { <-ctx.Done(); return nil })
		noErr(t, err)
		g.Go("d", func(ctx context.Context) error { <-ctx.Done(); return nil })
		synctest.Wait()
		want(c, `function "c" of group "a b": not running`)
		want(g, `group "a b": 1 of 2 functions running`)
		held.Resign(background)
		time.Sleep(time.Second)
		want(c, `function "c" of group "a b": running, term 2`)
		c.Remove(background)
		want(c, `function "c" of group "a b": left the group`)
		cancel()
		g.Wait()
		want(g, `group "a b": ended`)
	})
}

// The values that a program receives about an election can be logged as they are.
func TestStringOfWhatIsObserved(t *testing.T) {
	store := dsynctest.NewMemory()
	since := time.Date(2026, 11, 27, 6, 18, 24, 0, time.FixedZone("", 3600))
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{leader.Leader{}, "nobody leads"},
		{leader.Leader{Term: 7, Token: 9, Session: "id", Name: "worker-a", Host: "host-a", PID: 11, Since: since, Value: []byte("secret")},
			"worker-a (process 11 on host-a), term 7, since 2026-11-27T05:18:24.000Z"},
		{leader.Leader{Term: 1, Session: "id"}, "id, term 1, since 0001-01-01T00:00:00.000Z"},
		{leader.Term{Election: "jobs/mails", Number: 7, Token: 4711}, `term 7 of election "jobs/mails", token 4711`},
		{leader.Candidate{Session: "id", Name: "worker-a", Host: "host-a", PID: 11}, "candidate worker-a (process 11 on host-a)"},
		{leader.Candidate{Session: "id", IsLeader: true}, "leader id"},
	} {
		testkit.WantString(t, store, c.value, c.want)
	}
}

func electionNamed(t *testing.T, s *dsync.Session, name string) *leader.Election {
	t.Helper()
	e, err := leader.New(s, name, nil)
	noErr(t, err)
	return e
}

// String may be called concurrently with anything else. The race detector checks it.
func TestStringBesideCampaign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		e := electionOf(t, s, &leader.Options{Value: []byte("v")})
		ctx, cancel := context.WithCancel(background)
		g, _, err := leader.NewGroup(ctx, s, "g", nil)
		noErr(t, err)
		f, err := g.Go("f", func(ctx context.Context) error { <-ctx.Done(); return nil })
		noErr(t, err)
		var all sync.WaitGroup
		for _, value := range []fmt.Stringer{e, g, f} {
			all.Go(func() {
				for ctx.Err() == nil {
					if fmt.Sprint(value) == "" {
						t.Error("empty")
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range 100 {
			campaign(t, e)
			time.Sleep(time.Millisecond)
			e.Resign(background)
		}
		cancel()
		all.Wait()
		g.Wait()
	})
}

// E6: while Run runs in its own goroutine, the process leads. Run returns only after it has
// released the leadership.
func TestRunIsDoneAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		e := newElection(t, store, nil)
		ctx, cancel := context.WithCancel(background)
		done := make(chan error)
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Second)
		if !e.IsLeader() {
			t.Error("IsLeader is false during the term")
		}
		cancel()
		<-done
		st, err := store.Load(background, "e", 1000)
		if err != nil || len(st.Holders) != 0 || e.IsLeader() {
			t.Errorf("Run has returned, but the store has the holders %v (%v)", st.Holders, err)
		}
	})
}

// E11: TTLs can differ between processes and restarts without a migration. New refuses combinations
// that can't work.
func TestTTLsMayChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		for i, ttl := range []time.Duration{time.Minute, time.Second, 30 * time.Second} {
			s := newSession(t, store, &dsync.Options{TTL: ttl})
			if got := term(t, campaign(t, electionOf(t, s, nil))).Number; got != int64(i+1) {
				t.Errorf("term %d with a TTL of %v", got, ttl)
			}
			time.Sleep(2 * ttl)
			noErr(t, s.Close(background))
		}
		if _, err := dsync.New(store, &dsync.Options{TTL: time.Second, HeartbeatInterval: time.Second}); err == nil {
			t.Error("a heartbeat interval as long as the TTL was accepted")
		}
	})
}

// E14: the logger can be replaced. B12: a logger that blocks does not end the leadership.
func TestLogger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		w := &slowWriter{}
		s := newSession(t, f, &dsync.Options{Logger: slog.New(slog.NewTextHandler(w, nil))})
		e := electionOf(t, s, nil)
		ctx := campaign(t, e)
		time.Sleep(5 * ttl)
		if ctx.Err() != nil {
			t.Fatal("a slow logger cost the leadership")
		}
		f.Cut()
		<-ctx.Done()
		time.Sleep(10 * ttl)
		for _, want := range []string{"session started", "hold lost", "key=e"} {
			if !strings.Contains(w.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, w.String())
			}
		}
	})
}

type slowWriter struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(ttl)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *slowWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// E15: the heartbeat interval and the poll interval can be set.
func TestPeriodsCanBeSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, period := range []time.Duration{time.Second, 3 * time.Second} {
			store := dsynctest.NewMemory()
			store.Polling = true
			s := newSession(t, store, &dsync.Options{HeartbeatInterval: period, PollInterval: period / 10, Retention: -1})
			campaign(t, electionOf(t, s, nil))
			newElection(t, store, nil)
			before := store.Counts()
			waiting, cancel := context.WithTimeout(background, 30*time.Second)
			other := newSession(t, store, &dsync.Options{PollInterval: period / 10, HeartbeatInterval: period, Retention: -1})
			if _, err := electionOf(t, other, nil).Campaign(waiting); err == nil {
				t.Fatal("two processes lead")
			}
			cancel()
			d := store.Counts().Since(before)
			beats, asks := d.Commands[dsynctest.MethodHeartbeat], d.Commands[dsynctest.MethodAcquire]
			if want := 2 * int(30*time.Second/period); beats < want*8/10 || beats > want*12/10 {
				t.Errorf("period %v: %d heartbeats of two sessions in 30s, want about %d", period, beats, want)
			}
			if want := 10 * int(30*time.Second/period); asks < want*8/10 || asks > want*12/10 {
				t.Errorf("poll %v: polled %d times in 30s, want about %d", period/10, asks, want)
			}
			s.Close(background)
		}
	})
}

// E7: an application can run the election itself, with TryCampaign, Leader and Resign.
func TestCycleByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var es []*leader.Election
		for range 3 {
			es = append(es, newElection(t, store, nil))
		}
		for round := range 6 {
			led := 0
			for _, e := range es {
				if _, err := e.TryCampaign(background); err == nil {
					led++
				}
			}
			l, err := es[0].Leader(background)
			if led != 1 || err != nil || l.Term != int64(round+1) {
				t.Errorf("round %d: %d processes lead; the leader is %+v (%v)", round, led, l, err)
			}
			for _, e := range es {
				if e.IsLeader() {
					if err := e.Resign(background); err != nil {
						t.Error(fmt.Errorf("Resign: %w", err))
					}
				}
			}
		}
	})
}
