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

// The channel first receives the list of candidates, and then a new list only when a candidate
// joins, leaves, crashes, is elected or resigns. It is closed when its context ends.
func TestObserveCandidates(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprint("polling ", polling), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				f := newFaulty(t, store, nil)
				observer := named(t, store, "o")
				ctx, cancel := context.WithCancel(background)
				seen := observer.ObserveCandidates(ctx)
				want := func(after string, want ...string) {
					t.Helper()
					time.Sleep(ttl + time.Minute) // long enough for heartbeats and polls
					var got []string
					select {
					case all := <-seen:
						for _, c := range all {
							got = append(got, role(c))
						}
						if len(all) == 0 {
							got = append(got, "none")
						}
					default:
					}
					if !slices.Equal(got, want) {
						t.Errorf("after %s: %q, want %q", after, got, want)
					}
				}
				want("ObserveCandidates", "none")
				a := named(t, store, "a")
				campaign(t, a)
				want("an election", "a leader")
				b := candidates(t, store, "b")["b"]
				want("a candidacy", "a leader", "b candidate")
				want("nothing")
				a.Resign(background)
				want("a resignation", "b leader")
				go named(t, f, "c").Campaign(background)
				want("another candidacy", "b leader", "c candidate")
				f.Cut()
				want("its death", "b leader")
				b.Resign(background)
				want("the last resignation", "none")
				campaign(t, observer)
				want("the observer's election", "o leader")
				observer.Resign(background)
				want("its resignation", "none")

				g := newFaulty(t, store, nil)
				campaign(t, named(t, g, "d"))
				go electionOf(t, newSession(t, g, &dsync.Options{Name: "e", TTL: 10 * time.Minute}), nil).Campaign(background)
				want("a candidacy with a long TTL", "d leader", "e candidate")
				g.Cut()
				want("the leader's death, which the candidate can't know", "e candidate")
				g.Heal()
				want("its election", "e leader")

				p := electionOf(t, newSession(t, store, &dsync.Options{Name: "p"}), nil)
				p.Observe(ctx)
				want("Observe elsewhere")
				cancel()
				if _, open := <-seen; open {
					t.Error("the channel is open after the end of ctx")
				}
			})
		})
	}
}

// A newer list replaces one that was not received. The receiver owns the list.
func TestObserveCandidatesLatestWins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		observer := named(t, store, "o")
		seen := observer.ObserveCandidates(background)
		all := candidates(t, store, "a", "b", "c")
		received := <-seen
		if len(received) != 3 || received[0].Name != "a" || received[2].Name != "c" {
			t.Fatalf("received %+v, want a, b and c", received)
		}
		clear(received) // this must not count as a change
		time.Sleep(10 * time.Minute)
		select {
		case got := <-seen:
			t.Errorf("received %+v, although nothing has changed", got)
		default:
		}
		all["b"].stop()
		if got := <-seen; len(got) != 2 || got[1].Name != "c" {
			t.Errorf("received %+v, want a and c", got)
		}
	})
}
