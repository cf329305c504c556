package leader_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/leader"
)

// E7: a second Pause has no further effect. One Resume ends the pause for all waiting calls.
func TestPauseTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, dsynctest.NewMemory(), nil)
		elected := make(chan struct{})
		for range 2 {
			noErr(t, e.Pause(background))
			go func() {
				campaign(t, e)
				elected <- struct{}{}
				e.Resign(background)
			}()
			synctest.Wait()
		}
		e.Resume()
		if s := e.String(); strings.Contains(s, "paused") {
			t.Errorf("after Resume: %s", s)
		}
		<-elected
		<-elected
	})
}

// E7: a process that is elected at the moment of a Pause gives up the leadership, and is
// elected after Resume.
func TestPauseAtTheElection(t *testing.T) {
	for name, begin := range map[string]func(e *leader.Election, ctx context.Context){
		"Campaign": func(e *leader.Election, ctx context.Context) {
			for ctx.Err() == nil {
				if term, err := e.Campaign(ctx); err == nil {
					<-term.Done()
				}
			}
		},
		"Run": func(e *leader.Election, ctx context.Context) {
			e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			a, b := newElection(t, store, nil), newElection(t, store, nil)
			draws := testkit.Draw(t)
			for range 1000 {
				campaign(t, b)
				ctx, cancel := context.WithCancel(background)
				go begin(a, ctx)
				time.Sleep(grace / 10)
				go b.Resign(background)
				paused := make(chan struct{})
				go func() {
					for range draws.IntN(20) { // so that Pause comes at each step of the election in some round
						runtime.Gosched()
					}
					a.Pause(background)
					close(paused)
				}()
				<-paused
				time.Sleep(2 * grace)
				if st, err := store.Load(background, "e", 1000); err != nil || len(st.Holders)+st.Waiting != 0 || a.IsLeader() {
					t.Fatalf("while paused, the store has the holders %+v and %d waiters (%v), want none", st.Holders, st.Waiting, err)
				}
				a.Resume()
				time.Sleep(grace / 10)
				if !a.IsLeader() {
					t.Fatal("not elected after Resume")
				}
				cancel()
				a.Resign(background)
				time.Sleep(2 * grace)
			}
		})
	}
}
