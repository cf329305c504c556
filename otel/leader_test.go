package otel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

func TestMetricsOfTerms(t *testing.T) {
	tests := []struct {
		name, ended string
		end         func(s *dsync.Session, e *leader.Election, cancel func(), cut func())
	}{
		{"resigned", "{}", func(_ *dsync.Session, e *leader.Election, _, _ func()) { e.Resign(background) }},
		{"context", "{}", func(_ *dsync.Session, _ *leader.Election, cancel, _ func()) { cancel() }},
		{"expired", "{error.type=expired}", func(_ *dsync.Session, _ *leader.Election, _, cut func()) { cut(); time.Sleep(ttl) }},
		{"revoked", "{error.type=revoked}", func(s *dsync.Session, _ *leader.Election, _, _ func()) { admin.New(s).Break(background, "e") }},
		{"closed", "{error.type=closed}", func(s *dsync.Session, _ *leader.Election, _, _ func()) { s.Close(background) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faulty := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
				defer faulty.Close()
				r := record(t, dsyncotel.Options{})
				s := r.session(faulty)
				e, err := leader.New(s, "e", &leader.Options{Hooks: r.LeaderHooks(nil)})
				noErr(t, err)
				ctx, cancel := context.WithCancelCause(background)
				term, err := e.Campaign(ctx)
				noErr(t, err)
				time.Sleep(2 * time.Second)
				r.want("leasehold.leader", "leasehold.leader.leading{} 1", "leasehold.leader.terms{} 1")
				began := time.Now()
				tt.end(s, e, func() { cancel(context.DeadlineExceeded) }, faulty.Cut)
				<-term.Done()
				lasted := 2 * time.Second
				if tt.name == "expired" {
					lasted = time.Second + lease // the lease counts from the heartbeat that the session sent when it began to listen
				} else if d := time.Since(began); d > time.Second+ttl/10 {
					t.Errorf("the term ended after %v, want at most %v", d, time.Second+ttl/10)
				}
				faulty.Heal()
				r.want("leasehold.leader", "leasehold.leader.leading{} 0", "leasehold.leader.terms{} 1",
					"leasehold.leader.term.duration"+tt.ended+" 1 in "+seconds(lasted))
				cancel(nil)
			})
		})
	}
}

// The program's own hooks for an election are also called, and the election's name is
// treated like a key.
func TestOwnHooksOfAnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{Key: func(key string) string { return key }})
		var elected, lost, looked int
		own := &leader.Hooks{
			Elected:   func(context.Context, leader.Term) { elected++; panic("own") },
			Lost:      func(leader.Term, error) { lost++ },
			Refreshed: func(leader.Reading) { looked++ },
		}
		e, err := leader.New(r.session(dsynctest.NewMemory()), "e", &leader.Options{Hooks: r.LeaderHooks(own)})
		noErr(t, err)
		if _, err := e.Campaign(background); err != nil {
			t.Fatal(err)
		}
		e.Resign(background)
		r.want("leasehold.leader", "leasehold.leader.leading{leasehold.key=e} 0", "leasehold.leader.terms{leasehold.key=e} 1",
			"leasehold.leader.term.duration{leasehold.key=e} 1 in 0s")
		if elected != 1 || lost != 1 || looked == 0 {
			t.Errorf("own hooks were called %d, %d and %d times, want once, once and at least once", elected, lost, looked)
		}
	})
}
