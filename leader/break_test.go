package leader_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/leader"
)

// Promise 9, B04, B29: Break of an election's name deposes the leader. The leader is notified at
// once if it listens, otherwise with its next heartbeat. Nobody else is elected until the leader
// calls Resign or its grace is over. Then the next candidate leads.
func TestBreakDeposes(t *testing.T) {
	for _, watch := range []bool{true, false} {
		for _, done := range []bool{true, false} {
			name := "heartbeat"
			if watch {
				name = "watch"
			}
			if done {
				name += ", resigns"
			}
			inBubble(t, name, func(t *testing.T) {
				store := dsynctest.NewMemory()
				a := newSession(t, store, &dsync.Options{AlwaysListen: watch})
				var lost []error
				e := electionOf(t, a, &leader.Options{Hooks: &leader.Hooks{
					Lost: func(_ leader.Term, cause error) { lost = append(lost, cause) },
				}})
				ctx := campaign(t, e)
				next := newElection(t, store, nil)
				type elected struct {
					ctx context.Context
					at  time.Time
				}
				won := make(chan elected, 1)
				go func() {
					ctx := campaign(t, next)
					won <- elected{ctx, time.Now()}
				}()
				time.Sleep(time.Second)
				began := time.Now()
				broken := make(chan error, 1)
				operator := newSession(t, store, nil)
				go func() { broken <- admin.New(operator).Break(background, "e") }()

				<-ctx.Done()
				notified := time.Now()
				most := time.Duration(0)
				if !watch {
					most = ttl * 4 / 10
				}
				if d := notified.Sub(began); d > most {
					t.Errorf("notified after %v, want within %v", d, most)
				}
				wantErr(t, "cause", context.Cause(ctx), leader.ErrLost, dsync.ErrRevoked)
				if errors.Is(context.Cause(ctx), leader.ErrResigned) || e.IsLeader() {
					t.Errorf("the deposed leader still leads, or the cause of its context is wrong: %v", context.Cause(ctx))
				}
				free := notified.Add(grace)
				if done {
					time.Sleep(grace / 3)
					free = time.Now()
					if err := e.Resign(background); err != nil {
						t.Errorf("Resign: %v", err)
					}
				}
				w := <-won
				if d := w.at.Sub(free); d < 0 || d > 10*time.Millisecond {
					t.Errorf("the next candidate was elected %v after the key could be free, want at most 10ms", d)
				}
				if err := <-broken; err != nil {
					t.Errorf("Break: %v", err)
				}
				if before, now := term(t, ctx), term(t, w.ctx); now.Number != before.Number+1 || now.Token <= before.Token {
					t.Errorf("term %+v follows %+v; want the next number and a greater token", now, before)
				}
				if err := e.Resign(background); err != nil {
					t.Errorf("late Resign: %v", err)
				}
				time.Sleep(3 * ttl)
				if w.ctx.Err() != nil {
					t.Errorf("the next leader was deposed, too: %v", context.Cause(w.ctx))
				}
				synctest.Wait()
				if len(lost) != 1 || !errors.Is(lost[0], dsync.ErrRevoked) {
					t.Errorf("Hooks.Lost was called with %v, want one call with ErrRevoked", lost)
				}

				// The deposed process can lead again.
				next.Resign(background)
				if tm := term(t, campaign(t, e)); tm.Number != 3 {
					t.Errorf("the deposed process leads again in term %d, want 3", tm.Number)
				}
			})
		}
	}
}

// B15, B29: if Break deposes a leader while Run's function runs, the next leader's work begins only when the function
// has returned or the grace is over. Run waits for its function and then campaigns again, behind the waiting
// candidates.
func TestBreakOfRun(t *testing.T) {
	for _, wind := range []time.Duration{grace / 4, 5 * grace} { // how long Run's function takes to return
		inBubble(t, wind.String(), func(t *testing.T) {
			store := dsynctest.NewMemory()
			ctx, stop := context.WithCancel(background)
			defer stop()
			type work struct {
				who             int
				began, notified time.Time
				cause           error
			}
			var all []work
			var mu sync.Mutex // guards all
			var returned atomic.Int64
			ended := make(chan error, 3)
			for i := range 3 {
				e := electionOf(t, newSession(t, store, &dsync.Options{AlwaysListen: true}), &leader.Options{Hooks: &leader.Hooks{
					ReturnedLate: func(leader.Term, error) { returned.Add(1) },
				}})
				go func() {
					ended <- e.Run(ctx, func(ctx context.Context) error {
						w := work{who: i, began: time.Now()}
						<-ctx.Done()
						w.notified, w.cause = time.Now(), context.Cause(ctx)
						time.Sleep(wind)
						if e.IsLeader() {
							t.Error("the process still leads after it was notified")
						}
						mu.Lock()
						defer mu.Unlock()
						all = append(all, w)
						return errors.New("stopped")
					})
				}()
				time.Sleep(time.Second)
			}
			operator := newSession(t, store, nil)
			const breaks = 6
			for range breaks {
				began := time.Now()
				noErr(t, admin.New(operator).Break(background, "e"))
				if d, want := time.Since(began), min(wind, grace); d != want {
					t.Errorf("Break took %v, want %v", d, want)
				}
				time.Sleep(ttl)
			}
			stop()
			for range 3 {
				wantErr(t, "Run", <-ended, context.Canceled)
			}
			synctest.Wait()
			var order []int
			for i, w := range all {
				order = append(order, w.who)
				if i < breaks {
					wantErr(t, "cause", w.cause, leader.ErrLost, dsync.ErrRevoked)
				}
				if i > 0 {
					if d := w.began.Sub(all[i-1].notified); d < min(wind, grace) {
						t.Errorf("leader %d began to work %v after leader %d was notified, want at least %v", i, d, i-1, min(wind, grace))
					}
				}
			}
			if want := []int{0, 1, 2, 0, 1, 2, 0}; !slices.Equal(order, want) || returned.Load() != breaks {
				t.Errorf("the processes led in the order %v, want %v; ReturnedLate was called %d times, want %d", order, want, returned.Load(), breaks)
			}
		})
	}
}

// If Break has ended the term, and Resign is then called outside Run's function, Resign waits until the function
// returns, but no longer than the grace.
func TestResignAfterBreak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		e := electionOf(t, newSession(t, store, &dsync.Options{AlwaysListen: true}), nil)
		ctx, stop := context.WithCancel(background)
		defer stop()
		notified, run := make(chan time.Time, 1), make(chan error, 1)
		go func() {
			run <- e.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				notified <- time.Now()
				time.Sleep(grace / 2)
				stop()
				return nil
			})
		}()
		time.Sleep(time.Second)
		operator := newSession(t, store, nil)
		broken := make(chan error, 1)
		go func() { broken <- admin.New(operator).Break(background, "e") }()
		at := <-notified
		if err := e.Resign(background); err != nil {
			t.Errorf("Resign: %v", err)
		}
		if d := time.Since(at); d != grace/2 {
			t.Errorf("Resign took %v, want %v: until the function returned", d, grace/2)
		}
		if err := <-broken; err != nil {
			t.Errorf("Break: %v", err)
		}
		wantErr(t, "Run", <-run, context.Canceled)
	})
}

// A leader that can't be notified is deposed when its session has lapsed, and not before.
func TestBreakOfAnUnreachableLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		a := newSession(t, f, nil)
		ctx := campaign(t, electionOf(t, a, nil))
		ended := make(chan time.Time, 1)
		context.AfterFunc(ctx, func() { ended <- time.Now() })
		time.Sleep(ttl / 4)
		f.Cut()
		m, _, err := storecmd.Members(background, store, a.ID())
		noErr(t, err)
		s := newSession(t, store, nil)
		noErr(t, admin.New(s).Break(background, "e"))
		if d := time.Since(m[0].LastHeartbeat.Add(ttl)); d < 0 || d > 20*time.Millisecond {
			t.Errorf("Break returned %v after the session had lapsed, want at most 20ms", d)
		}
		if d := time.Since(<-ended); d < grace {
			t.Errorf("Break returned %v after the term had ended, want at least the grace of %v", d, grace)
		}
		if _, err := electionOf(t, s, nil).TryCampaign(background); err != nil {
			t.Errorf("TryCampaign after Break: %v", err)
		}
	})
}
