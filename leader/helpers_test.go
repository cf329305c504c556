package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// Timing of the sessions in these tests.
const (
	ttl   = 10 * time.Second
	grace = time.Second
)

var background = context.Background()

func newSession(t testing.TB, store dsync.Store, opt *dsync.Options) *dsync.Session {
	t.Helper()
	if opt == nil {
		opt = &dsync.Options{}
	}
	if opt.TTL == 0 {
		opt.TTL = ttl
	}
	s, err := dsync.New(store, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(background) })
	return s
}

func newElection(t testing.TB, store dsync.Store, opt *leader.Options) *leader.Election {
	t.Helper()
	return electionOf(t, newSession(t, store, nil), opt)
}

func electionOf(t testing.TB, s *dsync.Session, opt *leader.Options) *leader.Election {
	t.Helper()
	e, err := leader.New(s, "e", opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newFaulty(t testing.TB, store dsync.Store) *dsynctest.Faulty {
	f := dsynctest.NewFaulty(store, nil)
	t.Cleanup(f.Close)
	return f
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// campaign campaigns within five minutes.
func campaign(t testing.TB, e *leader.Election) context.Context {
	t.Helper()
	limit := time.AfterFunc(5*time.Minute, func() { panic("not elected within five minutes") })
	defer limit.Stop()
	ctx, err := e.Campaign(background)
	if err != nil {
		t.Fatalf("Campaign: %v", err)
	}
	return ctx
}

func wantErr(t testing.TB, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: error is %v, want one that is %v", what, err, w)
		}
	}
}

func term(t testing.TB, ctx context.Context) leader.Term {
	t.Helper()
	tm, ok := leader.TermFrom(ctx)
	if !ok {
		t.Fatal("the context carries no term")
	}
	return tm
}
