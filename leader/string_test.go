package leader_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/leader"
)

// String returns the name and the state of a value, and sends no command.
func TestString(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		e := electionOf(t, s, nil)
		ctx, cancel := context.WithCancel(background)
		g, _, err := leader.NewGroup(ctx, s, "a b", &leader.GroupOptions{BalanceInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// String may be called concurrently with anything else. The race detector checks it.
func TestStringBesideCampaign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		e := electionOf(t, s, &leader.Options{Value: []byte("v")})
		ctx, cancel := context.WithCancel(background)
		g, _, err := leader.NewGroup(ctx, s, "g", nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := g.Go("f", func(ctx context.Context) error { <-ctx.Done(); return nil })
		if err != nil {
			t.Fatal(err)
		}
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
