package leader_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// E2, S1, S2: every process sees who leads, what the leader has published, and whether there is a
// leader.
func TestObserve(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprint("polling ", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			s := newSession(t, store, &dsync.Options{Name: "a", Host: "a.example"})
			a := electionOf(t, s, &leader.Options{Value: []byte("hello")})
			observer := newElection(t, store, nil)
			ctx, cancel := context.WithCancel(background)
			seen := observer.Observe(ctx)
			if l := <-seen; l.Session != "" {
				t.Errorf("the first value is %+v, want the zero Leader", l)
			}
			_, err := observer.Leader(background)
			wantErr(t, "Leader", err, leader.ErrNoLeader)

			c := campaign(t, a)
			time.Sleep(time.Second)
			l := <-seen
			tm := term(t, c)
			if l.Session != s.ID() || l.Name != "a" || l.Host != "a.example" || l.PID != os.Getpid() ||
				l.Term != 1 || l.Token != tm.Token || string(l.Value) != "hello" || l.Since.IsZero() {
				t.Errorf("observed %+v, want the leader of %+v", l, tm)
			}
			if now, err := observer.Leader(background); err != nil || now.Token != l.Token {
				t.Errorf("Leader: %+v, %v", now, err)
			}
			noErr(t, a.Publish(background, []byte("bye")))
			if l := <-seen; string(l.Value) != "bye" || l.Term != 1 {
				t.Errorf("observed %+v after Publish", l)
			}
			a.Resign(background)
			if l := <-seen; l.Session != "" {
				t.Errorf("observed %+v after Resign, want the zero Leader", l)
			}
			wantErr(t, "Publish without leading", a.Publish(background, nil), leader.ErrLost)
			// A published value disappears when its term ends.
			campaign(t, observer)
			time.Sleep(time.Second)
			if l := <-seen; l.Term != 2 || l.Value != nil {
				t.Errorf("observed %+v, want term 2 without a value", l)
			}
			cancel()
			if _, open := <-seen; open {
				t.Error("the channel is open after the end of ctx")
			}
		})
	}
}

// Observe's channel holds the latest leader, and is closed with the session.
func TestObserveLatestWins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		seen := electionOf(t, s, nil).Observe(background)
		a := newElection(t, store, nil)
		for range 5 {
			campaign(t, a)
			time.Sleep(time.Second)
			a.Resign(background)
			time.Sleep(time.Second)
		}
		campaign(t, a)
		time.Sleep(time.Second)
		if l := <-seen; l.Term != 6 {
			t.Errorf("received term %d, want the latest, 6", l.Term)
		}
		s.Close(background)
		if _, open := <-seen; open {
			t.Error("the channel is open after Close")
		}
	})
}

// If the store sends notices, the elected candidate and the observers learn of a change of leader
// without waiting for a poll.
func TestChangesAreNotified(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newElection(t, store, nil), newElection(t, store, nil)
		seen := newElection(t, store, nil).Observe(background)
		campaign(t, a)
		led := make(chan struct{})
		go func() { campaign(t, b); close(led) }()
		time.Sleep(time.Second)
		if l := <-seen; l.Term != 1 {
			t.Fatalf("observed %+v", l)
		}
		start := time.Now()
		a.Resign(background)
		<-led
		if l := <-seen; l.Term != 2 {
			t.Errorf("observed %+v, want term 2", l)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("observed %v after the event, want at once", d)
		}
	})
}

// E2, E5: on every candidate and observer, NewLeader is called for each change, with the leaders
// before and after it, and Refreshed is called periodically.
func TestHooksOfTheFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var (
			mu      sync.Mutex
			changes = map[string][]string{}
			cycles  = map[string]int{}
		)
		election := func(name string, store driver.Store) *leader.Election {
			return electionOf(t, newSession(t, store, &dsync.Options{Name: name}), &leader.Options{Hooks: &leader.Hooks{
				NewLeader: func(before, now leader.Leader) {
					mu.Lock()
					defer mu.Unlock()
					changes[name] = append(changes[name], before.Name+">"+now.Name)
				},
				Refreshed: func(leader.Reading) {
					mu.Lock()
					defer mu.Unlock()
					cycles[name]++
				},
			}})
		}
		f := newFaulty(t, store, nil)
		a, b, o := election("a", f), election("b", store), election("o", store)
		o.Observe(background)
		time.Sleep(time.Second)
		campaign(t, a)
		go b.Campaign(background)
		time.Sleep(2 * ttl)
		f.Cut()
		time.Sleep(5 * ttl)
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{"b", "o"} {
			got := changes[name]
			// Nobody led for a moment between the two terms. b and o may or may not have observed
			// that moment.
			got = slices.DeleteFunc(slices.Clone(got), func(c string) bool { return c == "a>" })
			if len(got) != 2 || got[0] != ">a" || got[1] != "a>b" && got[1] != ">b" {
				t.Errorf("%s was notified of the changes %q", name, changes[name])
			}
			if cycles[name] < 6 {
				t.Errorf("%s had %d readings in seven TTLs", name, cycles[name])
			}
		}
	})
}

// E5: Refreshed is called periodically on leaders and followers with the current state, even after an
// error.
func TestCycleReportsTheState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		var mu sync.Mutex
		cycles := map[string][]leader.Reading{}
		election := func(name string, store driver.Store) *leader.Election {
			s := newSession(t, store, &dsync.Options{Name: name, PollInterval: time.Second})
			return electionOf(t, s, &leader.Options{Hooks: &leader.Hooks{Refreshed: func(r leader.Reading) {
				mu.Lock()
				cycles[name] = append(cycles[name], r)
				mu.Unlock()
				panic("a hook panics")
			}}})
		}
		// check waits for d, and then checks the last reading that each election reported during
		// that time.
		check := func(when string, d time.Duration, want map[string]leader.Reading) {
			t.Helper()
			mu.Lock()
			clear(cycles)
			mu.Unlock()
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			for name, want := range want {
				got := cycles[name]
				if n := int(d / time.Second); len(got) < n*7/10 && want.Err == nil || len(got) == 0 {
					t.Errorf("%s: %s had %d readings in %v, want about %d", when, name, len(got), d, n)
					continue
				}
				last := got[len(got)-1]
				if last.IsLeader != want.IsLeader || last.Leader.Name != want.Leader.Name || (last.Err == nil) != (want.Err == nil) {
					t.Errorf("%s: %s received %+v, want %+v", when, name, last, want)
				}
			}
		}
		leads := func(name string) leader.Leader { return leader.Leader{Name: name} }
		a, b := election("a", store), election("b", f)
		campaign(t, a)
		go b.Campaign(background)
		check("one leads", 3*ttl, map[string]leader.Reading{
			"a": {Leader: leads("a"), IsLeader: true},
			"b": {Leader: leads("a")},
		})
		f.Cut()
		check("the other is cut off", ttl/2, map[string]leader.Reading{
			"a": {Leader: leads("a"), IsLeader: true},
			"b": {Leader: leads("a"), Err: os.ErrDeadlineExceeded}, // any error is fine
		})
		f.Heal()
		time.Sleep(ttl)
		a.Resign(background)
		check("the other leads", 3*ttl, map[string]leader.Reading{
			"a": {Leader: leads("b")},
			"b": {Leader: leads("b"), IsLeader: true},
		})
	})
}

// A crashed leader without a successor is reported as the leader until its lease ends.
func TestNoLeaderAfterItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		a, o := newElection(t, f, nil), newElection(t, store, nil)
		seen := o.Observe(background)
		campaign(t, a)
		time.Sleep(time.Second)
		if l := <-seen; l.Term != 1 {
			t.Fatalf("observed %+v", l)
		}
		f.Cut()
		time.Sleep(ttl / 2)
		if _, err := o.Leader(background); err != nil {
			t.Errorf("before the end of its lease: %v", err)
		}
		time.Sleep(2 * ttl)
		_, err := o.Leader(background)
		wantErr(t, "Leader", err, leader.ErrNoLeader)
		if l := <-seen; l.Session != "" {
			t.Errorf("observed %+v, want that nobody leads", l)
		}
	})
}

// If a session begins to observe another election, it is notified of that election's changes, too:
// it reopens its listener with that election's key.
func TestEveryObservedElectionIsNotified(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		observer, other := newSession(t, store, nil), newSession(t, store, nil)
		for i := range 3 {
			name := fmt.Sprint("election ", i)
			o, err := leader.New(observer, name, nil)
			noErr(t, err)
			e, err := leader.New(other, name, nil)
			noErr(t, err)
			seen := o.Observe(background)
			<-seen
			time.Sleep(time.Second)
			start := time.Now()
			campaign(t, e)
			if l := <-seen; l.Term != 1 || time.Since(start) != 0 {
				t.Errorf("%s: observed %+v after %v, want at once", name, l, time.Since(start))
			}
		}
	})
}

// If the same leader is elected for another term, it is reported as a new leader, even if the
// observer missed the time between the two terms.
func TestReelectedLeaderIsReportedAsNew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		store.Polling = true
		a := newElection(t, store, nil)
		var changes []string
		o := electionOf(t, newSession(t, store, &dsync.Options{PollInterval: time.Minute}), &leader.Options{Hooks: &leader.Hooks{
			NewLeader: func(before, now leader.Leader) {
				changes = append(changes, fmt.Sprint(before.Term, ">", now.Term, " ", before.Session == now.Session))
			},
		}})
		campaign(t, a)
		seen := o.Observe(background)
		if l := <-seen; l.Term != 1 {
			t.Fatalf("observed %+v", l)
		}
		synctest.Wait()
		a.Resign(background)
		campaign(t, a)
		time.Sleep(2 * time.Minute)
		if l := <-seen; l.Term != 2 {
			t.Errorf("observed %+v, want term 2", l)
		}
		synctest.Wait() // for the hook
		if got := fmt.Sprint(changes); got != "[0>1 false 1>2 true]" {
			t.Errorf("reported: %s", got)
		}
	})
}

// The channel first receives the list of candidates, and then a new list only when a candidate
// joins, leaves, crashes, is elected or resigns. It is closed when its context ends.
func TestObserveCandidates(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprint("polling ", polling), func(t *testing.T) {
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
