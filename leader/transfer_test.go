package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/leader"
)

// named returns an election on a new session that has the given name.
func named(t *testing.T, store driver.Store, name string) *leader.Election {
	t.Helper()
	return electionOf(t, newSession(t, store, &dsync.Options{Name: name}), nil)
}

// A candidacy is a call of Campaign in the background.
type candidacy struct {
	*leader.Election
	elected chan context.Context
	stop    context.CancelFunc
}

// candidates makes sessions with the given names campaign, one after the other.
func candidates(t *testing.T, store driver.Store, names ...string) map[string]*candidacy {
	t.Helper()
	all := make(map[string]*candidacy)
	for _, name := range names {
		ctx, cancel := context.WithCancel(background)
		c := &candidacy{named(t, store, name), make(chan context.Context, 1), cancel}
		go func() {
			if ctx, err := c.Campaign(ctx); err == nil {
				c.elected <- ctx
			}
		}()
		time.Sleep(time.Second)
		all[name] = c
	}
	return all
}

// candidate returns the candidate with the given name.
func candidate(t *testing.T, e *leader.Election, name string) leader.Candidate {
	t.Helper()
	all, err := e.Candidates(background)
	noErr(t, err)
	i := slices.IndexFunc(all, func(c leader.Candidate) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no candidate %q among %+v", name, all)
	}
	return all[i]
}

// wantRoles checks the leader, then the candidates in the order of the queue, and then the observers.
func wantRoles(t *testing.T, e *leader.Election, want ...string) {
	t.Helper()
	if got := roles(t, e); !slices.Equal(got, want) {
		t.Errorf("the candidates are %q, want %q", got, want)
	}
}

// wantNumber checks the number of terms in the store.
func wantNumber(t *testing.T, store driver.Store, want int64) {
	t.Helper()
	if st, err := store.Load(background, "e", 1000); err != nil || st.Term != want {
		t.Errorf("there were %d terms (%v), want %d", st.Term, err, want)
	}
}

// The named candidate is elected in the write that ends the leader's term, whatever its position in
// the queue. The others keep their order.
func TestTransfer(t *testing.T) {
	for _, name := range []string{"b", "c", "d"} {
		for _, polling := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("to %s, polling %t", name, polling), func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				a := named(t, store, "a")
				term1 := campaign(t, a)
				all := candidates(t, store, "b", "c", "d")
				to := candidate(t, a, name)
				before := store.Counts()
				noErr(t, a.Transfer(background, to))
				d := store.Counts().Since(before)
				if n := d.Commands[dsynctest.MethodRelease]; n != 1 {
					t.Errorf("Transfer sent %d releases, want one: %v", n, d.Commands)
				}
				rest := slices.DeleteFunc([]string{"b candidate", "c candidate", "d candidate"}, func(s string) bool { return s == name+" candidate" })
				wantRoles(t, a, append([]string{name + " leader"}, rest...)...)
				if a.IsLeader() || context.Cause(term1) != leader.ErrResigned {
					t.Errorf("a leads: %t, its term ended with %v", a.IsLeader(), context.Cause(term1))
				}
				if got := term(t, <-all[name].elected); got.Number != 2 || got.Name != name {
					t.Errorf("elected: %+v, want %s in term 2", got, name)
				}
			})
		}
	}
}

// Run's function has its grace before anybody else is elected. Then Run campaigns again, behind the
// waiting candidates.
func TestTransferFromRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := named(t, store, "a")
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		var returned time.Time
		go a.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(grace / 2)
			returned = time.Now()
			return nil
		})
		time.Sleep(time.Second)
		all := candidates(t, store, "b", "c")
		start := time.Now()
		noErr(t, a.Transfer(background, candidate(t, a, "c")))
		if d := time.Since(start); d != grace/2 {
			t.Errorf("Transfer returned after %v, want %v", d, grace/2)
		}
		now := <-all["c"].elected
		if tm := term(t, now); tm.Number != 2 || returned.IsZero() || now.Err() != nil {
			t.Errorf("elected %+v, the function had returned at %v", tm, returned)
		}
		time.Sleep(time.Second)
		wantRoles(t, a, "c leader", "b candidate", "a candidate")
	})
}

// Inside Run's function, Transfer does not wait for the function.
func TestTransferInsideRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := named(t, store, "a")
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		ready := make(chan leader.Candidate)
		go a.Run(ctx, func(ctx context.Context) error {
			to := <-ready
			asked := time.Now()
			if err := a.Transfer(ctx, to); err != nil || !time.Now().Equal(asked) {
				t.Errorf("Transfer: %v after %v, want nil at once", err, time.Since(asked))
			}
			return ctx.Err()
		})
		time.Sleep(time.Second)
		all := candidates(t, store, "b", "c")
		ready <- candidate(t, a, "c")
		<-all["c"].elected
		time.Sleep(time.Second)
		wantRoles(t, a, "c leader", "b candidate", "a candidate")
	})
}

// A refused Transfer does not end the leadership, and sends no release.
func TestTransferRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		a, gone := named(t, store, "a"), named(t, f, "gone")
		ctx := campaign(t, a)
		all := candidates(t, store, "b", "left")
		go gone.Campaign(background) // the last in the queue, so that nobody looks whether its session has expired
		time.Sleep(time.Second)
		all["b"].Observe(background) // a candidate that also observes remains a candidate
		observing := newSession(t, store, nil)
		observer := electionOf(t, observing, nil)
		observer.Observe(background)
		time.Sleep(time.Second)
		dead, left, b := candidate(t, a, "gone"), candidate(t, a, "left"), candidate(t, a, "b")
		f.Cut()
		all["left"].stop()
		time.Sleep(ttl)

		before := store.Counts()
		for _, tt := range []struct {
			name string
			e    *leader.Election
			to   leader.Candidate
			want error
		}{
			{"a lapsed session", a, dead, leader.ErrNotCandidate},
			{"an unknown session", a, leader.Candidate{Session: "nobody"}, leader.ErrNotCandidate},
			{"no session", a, leader.Candidate{Name: "b"}, leader.ErrNotCandidate},
			{"a candidate that has stopped", a, left, leader.ErrNotCandidate},
			{"an observer", a, leader.Candidate{Session: observing.ID()}, leader.ErrNotCandidate},
			{"the leader itself", a, candidate(t, a, "a"), leader.ErrNotCandidate},
			{"by a candidate", all["b"].Election, b, leader.ErrNotLeader},
			{"by an observer", observer, b, leader.ErrNotLeader},
		} {
			if err := tt.e.Transfer(background, tt.to); !errors.Is(err, tt.want) || errors.Is(err, leader.ErrResigned) {
				t.Errorf("%s: Transfer returned %v, want %v", tt.name, err, tt.want)
			}
		}
		if d := store.Counts().Since(before); d.Commands[dsynctest.MethodRelease] != 0 {
			t.Errorf("a refused Transfer has released the leadership: %v", d.Commands)
		}
		if ctx.Err() != nil || !a.IsLeader() {
			t.Errorf("a no longer leads: %v", context.Cause(ctx))
		}
		cut := newFaulty(t, store, nil)
		blind := named(t, cut, "blind")
		noErr(t, a.Resign(background))
		<-all["b"].elected
		noErr(t, all["b"].Resign(background))
		campaign(t, blind)
		go a.Campaign(background)
		time.Sleep(time.Second)
		to := candidate(t, a, "a")
		cut.Cut()
		short, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wantErr(t, "Transfer without the store", blind.Transfer(short, to), context.DeadlineExceeded)
		if !blind.IsLeader() {
			t.Error("a failed read has ended the leadership")
		}
	})
}

// If the candidate leaves the queue while the leader's work winds down, the first candidate in the
// queue is elected instead. The error also matches ErrResigned, because this process no longer
// leads.
func TestTransferToACandidateThatLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := named(t, store, "a")
		begin(t, a, true)
		all := candidates(t, store, "b", "c", "d")
		to := candidate(t, a, "c")
		time.AfterFunc(grace/4, all["c"].stop)
		err := a.Transfer(background, to)
		if !errors.Is(err, leader.ErrNotCandidate) || !errors.Is(err, leader.ErrResigned) || errors.Is(err, leader.ErrLost) {
			t.Errorf("Transfer: %v", err)
		}
		<-all["b"].elected
		wantRoles(t, a, "b leader", "d candidate")
		wantNumber(t, store, 2)
	})
}

// If the candidate crashes while the leader's work winds down, it is still elected. Another
// candidate leads when the session of the crashed candidate has expired.
func TestTransferToACandidateThatCrashes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		a := named(t, store, "a")
		begin(t, a, true)
		all := candidates(t, store, "b")
		go named(t, f, "c").Campaign(background)
		time.Sleep(time.Second)
		to := candidate(t, a, "c")
		start := time.Now()
		time.AfterFunc(grace/4, f.Cut)
		if err := a.Transfer(background, to); err != nil {
			t.Errorf("Transfer: %v", err)
		}
		if st, err := store.Load(background, "e", 1000); err != nil || len(st.Holders) != 1 || st.Holders[0].Session != to.Session {
			t.Errorf("the store has %+v (%v), want session %s", st.Holders, err, to.Session)
		}
		<-all["b"].elected
		if d := time.Since(start); d > ttl+grace {
			t.Errorf("b is elected after %v, want within %v", d, ttl+grace)
		}
	})
}

// Whatever happens to the requests and replies of the release, the named candidate is elected
// exactly once, and nobody else is.
func TestTransferWithFaults(t *testing.T) {
	for name, fault := range map[string]dsynctest.Fault{
		"request lost":                    {LoseRequest: true},
		"reply lost":                      {LoseReply: true},
		"reply lost, executed twice":      {LoseReply: true, Again: 3 * time.Second},
		"late":                            {Delay: ttl / 2},
		"executed again after a while":    {Again: time.Minute},
		"executed again at another's end": {LoseReply: true, Again: ttl},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			releases := 0
			f := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method != dsynctest.MethodRelease {
					return dsynctest.Fault{}
				}
				if releases++; releases > 2 {
					return dsynctest.Fault{}
				}
				return fault
			})
			a := named(t, f, "a")
			campaign(t, a)
			all := candidates(t, store, "b", "c", "d")
			noErr(t, a.Transfer(background, candidate(t, a, "d")))
			select {
			case <-all["d"].elected:
			case <-time.After(time.Minute):
				t.Fatal("d is not elected within a minute")
			}
			time.Sleep(2 * time.Minute) // until late requests have arrived
			wantRoles(t, a, "d leader", "b candidate", "c candidate")
			wantNumber(t, store, 2)
			noErr(t, all["d"].Resign(background))
			<-all["b"].elected
			wantRoles(t, a, "b leader", "c candidate")
		})
	}
}

// The reply to the release that elected the candidate is lost, and a late copy of the old leader's own request puts its
// claim back into the queue. The candidate resigns, so the old leader's claim is elected again. When the release is
// then repeated, the candidate is no longer in the queue. Even so, Transfer must not report that the candidate was not
// elected.
func TestTransferIsNotDeniedAfterALateCopy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		store.Polling = true // d gets no notice, so it must poll to find out that it was elected
		joins, releases := 0, 0
		f := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
			switch r.Method {
			case dsynctest.MethodAcquire:
				if joins++; joins == 1 {
					return dsynctest.Fault{Again: 1100 * time.Millisecond} // the call of candidates below takes a second
				}
			case dsynctest.MethodRelease:
				if releases++; releases == 1 {
					return dsynctest.Fault{LoseReply: true}
				}
			}
			return dsynctest.Fault{}
		})
		a := named(t, f, "a")
		campaign(t, a)
		d := candidates(t, store, "d")["d"]
		answer := make(chan error, 1)
		to := candidate(t, a, "d")
		go func() { answer <- a.Transfer(background, to) }()
		<-d.elected
		time.Sleep(200 * time.Millisecond)
		noErr(t, d.Resign(background))
		wantNumber(t, store, 3) // a's claim is elected once more, by the copy of its request
		if err := <-answer; !errors.Is(err, leader.ErrLost) || errors.Is(err, leader.ErrNotCandidate) {
			t.Errorf("Transfer: %v, want %v", err, leader.ErrLost)
		}
	})
}

// If the term is lost before its release, Transfer does not elect the candidate, and the first in the queue leads.
func TestTransferOfALostTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		a := named(t, f, "a")
		begin(t, a, true)
		all := candidates(t, store, "b", "c")
		to := candidate(t, a, "c")
		time.AfterFunc(grace/4, f.Cut)
		err := a.Transfer(background, to)
		if !errors.Is(err, leader.ErrLost) || errors.Is(err, leader.ErrNotCandidate) {
			t.Errorf("Transfer: %v, want %v", err, leader.ErrLost)
		}
		<-all["b"].elected
		wantNumber(t, store, 2)
	})
}

// Transfer returns ctx's error if ctx ends before the release. The release continues.
func TestTransferWithinItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := named(t, newFaulty(t, store, slowRelease), "a")
		campaign(t, a)
		all := candidates(t, store, "b", "c")
		to := candidate(t, a, "c")
		ctx, cancel := context.WithTimeout(background, grace/4)
		defer cancel()
		start := time.Now()
		wantErr(t, "Transfer", a.Transfer(ctx, to), context.DeadlineExceeded)
		if d := time.Since(start); d != grace/4 {
			t.Errorf("Transfer returned after %v, want %v", d, grace/4)
		}
		<-all["c"].elected
	})
}

// If Transfer is called twice at the same time, one call elects its candidate, and the other
// reports that this process no longer leads.
func TestTransferTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := named(t, newFaulty(t, store, slowRelease), "a")
		campaign(t, a)
		all := candidates(t, store, "b", "c", "d")
		errs := make(map[string]chan error)
		for _, name := range []string{"c", "d"} {
			to, err := candidate(t, a, name), make(chan error, 1)
			errs[name] = err
			go func() { err <- a.Transfer(background, to) }()
		}
		synctest.Wait()
		won, lost := "c", "d"
		err := <-errs[won]
		if err != nil {
			won, lost = lost, won
		} else {
			err = <-errs[lost]
		}
		wantErr(t, "the other Transfer", err, leader.ErrNotLeader)
		<-all[won].elected
		wantRoles(t, a, won+" leader", "b candidate", lost+" candidate")
		wantNumber(t, store, 2)
	})
}

// If a second call of Campaign waits in the leader's own process, Transfer still elects the named
// candidate.
func TestTransferSkipsLocalCandidates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := named(t, store, "a")
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		go a.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return nil // returns at once, so that the release races with the end of the hold
		})
		time.Sleep(time.Second)
		second := make(chan context.Context, 1)
		go func() {
			c, _ := a.Campaign(ctx)
			second <- c
		}()
		all := candidates(t, store, "b", "c")
		noErr(t, a.Transfer(background, candidate(t, a, "c")))
		if tm := term(t, <-all["c"].elected); tm.Number != 2 {
			t.Errorf("c was elected for term %d, want 2", tm.Number)
		}
		select {
		case c := <-second:
			t.Errorf("a is elected again: %v", term(t, c))
		case <-time.After(time.Second):
		}
	})
}

// If Close cannot wait for the leader's work, because the ctx of Close has ended, the leadership stays in the store.
// The first candidate in the queue is elected when the session expires. Transfer must not report success then.
func TestTransferOfATermLeftToExpire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Name: "a"})
		a := electionOf(t, s, nil)
		begin(t, a, true)
		all := candidates(t, store, "b", "c")
		to := candidate(t, a, "c")
		time.AfterFunc(grace/4, func() {
			ended, cancel := context.WithCancel(background)
			cancel()
			s.Close(ended)
		})
		wantErr(t, "Transfer", a.Transfer(background, to), leader.ErrLost)
		select {
		case <-all["b"].elected:
		case <-all["c"].elected:
			t.Error("c is elected, want the first in the queue")
		}
	})
}

// Transfer also finds a candidate that is so far back in the queue that the store's first reply
// does not contain it.
func TestTransferToTheLastOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 1100
		store := dsynctest.NewMemory()
		a := named(t, store, "a")
		campaign(t, a)
		for i := range n {
			id := fmt.Sprintf("c%04d", i)
			c := driver.Claim{Key: "e", ID: id + ".1", Session: id, Kind: driver.KindElection, Weight: 1, Limit: 1}
			_, err := store.Register(background, driver.Member{ID: id, Name: id, TTL: time.Hour})
			_, _, err2 := storecmd.Acquire(background, store, c, true, nil, time.Now().Add(time.Hour))
			noErr(t, errors.Join(err, err2))
		}
		noErr(t, a.Transfer(background, candidate(t, a, "c1099")))
		if got := roles(t, a); len(got) != n || got[0] != "c1099 leader" || got[1] != "c0000 candidate" {
			t.Errorf("%d candidates, the first are %q", len(got), got[:min(2, len(got))])
		}
	})
}

// A candidate that gave up and campaigns again has two claims in the queue until the store has the release of the
// first claim. Transfer elects its second claim.
func TestTransferToACandidateThatCampaignsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := named(t, store, "a")
		campaign(t, a)
		b := named(t, newFaulty(t, store, slowRelease), "b")
		ctx, giveUp := context.WithCancel(background)
		go b.Campaign(ctx)
		time.Sleep(time.Second)
		all := candidates(t, store, "c")
		giveUp()
		go b.Campaign(background)
		time.Sleep(100 * time.Millisecond)
		if queue, err := storecmd.Queue(background, store, "e"); err != nil || len(queue) != 3 {
			t.Fatalf("the queue is %v (%v), want b, c and b again", queue, err)
		}
		noErr(t, a.Transfer(background, candidate(t, a, "b")))
		time.Sleep(5 * time.Second) // until the release of b's first claim has arrived
		if !b.IsLeader() || all["c"].IsLeader() {
			t.Errorf("b leads: %t, c leads: %t", b.IsLeader(), all["c"].IsLeader())
		}
		wantNumber(t, store, 2)
	})
}

// If a candidate has several claims, the latest one is elected, even if the claims joined the queue
// in another order.
func TestTransferToTheLatestClaim(t *testing.T) {
	for _, tt := range []struct {
		queue []string
		want  string
	}{
		{[]string{"b.1", "c.1", "b.2"}, "b.2"},
		{[]string{"b.9", "c.1", "b.10"}, "b.10"},
		{[]string{"b.10", "c.1", "b.9"}, "b.10"},
		{[]string{"c.11", "b.10", "b.9", "b.8"}, "b.10"},
	} {
		inBubble(t, fmt.Sprint(tt.queue), func(t *testing.T) {
			store := dsynctest.NewMemory()
			a := named(t, store, "a")
			campaign(t, a)
			for _, id := range []string{"b", "c"} {
				if _, err := store.Register(background, driver.Member{ID: id, Name: id, TTL: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range tt.queue {
				c := driver.Claim{Key: "e", ID: id, Session: id[:1], Kind: driver.KindElection, Weight: 1, Limit: 1}
				if _, _, err := storecmd.Acquire(background, store, c, true, nil, time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			noErr(t, a.Transfer(background, candidate(t, a, "b")))
			if st, err := store.Load(background, "e", 1000); err != nil || len(st.Holders) != 1 || st.Holders[0].Claim != tt.want {
				t.Errorf("elected: %+v (%v), want %s", st.Holders, err, tt.want)
			}
		})
	}
}
