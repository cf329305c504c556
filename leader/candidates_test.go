package leader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/leader"
)

// E8: Candidates returns the leader and every process that campaigns. A crashed candidate disappears within a
// TTL. Names and metadata can be hidden.
func TestCandidates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		full := &dsync.Options{Name: "a", Host: "a.example", App: "v1", Meta: map[string]string{"zone": "x"}}
		stranger := newSession(t, store, &dsync.Options{Name: "stranger"})
		testkit.Lock(t, stranger.Mutex("k"))
		a := electionOf(t, newSession(t, f, full), nil)
		anonymous := newSession(t, store, &dsync.Options{Anonymous: true})
		b := electionOf(t, anonymous, nil)
		o := electionOf(t, newSession(t, store, &dsync.Options{Name: "o"}), nil)
		campaign(t, a)
		go b.Campaign(background)
		time.Sleep(time.Second)
		o.Observe(background)
		time.Sleep(time.Second)
		before := store.Counts()
		got, err := b.Candidates(background)
		if err != nil || len(got) != 2 {
			t.Fatalf("Candidates: %+v, %v; want 2", got, err)
		}
		if d := store.Counts().Since(before); d.Writes != 0 || d.Total() > 2 {
			t.Errorf("Candidates cost %v and %d writes, want at most two reads", d.Commands, d.Writes)
		}
		if c := got[0]; !c.IsLeader || c.Name != "a" || c.Host != "a.example" || c.PID != os.Getpid() || c.App != "v1" || c.Meta["zone"] != "x" || c.Seen.IsZero() {
			t.Errorf("the leader is %+v", c)
		}
		if c := got[1]; c.IsLeader || c.Name != "" || c.Host != "" || c.PID != 0 || c.Session == "" {
			t.Errorf("the anonymous candidate is %+v", c)
		}
		f.Cut()
		time.Sleep(ttl)
		if got, err := o.Candidates(background); err != nil || len(got) != 1 || got[0].Session != anonymous.ID() {
			t.Errorf("a TTL after the leader's crash: %+v, %v; want only the anonymous candidate", got, err)
		}
	})
}

// roles returns the candidates, and then those observers that are not candidates, each as text with
// its name and role.
func roles(t *testing.T, e *leader.Election) []string {
	t.Helper()
	all, err := e.Candidates(background)
	noErr(t, err)
	campaigns := make(map[string]bool) // by session
	var list []string
	for _, c := range all {
		campaigns[c.Session] = true
		list = append(list, role(c))
	}
	observers, err := leader.Observers(background, e)
	noErr(t, err)
	for _, o := range observers {
		if !campaigns[o.ID] {
			list = append(list, o.Name+" observer")
		}
	}
	return list
}

// role returns the candidate's name and role.
func role(c leader.Candidate) string {
	if c.IsLeader {
		return c.Name + " leader"
	}
	return c.Name + " candidate"
}

// E8: a session is a candidate or an observer of an election for as long as it takes part. If the session is lost, its
// replacement takes part instead. A session can observe because of a call of Observe, or because its hooks need it.
func TestRolesInAnElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		on := func(name, election string, store driver.Store, opt *leader.Options) *leader.Election {
			e, err := leader.New(newSession(t, store, &dsync.Options{Name: name}), election, opt)
			noErr(t, err)
			return e
		}
		want := func(when string, e *leader.Election, want ...string) {
			t.Helper()
			if got := roles(t, e); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		a, b := on("a", "e", store, nil), on("b", "e", store, nil)
		other := on("other", "e2", store, nil)
		looks := on("looks", "e", f, &leader.Options{Hooks: &leader.Hooks{NewLeader: func(_, _ leader.Leader) {}}})
		want("before anything", a)
		campaign(t, a)
		campaign(t, other)
		other.Observe(background)
		ctx, cancel := context.WithCancel(background)
		twice, cancelTwice := context.WithCancel(background)
		b.Observe(ctx)
		b.Observe(twice)
		time.Sleep(time.Second)
		want("one leads, one observes", a, "a leader", "b observer")
		want("as the other election has it", other, "other leader")
		cancel()
		time.Sleep(time.Second)
		want("one of b's two observations has ended", a, "a leader", "b observer")
		cancelTwice()
		time.Sleep(time.Second)
		want("both of b's observations have ended", a, "a leader")

		// A process that observes for its hooks becomes an observer again when it leaves the queue.
		if _, err := looks.TryCampaign(background); err == nil {
			t.Fatal("two processes lead")
		}
		a.Observe(background)
		time.Sleep(time.Second)
		want("after its try, it observes", a, "a leader", "looks observer")
		f.Cut()
		time.Sleep(2 * ttl)
		want("it is lost", a, "a leader")
		f.Heal()
		time.Sleep(ttl)
		want("it observes again, under another session", a, "a leader", "looks observer")
		a.Resign(background)
		campaign(t, b)
		time.Sleep(time.Second)
		if got := roles(t, a); len(got) != 3 || got[0] != "b leader" || !slices.Contains(got, "a observer") || !slices.Contains(got, "looks observer") {
			t.Errorf("another process leads: %q", got)
		}
	})
}

// E8: Candidates returns every candidate, the leader first. It does so even if one reply has no room for all sessions
// in the store, all claims in the queue, or all observers of the election.
func TestManyCandidates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const strangers, observers, candidates = 1100, 1050, 1020
		store := dsynctest.NewMemory()
		e := newElection(t, store, nil)
		register := func(id string) string {
			if _, err := store.Register(background, driver.Member{ID: id, Name: id, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			return id
		}
		claim := func(session string, n int) {
			c := driver.Claim{Key: "e", ID: fmt.Sprint(session, ".", n), Session: session, Kind: driver.KindElection, Weight: 1, Limit: 1}
			if _, _, err := storecmd.Acquire(background, store, c, true, nil, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range strangers {
			register(fmt.Sprintf("!%04d", i)) // sorts before all other ids
		}
		claim(register("the leader"), 1)
		want := []string{"the leader leader"}
		for i := range candidates {
			// The candidates do not join in the order of their ids. Some have two claims, as if a
			// request had arrived twice, and every third candidate also observes.
			id := register(fmt.Sprintf("c%04d", i*7%candidates))
			claim(id, 1)
			if i%10 == 0 {
				claim(id, 2)
			}
			if i%3 == 0 {
				store.Observe(background, id, 1, []string{"e"})
			}
			want = append(want, id+" candidate")
		}
		for i := range observers {
			id := register(fmt.Sprintf("o%04d", i))
			store.Observe(background, id, 1, []string{"another", "e"})
			want = append(want, id+" observer")
		}
		store.Observe(background, "the leader", 1, []string{"e"})
		got := roles(t, e)
		if !slices.Equal(got, want) {
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("%d sessions, want %d; number %d is %q, want %q", len(got), len(want), i, got[i], want[i])
				}
			}
			t.Fatalf("%d sessions, want %d", len(got), len(want))
		}
		storecmd.Unregister(background, store, "the leader")
		storecmd.Unregister(background, store, "c0007")
		if got := roles(t, e); len(got) != len(want)-2 || got[0] != "c0000 candidate" || got[1] != "c0014 candidate" {
			t.Errorf("after two sessions have left: %d sessions, %q first", len(got), got[:2])
		}
		time.Sleep(2 * time.Hour)
		if got := roles(t, e); len(got) != 0 {
			t.Errorf("%d lapsed sessions are listed, want none, even before another process expires them", len(got))
		}
	})
}

// If a list of observed keys gets lost or is delayed, the process sends it again. In the end the
// store has the keys that the process observes.
func TestObserversInBadNetworks(t *testing.T) {
	for name, fault := range map[string]func(n int) dsynctest.Fault{
		"lost":     func(n int) dsynctest.Fault { return dsynctest.Fault{LoseRequest: n%3 != 0} },
		"no reply": func(n int) dsynctest.Fault { return dsynctest.Fault{LoseReply: n%2 == 1} },
		"late": func(n int) dsynctest.Fault {
			if n%2 == 1 {
				return dsynctest.Fault{Delay: ttl / 2} // by then the caller has timed out
			}
			return dsynctest.Fault{}
		},
		"twice": func(n int) dsynctest.Fault { return dsynctest.Fault{Again: ttl / 2} },
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			n := 0
			f := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method != dsynctest.MethodObserve {
					return dsynctest.Fault{}
				}
				n++
				return fault(n)
			})
			s := newSession(t, f, &dsync.Options{Name: "o"})
			first := electionOf(t, s, nil)
			second, err := leader.New(s, "second", nil)
			noErr(t, err)
			ctx, cancel := context.WithCancel(background)
			first.Observe(ctx)
			time.Sleep(time.Second)
			second.Observe(background)
			time.Sleep(time.Second)
			cancel()
			time.Sleep(2 * ttl)
			if got, also := roles(t, first), roles(t, second); len(got) != 0 || !slices.Equal(also, []string{"o observer"}) {
				t.Errorf("the first election's observers are %q, the second's %q; want only the second to be observed", got, also)
			}
		})
	}
}

// When the set of observed keys changes, observing costs one or two writes, even if many observations begin at the same
// time. While the set stays the same, it costs nothing.
func TestObserversCostAWriteForAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		lists := func() int { return store.Counts().Commands[dsynctest.MethodObserve] }
		ctx, cancel := context.WithCancel(background)
		var e *leader.Election
		for i := range 50 {
			var err error
			if e, err = leader.New(s, fmt.Sprint("e", i), nil); err != nil {
				t.Fatal(err)
			}
			e.Observe(ctx)
		}
		time.Sleep(time.Second)
		if n := lists(); n < 1 || n > 2 {
			t.Errorf("beginning to observe 50 elections cost %d lists, want 1 or 2", n)
		}
		before := lists()
		again, end := context.WithCancel(background)
		e.Observe(again) // as before
		time.Sleep(10 * ttl)
		end()
		time.Sleep(time.Second)
		if n := lists() - before; n != 0 {
			t.Errorf("%d lists were sent although nothing had changed", n)
		}
		cancel()
		time.Sleep(time.Second)
		if n := lists() - before; n < 1 || n > 2 {
			t.Errorf("ceasing to observe 50 elections cost %d lists, want 1 or 2", n)
		}
	})
}

// An unable store returns an error from one method.
type unable struct {
	*dsynctest.Memory
	method dsynctest.Method
}

var errUnable = errors.New("the store can't do this")

func (u *unable) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	if u.method == dsynctest.MethodLoad && waiters < driver.MaxQueue || u.method == dsynctest.MethodQueue && waiters == driver.MaxQueue {
		return driver.State{}, errUnable
	}
	return u.Memory.Load(ctx, key, waiters)
}

func (u *unable) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	if u.method == dsynctest.MethodMembers && q.Observing == "" || u.method == dsynctest.MethodObservers && q.After != "" {
		return nil, time.Time{}, errUnable
	}
	return u.Memory.Sessions(ctx, q)
}

// If one of its commands fails, Candidates returns the error instead of an incomplete list.
func TestCandidatesErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		u := &unable{Memory: dsynctest.NewMemory()}
		e := newElection(t, u, nil)
		for i := range 1002 {
			id := fmt.Sprintf("s%04d", i)
			u.Register(background, driver.Member{ID: id, TTL: time.Hour})
			u.Observe(background, id, 1, []string{"e"})
			c := driver.Claim{Key: "e", ID: id + ".1", Session: id, Kind: driver.KindElection, Weight: 1, Limit: 1}
			storecmd.Acquire(background, u, c, true, nil, time.Now().Add(time.Hour))
		}
		for _, m := range []dsynctest.Method{dsynctest.MethodLoad, dsynctest.MethodMembers, dsynctest.MethodQueue} {
			u.method = m
			all, err := e.Candidates(background)
			if !errors.Is(err, errUnable) || all != nil {
				t.Errorf("Candidates with %s failing: %d, %v", m, len(all), err)
			}
		}
		u.method = ""
		if all, err := e.Candidates(background); err != nil || len(all) != 1002 {
			t.Errorf("Candidates: %d, %v", len(all), err)
		}
	})
}
