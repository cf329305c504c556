package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/leader"
)

// E1, E13: of many candidates, only one leads at a time, and the term's number grows by one with
// each change of leader.
func TestOneOfManyLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		const candidates, terms = 20, 3
		var (
			leading int
			last    leader.Term
			wg      sync.WaitGroup
		)
		for range candidates {
			e := newElection(t, store, nil)
			wg.Go(func() {
				for range terms {
					ctx := campaign(t, e)
					if leading++; leading != 1 {
						t.Errorf("%d processes lead at once", leading)
					}
					now := term(t, ctx)
					if now.Number != last.Number+1 || now.Token <= last.Token || !e.IsLeader() {
						t.Errorf("term %+v follows %+v, and IsLeader returns %t; want the next number, a greater token, and true", now, last, e.IsLeader())
					}
					last = now
					time.Sleep(time.Millisecond)
					leading--
					if err := e.Resign(background); err != nil {
						t.Errorf("Resign: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if last.Number != candidates*terms {
			t.Errorf("the last term is %d, want %d", last.Number, candidates*terms)
		}
	})
}

// However a term ends, the cause of its context says why, and the Lost hook receives the same cause.
func TestCauseOfTheEnd(t *testing.T) {
	mine := errors.New("my own reason")
	for name, test := range map[string]struct {
		end  func(s *dsync.Session, e *leader.Election, f *dsynctest.Faulty, cancel context.CancelCauseFunc)
		want []error
	}{
		"lost": {func(_ *dsync.Session, _ *leader.Election, f *dsynctest.Faulty, _ context.CancelCauseFunc) { f.Cut() }, []error{leader.ErrLost}},
		"resign": {func(_ *dsync.Session, e *leader.Election, _ *dsynctest.Faulty, _ context.CancelCauseFunc) {
			e.Resign(background)
		}, []error{leader.ErrResigned}},
		"pause": {func(_ *dsync.Session, e *leader.Election, _ *dsynctest.Faulty, _ context.CancelCauseFunc) {
			e.Pause(background)
		}, []error{leader.ErrResigned}},
		"parent": {func(_ *dsync.Session, _ *leader.Election, _ *dsynctest.Faulty, cancel context.CancelCauseFunc) {
			cancel(mine)
		}, []error{mine}},
		"close": {func(s *dsync.Session, _ *leader.Election, _ *dsynctest.Faulty, _ context.CancelCauseFunc) {
			s.Close(background)
		}, []error{leader.ErrLost, dsync.ErrClosed}},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFaulty(t, dsynctest.NewMemory(), nil)
			s := newSession(t, f, nil)
			// B04, E1: the hook Lost is called exactly once for each call of Elected.
			var events []string
			e := electionOf(t, s, &leader.Options{Hooks: &leader.Hooks{
				Elected: func(_ context.Context, tm leader.Term) { events = append(events, fmt.Sprint("elected ", tm.Number)) },
				Lost: func(tm leader.Term, cause error) {
					events = append(events, fmt.Sprint("lost ", tm.Number))
					wantErr(t, "cause in the hook", cause, test.want...)
				},
			}})
			parent, cancel := context.WithCancelCause(background)
			ctx, err := e.Campaign(parent)
			noErr(t, err)
			test.end(s, e, f, cancel)
			<-ctx.Done()
			wantErr(t, "cause", context.Cause(ctx), test.want...)
			wantErr(t, "Err", ctx.Err(), context.Canceled)
			if e.IsLeader() {
				t.Error("IsLeader returns true after the end of the term")
			}
			time.Sleep(3 * ttl)
			f.Heal()
			e.Resign(background)
			e.Resign(background)
			synctest.Wait()
			if got := strings.Join(events, ", "); got != "elected 1, lost 1" {
				t.Errorf("hooks: %s, want elected 1, lost 1", got)
			}
		})
	}
}

// The channel of CampaignChan, used in a select statement, receives the term's context or is
// closed. If nobody receives the context, the leadership is released.
func TestCampaignChan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		first, second := newElection(t, store, nil), newElection(t, store, nil)
		led := campaign(t, first)
		elected := second.CampaignChan(background)
		select {
		case <-elected:
			t.Fatal("elected while another process led")
		case <-time.After(time.Minute):
		}
		noErr(t, first.Resign(background))
		ctx := <-elected
		if term(t, ctx).Number != term(t, led).Number+1 || ctx.Err() != nil || !second.IsLeader() {
			t.Errorf("term %+v after %+v, ctx %v, want the next term", term(t, ctx), term(t, led), ctx.Err())
		}

		wait, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if ctx, ok := <-first.CampaignChan(wait); ok || ctx != nil {
			t.Errorf("received %v, %t, want a closed channel", ctx, ok)
		}
		noErr(t, second.Resign(background))
		unread, cancel := context.WithCancel(background)
		unreceived := first.CampaignChan(unread)
		time.Sleep(time.Second)
		if !first.IsLeader() {
			t.Fatal("not elected although nobody led")
		}
		cancel()
		synctest.Wait()
		if ctx, ok := <-unreceived; ok || first.IsLeader() {
			t.Errorf("received %v, %t, leader %t, want a closed channel and no leader", ctx, ok, first.IsLeader())
		}
		began := time.Now()
		campaign(t, second)
		if d := time.Since(began); d > grace/2 {
			t.Errorf("elected after %v, want at once, because the leadership was released", d)
		}
	})
}

// If Campaign returns an error, its context is not nil and has ended.
func TestCampaignErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		a, b := electionOf(t, s, nil), newElection(t, store, nil)
		campaign(t, a)
		check := func(what string, ctx context.Context, err error, want error) {
			t.Helper()
			wantErr(t, what, err, want)
			if ctx == nil || ctx.Err() == nil {
				t.Fatalf("%s: the context is %v, want one that has ended", what, ctx)
			}
		}
		limit, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		ctx, err := b.Campaign(limit)
		check("Campaign at its limit", ctx, err, context.DeadlineExceeded)
		ctx, err = b.TryCampaign(background)
		check("TryCampaign", ctx, err, dsync.ErrHeld)
		if held := heldError(t, err); held.Here || held.Session != s.ID() {
			t.Errorf("TryCampaign while another process leads: %+v: %v; want the leader's session, and Here false", held, err)
		}
		wantErr(t, "cause of TryCampaign", context.Cause(ctx), dsync.ErrHeld)
		ctx, err = a.TryCampaign(background)
		check("TryCampaign of the leader", ctx, err, dsync.ErrHeld)
		if held := heldError(t, err); !held.Here || held.PID != os.Getpid() || held.Session != s.ID() ||
			!strings.Contains(err.Error(), "this process leads") || strings.Contains(err.Error(), "another") {
			t.Errorf("TryCampaign of the leader: %+v: %v; want that this process leads", held, err)
		}
		if err := b.Pause(background); err != nil {
			t.Error(err)
		}
		ctx, err = b.TryCampaign(background)
		check("TryCampaign while paused", ctx, err, leader.ErrPaused)
		s.Close(background)
		ctx, err = a.Campaign(background)
		check("Campaign on a closed session", ctx, err, dsync.ErrClosed)
	})
}

func heldError(t *testing.T, err error) *dsync.HeldError {
	t.Helper()
	var held *dsync.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("error is %v, want a *dsync.HeldError", err)
	}
	return held
}

func groupBalancedEvery(s *dsync.Session, d time.Duration) func() error {
	return func() error {
		_, _, err := leader.NewGroup(background, s, "g", &leader.GroupOptions{BalanceInterval: d})
		return err
	}
}

func TestNewRefusesNonsense(t *testing.T) {
	s := newSession(t, dsynctest.NewMemory(), nil)
	for name, f := range map[string]func() error{
		"nil session":             func() error { _, err := leader.New(nil, "e", nil); return err },
		"empty name":              func() error { _, err := leader.New(s, "", nil); return err },
		"long value":              func() error { _, err := leader.New(s, "e", &leader.Options{Value: make([]byte, 1<<17)}); return err },
		"group without a session": func() error { _, _, err := leader.NewGroup(background, nil, "g", nil); return err },
		"group without a name":    func() error { _, _, err := leader.NewGroup(background, s, "", nil); return err },
		"group with a slash":      func() error { _, _, err := leader.NewGroup(background, s, "a/b", nil); return err },
		"balance of 9 ns":         groupBalancedEvery(s, 9),
		"balance of under 10 ms":  groupBalancedEvery(s, 10*time.Millisecond-1),
		"balance of 200 years":    groupBalancedEvery(s, 200*365*24*time.Hour),
	} {
		if err := f(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Promise 1, B02, B03, B29: whatever goes wrong between the leader and the store, no other process's Campaign returns
// until the leader's context has been cancelled for at least the grace.
func TestContextEndsBeforeTheNextLeads(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 20
	}
	for i := range n {
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 0))
			fr := rand.New(rand.NewPCG(uint64(i), 1))
			memory := dsynctest.NewMemory()
			begin := time.Now().Add(time.Second + time.Duration(r.Int64N(int64(2*ttl))))
			kind := r.IntN(3)
			f := dsynctest.NewFaulty(memory, func(q dsynctest.Request) dsynctest.Fault {
				late := dsynctest.Fault{Delay: time.Duration(fr.Int64N(int64(50 * time.Millisecond)))}
				if time.Now().Before(begin) {
					return late
				}
				switch kind {
				case 0:
					late.LoseReply = true
				case 1:
					late.Hang = time.Hour
				case 2:
					late.LoseRequest = true
				}
				return late
			})
			defer f.Close()
			a, b := newElection(t, f, nil), newElection(t, memory, nil)
			ctx := campaign(t, a)
			var notified time.Time
			go func() {
				<-ctx.Done()
				notified = time.Now()
			}()
			time.Sleep(time.Duration(r.Int64N(int64(ttl))))
			next := campaign(t, b)
			led := time.Now()
			synctest.Wait()
			if notified.IsZero() || led.Sub(notified) < grace {
				t.Errorf("trial %d: another process leads %v after the context ended, want at least %v", i, led.Sub(notified), grace)
			}
			if term(t, next).Number != term(t, ctx).Number+1 {
				t.Errorf("trial %d: term %d after %d", i, term(t, next).Number, term(t, ctx).Number)
			}
		})
	}
}

// B29: when a term's ctx is cancelled, nobody else is elected until Resign is called or the grace is over.
func TestWorkNeverOverlaps(t *testing.T) {
	for _, resigns := range []time.Duration{0, grace / 2, time.Hour} {
		inBubble(t, fmt.Sprint("done after ", resigns), func(t *testing.T) {
			store := dsynctest.NewMemory()
			a, b := newElection(t, store, nil), newElection(t, store, nil)
			parent, cancel := context.WithCancel(background)
			ctx, err := a.Campaign(parent)
			noErr(t, err)
			elected := make(chan time.Time)
			go func() {
				campaign(t, b)
				elected <- time.Now()
			}()
			synctest.Wait()
			start := time.Now()
			cancel()
			<-ctx.Done()
			time.AfterFunc(resigns, func() { a.Resign(background) })
			if d, want := (<-elected).Sub(start), min(resigns, grace); d != want {
				t.Errorf("the next process leads %v after the end of ctx, want %v", d, want)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// E3, B16: after Resign, another process, or the same one, can lead at once. A restarted process can also lead at once
// if the old process closed its session. If the old process crashed, the restarted one leads when the old session has
// lapsed.
func TestAnotherLeadsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		s := newSession(t, f, &dsync.Options{Name: "node-1"})
		a, b := electionOf(t, s, nil), newElection(t, store, nil)
		campaign(t, a)
		led := make(chan struct{})
		go func() { campaign(t, b); close(led) }()
		synctest.Wait()
		start := time.Now()
		a.Resign(background)
		<-led
		b.Resign(background)
		campaign(t, a)
		noErr(t, s.Close(background))
		again := newSession(t, f, &dsync.Options{Name: "node-1"})
		campaign(t, electionOf(t, again, nil))
		// Close waits for the grace, because the leader has not called Resign.
		if d := time.Since(start); d > grace {
			t.Errorf("three changes of leader took %v, want at most the grace of %v", d, grace)
		}
		f.Cut()
		crashed := time.Now()
		ctx := campaign(t, electionOf(t, newSession(t, store, &dsync.Options{Name: "node-1"}), nil))
		if d := time.Since(crashed); d > ttl+10*time.Millisecond {
			t.Errorf("after a crash the same identity leads after %v, want at most %v", d, ttl)
		}
		if got := term(t, ctx).Name; got != "node-1" {
			t.Errorf("the term's identity is %q", got)
		}
	})
}

// E4, B06: after a crash, another process leads a TTL after the last heartbeat, not earlier.
func TestCrashedLeaderIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, nil)
		s := newSession(t, f, nil)
		campaign(t, electionOf(t, s, nil))
		b := newElection(t, memory, nil)
		time.Sleep(7 * time.Second)
		f.Cut()
		m, _, err := storecmd.Members(background, memory, s.ID())
		noErr(t, err)
		campaign(t, b)
		l, err := b.Leader(background)
		noErr(t, err)
		if d := l.Since.Sub(m[0].LastHeartbeat.Add(ttl)); d < 0 || d > 10*time.Millisecond {
			t.Errorf("elected %v later than a TTL after the last heartbeat, want 0 to 10ms", d)
		}
	})
}

// E7: Pause gives up the leadership and keeps the process out of the queue; Resume lets the process
// lead again.
func TestPauseAndResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newElection(t, store, nil), newElection(t, store, nil)
		campaign(t, a)
		led := make(chan struct{})
		go func() { campaign(t, b); close(led) }()
		synctest.Wait()
		noErr(t, a.Pause(background))
		<-led
		again := make(chan struct{})
		go func() { campaign(t, a); close(again) }()
		synctest.Wait()
		st, err := store.Load(background, "e", 1000)
		if err != nil || st.Waiting != 0 {
			t.Errorf("%d in the queue while paused (%v)", st.Waiting, err)
		}
		b.Resign(background)
		time.Sleep(ttl)
		select {
		case <-again:
			t.Error("elected while paused")
		default:
		}
		a.Resume()
		<-again
		// A candidate that is paused while it waits leaves the queue.
		go func() { campaign(t, b) }()
		synctest.Wait()
		b.Pause(background)
		synctest.Wait()
		if st, _ := store.Load(background, "e", 1000); st.Waiting != 0 {
			t.Errorf("%d in the queue after Pause", st.Waiting)
		}
		b.Resume()
		a.Resign(background)
		time.Sleep(time.Second)
		if !b.IsLeader() {
			t.Error("not elected after Resume")
		}
		// A candidate that waits behind another candidate of its own process can be paused, too.
		second := make(chan struct{})
		go func() { campaign(t, b); close(second) }()
		synctest.Wait()
		b.Pause(background)
		time.Sleep(time.Second)
		b.Resume()
		<-second
	})
}

// E9, B18, promise 7: elections are independent. In each interval, a hundred elections of one session cost one
// heartbeat, and one read of the session's keys.
func TestHundredElections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Retention: -1})
		for i := range 100 {
			e, err := leader.New(s, fmt.Sprint("election ", i), nil)
			noErr(t, err)
			if tm := term(t, campaign(t, e)); tm.Number != 1 {
				t.Errorf("the first term of election %d is %d", i, tm.Number)
			}
		}
		time.Sleep(2 * time.Second) // until the session listens
		before := store.Counts()
		time.Sleep(30 * ttl / 3)
		d := store.Counts().Since(before)
		if n := d.Commands[dsynctest.MethodHeartbeat]; d.Commands[dsynctest.MethodOwn] != n || d.Total() != 2*n || d.Writes != n || n > 34 {
			t.Errorf("in 30 periods: %v and %d writes, want one heartbeat and one read per period", d.Commands, d.Writes)
		}
	})
}

// E10, B30: errors of the store are reported, and the campaign continues.
func TestStoreErrorsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, listen := range []bool{true, false} {
			f := newFaulty(t, dsynctest.NewMemory(), nil)
			reported := 0
			opt := &dsync.Options{}
			if listen {
				opt.Hooks = &dsync.Hooks{StoreError: func(string, error) { reported++ }}
			}
			e := electionOf(t, newSession(t, f, opt), nil)
			f.Cut()
			time.AfterFunc(5*ttl, f.Heal)
			campaign(t, e)
			synctest.Wait()
			if listen && reported == 0 {
				t.Error("an outage was not reported")
			}
			e.Resign(background)
		}
	})
}

// B12: the leadership is not lost if a hook blocks for several TTLs, panics or calls any method.
func TestHooksCostNoLeadership(t *testing.T) {
	for _, name := range []string{"sleep", "panic", "resign", "close", "campaign", "pause"} {
		inBubble(t, name, func(t *testing.T) {
			var e *leader.Election
			s := newSession(t, dsynctest.NewMemory(), nil)
			called := make(chan struct{}, 100)
			e = electionOf(t, s, &leader.Options{Hooks: &leader.Hooks{Elected: func(_ context.Context, tm leader.Term) {
				called <- struct{}{}
				if tm.Number > 1 {
					return
				}
				switch name {
				case "sleep":
					time.Sleep(5 * ttl)
				case "panic":
					panic("a hook panics")
				case "resign":
					e.Resign(background)
				case "close":
					s.Close(background)
				case "campaign":
					e.TryCampaign(background)
				case "pause":
					e.Pause(background)
					e.Resume()
				}
			}}})
			ctx := campaign(t, e)
			<-called
			time.Sleep(4 * ttl)
			ends := name == "resign" || name == "close" || name == "pause"
			if (ctx.Err() != nil) != ends {
				t.Errorf("after the hook the context's error is %v, want an error: %t", ctx.Err(), ends)
			}
			time.Sleep(4 * ttl)
		})
	}
}
