package leader_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// Run returns what its function returns, or the error of its context.
func TestRunReturns(t *testing.T) {
	wrong := errors.New("work failed")
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		e := electionOf(t, s, nil)
		if err := e.Run(background, func(context.Context) error { return nil }); err != nil {
			t.Errorf("Run of a function that succeeds: %v", err)
		}
		if err := e.Run(background, func(context.Context) error { return wrong }); err != wrong {
			t.Errorf("Run of a function that fails: %v", err)
		}
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		returned := false
		err := e.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(grace / 2) // winding down
			returned = true
			return wrong
		})
		if err != context.DeadlineExceeded || !returned {
			t.Errorf("Run after the end of its ctx: %v, f returned: %t", err, returned)
		}
		// Run has resigned when it returns, so another process leads at once.
		if _, err := newElection(t, store, nil).TryCampaign(background); err != nil {
			t.Errorf("after Run: %v", err)
		}
		s.Close(background)
		wantErr(t, "Run on a closed session", e.Run(background, func(context.Context) error { return nil }), dsync.ErrClosed)
	})
}

func TestRunResignsOnPanicAndExit(t *testing.T) {
	for name, f := range map[string]func(context.Context) error{
		"panic": func(context.Context) error { panic("f panics") },
		"exit":  func(context.Context) error { runtime.Goexit(); return nil },
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			e := newElection(t, store, nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recover() }()
				e.Run(background, f)
			}()
			<-done
			if _, err := newElection(t, store, nil).TryCampaign(background); err != nil {
				t.Errorf("after the %s: %v", name, err)
			}
		})
	}
}

// B15: after an outage of three TTLs Run campaigns again by itself. If f returns an error after the
// loss, the error goes to the hook ReturnedLate. B04: Lost is called once per Elected.
func TestRunContinuesAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		wrong := errors.New("the database is gone")
		var elected, lost int
		var returned []error
		e := newElection(t, f, &leader.Options{Hooks: &leader.Hooks{
			Elected:      func(context.Context, leader.Term) { elected++ },
			Lost:         func(leader.Term, error) { lost++ },
			ReturnedLate: func(_ leader.Term, err error) { returned = append(returned, err) },
		}})
		var running, terms int
		ctx, cancel := context.WithCancel(background)
		var g errgroup.Group
		g.Go(func() error {
			return e.Run(ctx, func(ctx context.Context) error {
				if running++; running != 1 {
					t.Errorf("%d functions run at once", running)
				}
				defer func() { running-- }()
				terms++
				<-ctx.Done()
				return wrong
			})
		})
		time.Sleep(time.Second)
		for range 3 {
			f.Cut()
			time.Sleep(3 * ttl)
			f.Heal()
			time.Sleep(2 * ttl)
			synctest.Wait()
			if running != 1 {
				t.Fatalf("%d functions run after the outage", running)
			}
		}
		cancel()
		wantErr(t, "Run", g.Wait(), context.Canceled)
		synctest.Wait()
		if terms != 4 || elected != 4 || lost != 4 || len(returned) != 3 || returned[0] != wrong {
			t.Errorf("%d terms, Elected was called %d times, Lost %d times, ReturnedLate with %v; want 4, 4, 4 and 3 errors", terms, elected, lost, returned)
		}
	})
}

// Inside f, Resign does not wait for f. Called elsewhere, Resign gives f the grace. In both cases
// Run then campaigns again, behind the others.
func TestResignFromRun(t *testing.T) {
	for _, inside := range []bool{true, false} {
		inBubble(t, fmt.Sprint("inside ", inside), func(t *testing.T) {
			store := dsynctest.NewMemory()
			a, b := newElection(t, store, nil), newElection(t, store, nil)
			ctx, cancel := context.WithCancel(background)
			var wg sync.WaitGroup
			terms := 0
			ended := time.Time{}
			wg.Go(func() {
				a.Run(ctx, func(ctx context.Context) error {
					if terms++; terms > 1 {
						<-ctx.Done()
						return nil
					}
					if inside {
						time.Sleep(time.Second)
						if err := a.Resign(ctx); err != nil {
							t.Errorf("Resign inside f: %v", err)
						}
					}
					<-ctx.Done()
					wantErr(t, "cause", context.Cause(ctx), leader.ErrResigned)
					time.Sleep(grace / 2)
					ended = time.Now()
					return nil
				})
			})
			time.Sleep(500 * time.Millisecond)
			var led time.Time
			wg.Go(func() {
				campaign(t, b)
				led = time.Now()
				time.Sleep(time.Second)
				b.Resign(background)
			})
			time.Sleep(500 * time.Millisecond)
			if !inside {
				if err := a.Resign(background); err != nil {
					t.Errorf("Resign: %v", err)
				}
				if ended.IsZero() {
					t.Error("Resign outside of f did not wait for f")
				}
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if led.Before(ended) || led.Sub(ended) > 0 {
				t.Errorf("another process led %v after f returned, want at once", led.Sub(ended))
			}
			if terms != 2 || !a.IsLeader() {
				t.Errorf("the process had %d terms, want a second one after the other process's term", terms)
			}
			cancel()
			wg.Wait()
		})
	}
}

// E6, E7: Run continues between two terms and while the election is paused, and String reports the
// state of the election.
func TestRunInEveryState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newElection(t, store, nil), newElection(t, store, nil)
		ended := make(chan struct{})
		check := func(when string, running, paused, leads bool) {
			t.Helper()
			time.Sleep(grace / 10)
			runs := true
			select {
			case <-ended:
				runs = false
			default:
			}
			if runs != running || strings.Contains(a.String(), "paused") != paused || a.IsLeader() != leads {
				t.Errorf("%s: running %t, leads %t, %s; want running %t, paused %t, leads %t",
					when, runs, a.IsLeader(), a, running, paused, leads)
			}
		}
		campaign(t, b)
		ctx, cancel := context.WithCancel(background)
		end := make(chan error)
		go func() {
			a.Run(ctx, func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					time.Sleep(grace / 2)
					return ctx.Err()
				case err := <-end:
					return err
				}
			})
			close(ended)
		}()
		check("in the queue", true, false, false)
		b.Resign(background)
		check("leading", true, false, true)
		go a.Pause(background)
		check("pausing, with f in its grace", true, true, false)
		time.Sleep(grace)
		check("paused", true, true, false)
		a.Resume()
		check("resumed", true, false, true)
		end <- nil
		<-ended
		check("when f has returned", false, false, false)

		ended = make(chan struct{})
		go func() {
			a.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
			close(ended)
		}()
		check("running again", true, false, true)
		a.Pause(background)
		check("paused again", true, true, false)
		cancel()
		<-ended
		check("ended while it was paused", false, true, false)
		a.Resume()
		check("ended", false, false, false)
	})
}

// When f has returned, the term's context ends with the cause ErrResigned.
func TestContextEndsWithTheFunction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var causes []error
		e := newElection(t, dsynctest.NewMemory(), &leader.Options{Hooks: &leader.Hooks{
			Lost: func(_ leader.Term, cause error) { causes = append(causes, cause) },
		}})
		var kept context.Context
		noErr(t, e.Run(background, func(ctx context.Context) error { kept = ctx; return nil }))
		if kept.Err() == nil || context.Cause(kept) != leader.ErrResigned {
			t.Errorf("the context that f was given: %v, cause %v", kept.Err(), context.Cause(kept))
		}
		synctest.Wait()
		if len(causes) != 1 || causes[0] != leader.ErrResigned {
			t.Errorf("Lost was called with %v, want one call with %v", causes, leader.ErrResigned)
		}
	})
}

// If ctx ends while Run is being elected, Run gives up the leadership without calling f, and
// the process stays healthy.
func TestRunThatEndsAtItsElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		elected := 0
		e := electionOf(t, s, &leader.Options{Hooks: &leader.Hooks{
			Elected: func(context.Context, leader.Term) { elected++ },
		}})
		ctx, cancel := context.WithCancel(background)
		err := e.Run(endsWhenHeld{ctx, cancel, store}, func(context.Context) error { t.Error("f was called"); return nil })
		wantErr(t, "Run", err, context.Canceled)
		synctest.Wait()
		if elected != 1 {
			t.Errorf("elected %d times, want once", elected)
		}
		if _, err := newElection(t, store, nil).TryCampaign(background); err != nil {
			t.Errorf("after Run: %v", err)
		}
		time.Sleep(ttl)
		if err := s.Healthy(); err != nil {
			t.Errorf("after Run: Healthy %v", err)
		}
	})
}

// endsWhenHeld is a context that ends when the term's context is made from it: at the first call of
// Value after the store has granted the election.
type endsWhenHeld struct {
	context.Context
	end   context.CancelFunc
	store driver.Store
}

func (c endsWhenHeld) Value(key any) any {
	if st, err := c.store.Load(background, "e", 1000); err == nil && len(st.Holders) > 0 {
		c.end()
	}
	return c.Context.Value(key)
}

// If Resign is called with the context of another election's term, or of an earlier term, it waits
// for f.
func TestResignInsideAnotherTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		e := electionOf(t, s, nil)
		other, err := leader.New(s, "other", nil)
		noErr(t, err)
		earlier := campaign(t, e)
		e.Resign(background)
		for name, inside := range map[string]context.Context{
			"another election": campaign(t, other),
			"an earlier term":  context.WithoutCancel(earlier),
		} {
			ctx, cancel := context.WithCancel(background)
			var working atomic.Bool
			ended := make(chan struct{})
			go func() {
				e.Run(ctx, func(term context.Context) error {
					working.Store(true)
					<-term.Done()
					cancel()
					time.Sleep(grace / 2)
					working.Store(false)
					return nil
				})
				close(ended)
			}()
			time.Sleep(time.Second)
			if err := e.Resign(inside); err != nil || working.Load() {
				t.Errorf("Resign inside %s: %v, f still works: %t", name, err, working.Load())
			}
			<-ended
		}
	})
}
