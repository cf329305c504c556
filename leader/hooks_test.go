package leader_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// outage cuts f off for half a TTL, and returns when all that follows from it has been reported.
func outage(f *dsynctest.Faulty) {
	f.Cut()
	time.Sleep(ttl / 2)
	f.Heal()
	time.Sleep(ttl)
	synctest.Wait()
}

// An election that neither campaigns nor observes leaves nothing behind with its session: its hooks are
// not called, and it can be collected.
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
				StoreError: func(string, error) { called++; runtime.KeepAlive(opt) },
				Refreshed:  func(leader.Status) { called++; runtime.KeepAlive(opt) },
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
		if left > 1 { // the last one may still be on the stack
			t.Errorf("%d of %d unused elections are kept", left, n)
		}
	})
}

// StoreError is called from the first use of an election on, whatever that is.
func TestStoreErrorsAreReportedFromTheFirstUse(t *testing.T) {
	for name, use := range map[string]func(e *leader.Election){
		"Campaign":       func(e *leader.Election) { go e.Campaign(background) },
		"TryCampaign":    func(e *leader.Election) { e.TryCampaign(background) },
		"Run":            func(e *leader.Election) { go e.Run(background, nil) },
		"CampaignChan":   func(e *leader.Election) { e.CampaignChan(background) },
		"Observe":        func(e *leader.Election) { e.Observe(background) },
		"ObserveMembers": func(e *leader.Election) { e.ObserveMembers(background) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
					return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodRegister}
				})
				s := newSession(t, f, nil)
				var reported atomic.Int64
				e := electionOf(t, s, &leader.Options{Hooks: &leader.Hooks{StoreError: func(string, error) { reported.Add(1) }}})
				use(e)
				time.Sleep(ttl / 5) // the first command has failed
				synctest.Wait()
				if n := reported.Load(); n != 1 {
					t.Errorf("%d errors were reported, want one", n)
				}
			})
		})
	}
}

// AddHooks adds hooks at any time, beside others; each Lost follows an Elected.
func TestAddHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var got []string
		hooks := func(name string) *leader.Hooks {
			put := func(what string) { got = append(got, name+" "+what) }
			return &leader.Hooks{
				Elected:   func(_ context.Context, t leader.Term) { put(fmt.Sprint("elected ", t.Number)) },
				Lost:      func(t leader.Term, _ error) { put(fmt.Sprint("lost ", t.Number)) },
				NewLeader: func(before, now leader.Leader) { put(fmt.Sprint("leader ", before.Term, " ", now.Term)) },
			}
		}
		want := func(want ...string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(got) // two hooks observe independently
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("calls %q, want %q", got, want)
			}
			got = nil
		}
		e := newElection(t, store, &leader.Options{Hooks: hooks("a")})
		stopB := e.AddHooks(hooks("b"))
		want()

		campaign(t, e)
		time.Sleep(time.Second)
		want("a elected 1", "b elected 1", "a leader 0 1", "b leader 0 1")

		stopC := e.AddHooks(hooks("c")) // during a term
		time.Sleep(time.Second)
		want("c elected 1", "c leader 0 1")

		stopB()
		stopB()
		e.Resign(background)
		time.Sleep(time.Second)
		want("a lost 1", "c lost 1", "a leader 1 0", "c leader 1 0")

		stopD := e.AddHooks(hooks("d")) // between two terms
		time.Sleep(time.Second)
		want()
		campaign(t, e)
		time.Sleep(time.Second)
		want("a elected 2", "c elected 2", "d elected 2", "a leader 0 2", "c leader 0 2", "d leader 0 2")
		stopC()
		stopD()
		e.AddHooks(&leader.Hooks{}) // which want nothing
		e.Resign(background)
		time.Sleep(time.Second)
		want("a lost 2", "a leader 2 0")
	})
}

// Hooks that were removed leave nothing with the session.
func TestRemovedHooksAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		e := electionOf(t, newSession(t, f, nil), nil)
		campaign(t, e)
		called := 0
		stop := e.AddHooks(&leader.Hooks{
			StoreError: func(string, error) { called++ },
			Refreshed:  func(leader.Status) { called++ },
		})
		time.Sleep(time.Second)
		synctest.Wait()
		if called == 0 {
			t.Error("Refreshed was not called")
		}
		stop()
		time.Sleep(time.Second)
		synctest.Wait()
		called = 0
		outage(f)
		if called != 0 {
			t.Errorf("%d calls after stop", called)
		}
	})
}

// Hooks may be added and removed beside campaigns.
func TestAddHooksConcurrently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, dsynctest.NewMemory(), nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					var elected, lost atomic.Int64
					stop := e.AddHooks(&leader.Hooks{
						Elected: func(context.Context, leader.Term) { elected.Add(1) },
						Lost:    func(leader.Term, error) { lost.Add(1) },
					})
					time.Sleep(3 * time.Millisecond)
					stop()
					time.Sleep(time.Millisecond)
					if n := elected.Load() - lost.Load(); n < 0 || n > 1 {
						t.Errorf("Elected was called %d times, Lost %d times", elected.Load(), lost.Load())
					}
				}
			})
		}
		for range 50 {
			campaign(t, e)
			time.Sleep(time.Millisecond)
			e.Resign(background)
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
	})
}
