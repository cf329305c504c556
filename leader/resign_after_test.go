package leader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// After ResignAfter nobody leads for d, whatever happens to the process that led. Then the first candidate in the
// queue leads.
func TestResignAfter(t *testing.T) {
	for _, run := range []bool{false, true} {
		for name, then := range map[string]func(e *leader.Election, s *dsync.Session){
			"":              func(*leader.Election, *dsync.Session) {},
			"closes":        func(_ *leader.Election, s *dsync.Session) { s.Close(background) },
			"closes beside": nil, // the session is closed before the work has stopped
			"campaigns":     func(e *leader.Election, _ *dsync.Session) { go e.Campaign(background) },
		} {
			for _, d := range []time.Duration{3 * time.Second, 3 * ttl} {
				inBubble(t, fmt.Sprintf("run %t, %s, %v", run, name, d), func(t *testing.T) {
					store := dsynctest.NewMemory()
					s := newSession(t, store, nil)
					a := electionOf(t, s, nil)
					begin(t, a, run)
					next := candidates(t, store, "b")["b"]
					start := time.Now()
					if then == nil {
						time.AfterFunc(grace/4, func() {
							ended, cancel := context.WithCancel(background)
							cancel()
							s.Close(ended)
						})
					}
					noErr(t, a.ResignAfter(background, d))
					if took := time.Since(start); took > grace {
						t.Errorf("ResignAfter took %v, want at most the grace", took)
					}
					if l, err := next.Leader(background); err == nil {
						t.Errorf("%+v leads, want nobody", l)
					}
					if then != nil {
						then(a, s)
					}
					ctx := <-next.elected
					if took := time.Since(start); took < d || took > d+time.Second {
						t.Errorf("the next leader is elected after %v, want %v", took, d)
					}
					if n := term(t, ctx).Number; n != 2 {
						t.Errorf("term %d, want 2", n)
					}
				})
			}
		}
	}
}

// If the work takes longer than d to stop, the next leader is not elected before the work has stopped.
func TestResignAfterWaitsForTheWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := newElection(t, store, nil)
		begin(t, a, true) // the work takes half the grace to stop
		next := candidates(t, store, "b")["b"]
		start := time.Now()
		noErr(t, a.ResignAfter(background, time.Millisecond))
		<-next.elected
		if took := time.Since(start); took < grace/2 || took > grace {
			t.Errorf("the next leader is elected after %v, want %v to %v", took, grace/2, grace)
		}
	})
}

func TestResignAfterRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := dsynctest.NewFaulty(dsynctest.NewMemory(), func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{ReplyDelay: time.Millisecond} // so that a call whose ctx has ended returns before the reply
		})
		a := newElection(t, slow, nil)
		wantErr(t, "ResignAfter of a candidate", a.ResignAfter(background, time.Second), leader.ErrNotLeader)
		campaign(t, a)
		for _, d := range []time.Duration{-1, 0, time.Millisecond - 1, driver.MaxDuration + 1} {
			if err := a.ResignAfter(background, d); err == nil {
				t.Errorf("ResignAfter(%v) returned no error", d)
			}
		}
		if !a.IsLeader() {
			t.Error("a refused call has ended the term")
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, "ResignAfter", a.ResignAfter(ctx, time.Hour), context.Canceled)
		time.Sleep(time.Second) // the release continues
		if _, err := a.TryCampaign(background); err == nil {
			t.Error("the process leads again at once, want nobody elected for an hour")
		}
		wantErr(t, "ResignAfter", a.ResignAfter(background, time.Second), leader.ErrNotLeader)
	})
}

// Break ends the delay of ResignAfter, so that the next candidate is elected.
func TestResignAfterAndBreak(t *testing.T) {
	for _, before := range []time.Duration{0, grace / 4, 2 * grace} { // with grace/4, Break comes while the work is stopping
		inBubble(t, before.String(), func(t *testing.T) {
			store := dsynctest.NewMemory()
			a := newElection(t, store, nil)
			begin(t, a, true)
			next := candidates(t, store, "b")["b"]
			start := time.Now()
			go a.ResignAfter(background, time.Hour)
			time.Sleep(before)
			noErr(t, admin.New(newSession(t, store, nil)).Break(background, "e"))
			<-next.elected
			if took := time.Since(start); took > 2*ttl {
				t.Errorf("the next leader is elected after %v, want at most %v", took, 2*ttl)
			}
		})
	}
}

// If the term is lost before the store has the resignation, the next election is not delayed by d,
// and ResignAfter returns ErrLost.
func TestResignAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		a := newElection(t, f, nil)
		campaign(t, a)
		next := candidates(t, store, "b")["b"]
		f.Cut()
		wantErr(t, "ResignAfter", a.ResignAfter(background, time.Hour), leader.ErrLost)
		<-next.elected
	})
}

// While a process delays the next election by ResignAfter, its own TryCampaign returns an error. This error does not
// report that another process holds the key.
func TestTryCampaignAfterOnesOwnResignAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, dsynctest.NewMemory(), nil)
		campaign(t, e)
		noErr(t, e.ResignAfter(background, time.Minute))
		_, err := e.TryCampaign(background)
		var held *dsync.HeldError
		if !errors.As(err, &held) || !held.Here || strings.Contains(err.Error(), "another") || held.Until.IsZero() {
			t.Errorf("TryCampaign after one's own ResignAfter: %v", err)
		}
	})
}

// Run's function calls ResignAfter too late: the grace is over, and the store has not yet answered the release of the
// term. ResignAfter then returns an error.
func TestResignAfterTheGraceIsOver(t *testing.T) {
	for name, fault := range map[string]dsynctest.Fault{
		"the reply comes late": {ReplyDelay: ttl / 8},
		"the reply is lost":    {LoseReply: true},
		"the request is lost":  {LoseRequest: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			released := 0
			a := newElection(t, newFaulty(t, store, func(r dsynctest.Request) (f dsynctest.Fault) {
				if r.Method == dsynctest.MethodRelease {
					if released++; released == 1 {
						f = fault
					}
				}
				return f
			}), nil)
			ctx, cancel := context.WithCancel(background)
			said := make(chan error, 1)
			go a.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(grace + ttl/20)
				said <- a.ResignAfter(background, time.Hour)
				return nil
			})
			time.Sleep(time.Second)
			next := candidates(t, store, "b")["b"]
			cancel()
			err := <-said
			wantErr(t, "ResignAfter", err, leader.ErrLost)
			began := time.Now()
			<-next.elected
			if took := time.Since(began); took > 2*ttl {
				t.Errorf("ResignAfter returned %v, and the next leader is elected %v later, want at most %v", err, took, 2*ttl)
			}
		})
	}
}
