package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/leader"
)

// Timing of the sessions in these tests.
const (
	ttl   = testkit.TTL
	grace = time.Second
)

var background = context.Background()

var (
	newSession = testkit.NewSession
	noErr      = testkit.NoErr
	inBubble   = testkit.InBubble
	newFaulty  = testkit.NewFaulty
	wantErr    = testkit.WantErr
	bubble     = synctest.Test
)

func newElection(t testing.TB, store driver.Store, opt *leader.Options) *leader.Election {
	t.Helper()
	return electionOf(t, newSession(t, store, nil), opt)
}

func electionOf(t testing.TB, s *dsync.Session, opt *leader.Options) *leader.Election {
	t.Helper()
	e, err := leader.New(s, "e", opt)
	noErr(t, err)
	return e
}

// campaign campaigns, and fails the test if e is not elected within five minutes.
func campaign(t testing.TB, e *leader.Election) context.Context {
	t.Helper()
	limit := time.AfterFunc(5*time.Minute, func() { panic("not elected within five minutes") })
	defer limit.Stop()
	ctx, err := e.Campaign(background)
	noErr(t, err)
	return ctx
}

func term(t testing.TB, ctx context.Context) leader.Term {
	t.Helper()
	tm, ok := leader.TermFrom(ctx)
	if !ok {
		t.Fatal("the context carries no term")
	}
	return tm
}
