package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/leader"
)

// The leader transfers the leadership to the last of three candidates, which leads as soon as it is
// notified. The other candidates keep their order. A Transfer to a session that does not campaign
// is refused.
func TestTransfer(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		session := func(name string) *dsync.Session {
			o := r.short(20 * time.Second)
			o.Name = name
			return r.session(o)
		}
		a := electionOn(t, session("a"), "e", nil)
		first, err := a.Campaign(ctx)
		noErr(t, err)
		elected := make(chan leader.Term, 3)
		elections := make(map[string]*leader.Election)
		for i, name := range []string{"b", "c", "d"} {
			e := electionOn(t, session(name), "e", nil)
			elections[name] = e
			go func() {
				if c, err := e.Campaign(ctx); err == nil {
					term, _ := leader.TermFrom(c)
					elected <- term
				}
			}()
			awaitWaiting(t, r, i+1)
		}
		all, err := a.Candidates(ctx)
		if err != nil || len(all) != 4 {
			t.Fatalf("Candidates: %+v, %v; want 4", all, err)
		}
		if err := a.Transfer(ctx, all[0]); !errors.Is(err, leader.ErrNotCandidate) {
			t.Errorf("Transfer to the leader: %v, want %v", err, leader.ErrNotCandidate)
		}
		if err := a.Transfer(ctx, leader.Candidate{Session: "nobody"}); !errors.Is(err, leader.ErrNotCandidate) {
			t.Errorf("Transfer to nobody: %v, want %v", err, leader.ErrNotCandidate)
		}
		if first.Err() != nil {
			t.Fatalf("a refused Transfer ended the term: %v", context.Cause(first))
		}
		start := time.Now()
		noErr(t, a.Transfer(ctx, all[3]))
		took := time.Since(start)
		if got := <-elected; got.Name != "d" || got.Number != 2 || got.Session != all[3].Session {
			t.Errorf("elected: %+v, want d for term 2", got)
		}
		lab.Note(t, "Transfer took %v, d knew after %v", took.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
		if context.Cause(first) != leader.ErrResigned {
			t.Errorf("the leader's term ended with %v", context.Cause(first))
		}
		for i, name := range []string{"b", "c"} {
			before := []string{"d", "b"}[i]
			noErr(t, elections[before].Resign(ctx))
			if got := <-elected; got.Name != name || got.Number != int64(3+i) {
				t.Errorf("elected: %+v, want %s for term %d", got, name, 3+i)
			}
		}
	})
}

// awaitWaiting waits until the election's queue contains n claims.
func awaitWaiting(t *testing.T, r *room, n int) {
	t.Helper()
	store := r.store()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		st, err := store.Load(t.Context(), "e", 1000)
		if err == nil && st.Waiting == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d wait (%v), want %d", st.Waiting, err, n)
		}
	}
}
