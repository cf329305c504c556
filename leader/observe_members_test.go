package leader_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// The channel has the members first, and then again whenever somebody joins, leaves, crashes, is
// elected or resigns, and nothing in between. It is closed with its context.
func TestObserveMembers(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprint("polling ", polling), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				f := newFaulty(t, store, nil)
				observer := named(t, store, "o")
				ctx, cancel := context.WithCancel(background)
				seen := observer.ObserveMembers(ctx)
				want := func(after string, want ...string) {
					t.Helper()
					time.Sleep(ttl + time.Minute) // heartbeats and polls
					var got []string
					select {
					case members := <-seen:
						for _, m := range members {
							got = append(got, fmt.Sprint(m.Name, " ", m.Role))
						}
					default:
					}
					if !slices.Equal(got, want) {
						t.Errorf("after %s: %q, want %q", after, got, want)
					}
				}
				want("ObserveMembers", "o observer")
				a := named(t, store, "a")
				campaign(t, a)
				want("an election", "a leader", "o observer")
				b := candidates(t, store, "b")["b"]
				want("a candidacy", "a leader", "b candidate", "o observer")
				want("nothing")
				a.Resign(background)
				want("a resignation", "b leader", "o observer")
				go named(t, f, "c").Campaign(background)
				want("another candidacy", "b leader", "c candidate", "o observer")
				f.Cut()
				want("its death", "b leader", "o observer")
				b.Resign(background)
				want("the last resignation", "o observer")
				campaign(t, observer)
				want("the observer's election", "o leader")
				observer.Resign(background)
				want("its resignation", "o observer")
				other, leave := context.WithCancel(background)
				p := electionOf(t, newSession(t, store, &dsync.Options{Name: "p"}), nil)
				p.Observe(other)
				time.Sleep(time.Minute)
				if members := <-seen; len(members) != 2 {
					t.Errorf("after Observe elsewhere: %+v, want 2", members)
				}
				leave()
				want("its end", "o observer")
				cancel()
				if _, open := <-seen; open {
					t.Error("the channel is open after the end of ctx")
				}
			})
		})
	}
}

// The latest list replaces one that was not received. The receiver owns the list.
func TestObserveMembersLatestWins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		observer := named(t, store, "o")
		seen := observer.ObserveMembers(background)
		all := candidates(t, store, "a", "b", "c")
		members := <-seen
		if len(members) != 4 || members[0].Name != "a" || members[2].Name != "c" {
			t.Fatalf("received %+v, want a, b, c and o", members)
		}
		clear(members) // must not count as a change
		time.Sleep(10 * time.Minute)
		select {
		case got := <-seen:
			t.Errorf("received %+v, although nothing has changed", got)
		default:
		}
		all["b"].stop()
		if got := <-seen; len(got) != 3 || got[1].Name != "c" {
			t.Errorf("received %+v, want a, c and o", got)
		}
	})
}
