package dsynctest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// heard runs a Watch of a session while do runs, and returns what it was told
// but for EventReady.
func heard(t *testing.T, m *dsynctest.Memory, session string, do func(ctx context.Context)) []dsync.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var got []dsync.Event
	done := make(chan error)
	go func() { done <- m.Watch(ctx, session, nil, func(e dsync.Event) { got = append(got, e) }) }()
	synctest.Wait()
	do(ctx)
	synctest.Wait()
	cancel()
	<-done
	return got[1:]
}

// The first thousand in line are told that a key was sealed, and no more.
func TestMemorySealWakesAThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		got := heard(t, m, "b", func(ctx context.Context) {
			m.Acquire(ctx, claim("k", "a", 1), true, nil, soon())
			for i := range 1010 {
				m.Acquire(ctx, claim("k", "b", i), true, nil, soon())
			}
			m.Release(ctx, claim("k", "a", 1), dsync.Outcome{Seal: true})
		})
		for i, e := range got {
			if want := (dsync.Event{Type: dsync.EventWake, Key: "k", Claim: claim("k", "b", i).ID}); e != want {
				t.Fatalf("event %d: %+v, want %+v", i, e, want)
			}
		}
		if len(got) != 1000 {
			t.Errorf("%d events, want 1000", len(got))
		}
	})
}

// What changes nothing tells nobody, and the grant comes before the yield.
func TestMemoryTellsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		holder, mine, behind := claim("k", "b", 1), claim("k", "a", 1), claim("k", "b", 2)
		mine.Yield = true
		r := dsync.Revocation{Key: "k", Claim: mine.ID}
		var token int64
		got := heard(t, m, "a", func(ctx context.Context) {
			m.Register(ctx, dsync.Member{ID: "a", TTL: 1 << 40})
			for range 2 {
				m.Acquire(ctx, holder, true, nil, soon())
				m.Acquire(ctx, mine, true, nil, soon())
				m.Acquire(ctx, behind, true, nil, soon())
				m.Revoke(ctx, "a", r)
			}
			for range 2 {
				m.Release(ctx, holder, dsync.Outcome{Keep: 1 << 40})
			}
			for range 2 {
				m.Release(ctx, holder, dsync.Outcome{})
				m.Acquire(ctx, claim("k", "b", 3), false, nil, soon())
				m.Acquire(ctx, claim("k", "b", 4), true, nil, soon()) // not the first
			}
			s, _ := m.Load(ctx, "k")
			token = s.Holders[0].Token
		})
		want := []dsync.Event{
			{Type: dsync.EventRevoke, Key: "k", Claim: mine.ID},
			{Type: dsync.EventWake, Key: "k", Claim: mine.ID},
			{Type: dsync.EventGrant, Key: "k", Claim: mine.ID, Token: token},
			{Type: dsync.EventYield, Key: "k", Claim: mine.ID},
		}
		if !slices.Equal(got, want) {
			t.Errorf("events %+v, want %+v", got, want)
		}
	})
}

// What a caller was given or gave does not change with the store.
func TestMemoryResultsAreCopies(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	c, sent := claim("k", "a", 1), []byte("result")
	m.Acquire(ctx, c, true, nil, soon())
	m.Release(ctx, c, dsync.Outcome{Seal: true, Result: sent})
	sent[0] = 'x'
	s, _ := m.Load(ctx, "k")
	s.Value[1] = 'x'
	if again, _ := m.Load(ctx, "k"); string(again.Value) != "result" {
		t.Errorf("a caller changed the store's result to %q", again.Value)
	}

	m.Register(ctx, dsync.Member{ID: "a", TTL: 1 << 40})
	for _, claim := range []string{"a.1", "a.2"} {
		m.Revoke(ctx, "a", dsync.Revocation{Key: "k", Claim: claim})
	}
	p, _ := m.Heartbeat(ctx, "a", nil)
	p.Revoked[0].Claim = "changed"
	if again, _ := m.Heartbeat(ctx, "a", nil); len(again.Revoked) != 2 || again.Revoked[0].Claim != "a.1" {
		t.Errorf("a caller changed the store's revocations to %+v", again.Revoked)
	}
}

// Nothing can be waited for in a key of no size.
func TestMemoryRefusesImpossibleLimit(t *testing.T) {
	m := dsynctest.NewMemory()
	for _, limit := range []int64{0, -1} {
		if err := m.Resize(t.Context(), "k", dsync.KindSemaphore, 1, limit); err == nil || len(m.Records()) > 0 {
			t.Errorf("Resize to %d: %v, records %q; want an error, none", limit, err, m.Records())
		}
	}
}
