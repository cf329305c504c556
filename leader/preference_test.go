package leader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// preferring returns an election on a new session that has the given name.
func preferring(t *testing.T, store driver.Store, name string, preference int, yieldAfter time.Duration) *leader.Election {
	t.Helper()
	return electionOf(t, newSession(t, store, &dsync.Options{Name: name}), &leader.Options{Preference: preference, YieldAfter: yieldAfter})
}

// joins makes e campaign in the background, and waits for a second, until e is in the queue.
func joins(e *leader.Election) *candidacy { return joinsWithin(e, time.Second) }

func joinsWithin(e *leader.Election, d time.Duration) *candidacy {
	ctx, cancel := context.WithCancel(background)
	c := &candidacy{e, make(chan context.Context, 1), cancel}
	go func() {
		if ctx, err := c.Campaign(ctx); err == nil {
			c.elected <- ctx
		}
	}()
	time.Sleep(d)
	return c
}

// leads waits until the candidate is elected, and returns its term's context.
func (c *candidacy) leads(t *testing.T) context.Context {
	t.Helper()
	select {
	case ctx := <-c.elected:
		return ctx
	case <-time.After(time.Hour):
		t.Fatalf("%v is not elected", c)
		return nil
	}
}

// wantYield waits for the end of the term, and checks that it ended at the given time, for the named candidate.
func wantYield(t *testing.T, ctx context.Context, e *leader.Election, name string, at time.Time) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
	}
	session := candidate(t, e, name).Session
	if cause := context.Cause(ctx); !errors.Is(cause, leader.ErrResigned) || !strings.Contains(cause.Error(), session) || !time.Now().Equal(at) {
		t.Errorf("the term ended at %v with %v; want %v, for session %s", time.Now(), cause, at, session)
	}
}

// Of those who wait, the most preferred is elected, whenever it came, and the first among equals.
func TestMostPreferredIsElected(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("polling %t", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			leading := joins(preferring(t, store, "first", 0, 0))
			all := make(map[string]*candidacy)
			for _, c := range []struct {
				name       string
				preference int
			}{{"a", 0}, {"b", 5}, {"c", -1}, {"d", 5}, {"e", 999_999}, {"f", 0}, {"g", -999_999}, {"h", 4}} {
				all[c.name] = joins(preferring(t, store, c.name, c.preference, 0))
			}
			wantRoles(t, leading.Election, "first leader", "e candidate", "b candidate", "d candidate", "h candidate",
				"a candidate", "f candidate", "c candidate", "g candidate")
			for i, name := range []string{"e", "b", "d", "h", "a", "f", "c", "g"} {
				noErr(t, leading.Resign(background))
				leading = all[name]
				if got := term(t, leading.leads(t)); got.Name != name || got.Number != int64(i+2) {
					t.Errorf("%v is elected, want %s in term %d", got, name, i+2)
				}
			}
		})
	}
}

// A leader keeps its term for YieldAfter. Then it hands over to a more preferred candidate, and to no other. The
// candidate is elected when the leader's work is done, and leads as long as nobody is preferred to it.
func TestYieldAfter(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("polling %t", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			a := preferring(t, store, "a", 1, time.Minute)
			ctx := campaign(t, a)
			elected := time.Now()
			for _, c := range []string{"equal", "another"} {
				joins(preferring(t, store, c, 1, time.Second))
			}
			joins(preferring(t, store, "less", 0, time.Second))
			b := joins(preferring(t, store, "b", 2, time.Second))
			wantRoles(t, a, "a leader", "b candidate", "equal candidate", "another candidate", "less candidate")

			wantYield(t, ctx, a, "b", elected.Add(time.Minute))
			time.Sleep(grace / 2)
			if a.IsLeader() || b.IsLeader() {
				t.Errorf("while a stops its work, a leads: %t, b: %t", a.IsLeader(), b.IsLeader())
			}
			if err := a.Resign(background); err != nil {
				t.Errorf("Resign: %v", err)
			}
			now := b.leads(t)
			if d := time.Since(elected) - time.Minute; d < grace/2 || d > grace/2 && !polling {
				t.Errorf("b leads %v after the end of the term, want %v", d, grace/2)
			}
			joins(a)
			time.Sleep(time.Hour)
			wantRoles(t, a, "b leader", "equal candidate", "another candidate", "a candidate", "less candidate")
			if now.Err() != nil {
				t.Errorf("the most preferred has handed over: %v", context.Cause(now))
			}
		})
	}
}

// If a more preferred candidate comes after YieldAfter, the leader hands over at once.
func TestYieldAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := preferring(t, store, "a", -3, time.Minute)
		ctx := campaign(t, a)
		time.Sleep(time.Hour)
		came := time.Now()
		b := joins(preferring(t, store, "b", -2, 0))
		if ctx.Err() == nil {
			t.Fatal("the leader has not handed over")
		}
		if term(t, b.leads(t)).Number != 2 || time.Since(came) > grace+time.Second {
			t.Errorf("b leads %v after it came", time.Since(came))
		}
	})
}

// A leader stays without YieldAfter, and if no candidate is more preferred.
func TestLeaderStays(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		yieldAfter            time.Duration
		preference, candidate int
	}{
		{"by default", 0, 0, 5},
		{"with an equal", time.Minute, 5, 5},
		{"with a less preferred one", time.Minute, 5, 4},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			a := preferring(t, store, "a", tt.preference, tt.yieldAfter)
			ctx := campaign(t, a)
			joins(preferring(t, store, "b", tt.candidate, time.Minute))
			time.Sleep(time.Hour)
			wantRoles(t, a, "a leader", "b candidate")
			if ctx.Err() != nil {
				t.Errorf("the term has ended: %v", context.Cause(ctx))
			}
		})
	}
}

// The leader that hands over stops its work before the next one begins, within Run. Then it campaigns again.
func TestYieldFromRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := preferring(t, store, "a", 0, time.Minute)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		var ended, returned time.Time
		go a.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			ended = time.Now()
			time.Sleep(grace / 2)
			returned = time.Now()
			return nil
		})
		time.Sleep(time.Second)
		b := joins(preferring(t, store, "b", 1, 0))
		now := b.leads(t)
		if d := returned.Sub(ended); d != grace/2 || !time.Now().Equal(returned) {
			t.Errorf("the function had %v and returned at %v; b was elected at %v", d, returned, time.Now())
		}
		time.Sleep(time.Second)
		wantRoles(t, a, "b leader", "a candidate")
		if now.Err() != nil {
			t.Errorf("b's term has ended: %v", context.Cause(now))
		}
	})
}

// Work that does not stop holds up the next leader for the grace, and no longer.
func TestYieldWaitsForTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		ctx := campaign(t, preferring(t, store, "a", 0, time.Minute))
		b := joins(preferring(t, store, "b", 1, 0))
		<-ctx.Done()
		ended := time.Now()
		b.leads(t)
		if d := time.Since(ended); d != grace {
			t.Errorf("b was elected after %v, want %v", d, grace)
		}
	})
}

// A candidate whose session has lapsed is preferred to nobody.
func TestYieldToNobodyDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := preferring(t, store, "a", 0, 2*ttl)
		ctx := campaign(t, a)
		elected := time.Now()
		f := newFaulty(t, store, nil)
		joins(preferring(t, f, "dead", 9, 0))
		f.Cut()
		time.Sleep(4 * ttl)
		if ctx.Err() != nil {
			t.Fatalf("the term has ended after %v: %v", time.Since(elected), context.Cause(ctx))
		}
		came := time.Now()
		b := joins(preferring(t, store, "b", 1, 0))
		b.leads(t)
		if d := time.Since(came); d > grace+time.Second {
			t.Errorf("b leads %v after it came", d)
		}
	})
}

// The candidate that the leader has chosen is elected, even if a still more preferred one comes while the work stops.
// If it has gone, the first in the queue is elected.
func TestYieldToTheChosenOne(t *testing.T) {
	for _, stays := range []bool{true, false} {
		inBubble(t, fmt.Sprintf("stays %t", stays), func(t *testing.T) {
			store := dsynctest.NewMemory()
			a := preferring(t, store, "a", 0, time.Minute)
			ctx := campaign(t, a)
			b := joins(preferring(t, store, "b", 1, 0))
			time.Sleep(time.Minute - 2*time.Second)
			<-ctx.Done()
			c := joinsWithin(preferring(t, store, "c", 2, 0), grace/4)
			next := b
			if !stays {
				b.stop()
				next = c
				time.Sleep(grace / 4)
			}
			if err := a.Resign(background); err != nil {
				t.Errorf("Resign: %v", err)
			}
			if term(t, next.leads(t)).Number != 2 {
				t.Error("somebody else was elected before")
			}
		})
	}
}

func TestPreferenceIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		for _, tt := range []struct {
			opt  leader.Options
			want string
		}{
			{leader.Options{Preference: 1_000_000}, "the preference is 1000000; it must be between -999999 and 999999"},
			{leader.Options{Preference: -1_000_000}, "the preference is -1000000; it must be between -999999 and 999999"},
			{leader.Options{YieldAfter: -1}, "YieldAfter is -1ns; it must not be negative"},
		} {
			if _, err := leader.New(s, "e", &tt.opt); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New with %+v: %v, want %q", tt.opt, err, tt.want)
			}
		}
		o := &leader.Options{YieldAfter: time.Minute}
		if _, _, err := leader.NewGroup(background, s, "g", &leader.GroupOptions{Election: o}); err == nil || !strings.Contains(err.Error(), "make BalanceInterval negative") {
			t.Errorf("NewGroup with YieldAfter, and balanced: %v", err)
		}
		g, _, err := leader.NewGroup(background, s, "g", &leader.GroupOptions{Election: o, BalanceInterval: -1})
		noErr(t, err)
		g.Wait()
	})
}
