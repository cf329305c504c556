package dsynctest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// What writes nothing is no change, a grant comes before its change, and a watch
// that has ended is forgotten.
func TestMemoryWatchKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		mine, other := claim("k", "a", 1), claim("k", "b", 1)
		mine.Kind, other.Kind = dsync.KindElection, dsync.KindElection
		var got []dsync.Event
		keys, done := []string{"k", "k"}, make(chan error)
		go func() { done <- m.Watch(ctx, "a", keys, func(e dsync.Event) { got = append(got, e) }) }()
		synctest.Wait()
		keys[0], keys[1] = "changed", "by the caller"

		var s dsync.State
		var swept dsync.SweepState
		for range 2 {
			s, _ = m.Acquire(ctx, mine, true, nil, soon())
			m.Publish(ctx, mine, 1, []byte("v"))
			m.Publish(ctx, other, 1, []byte("v"))
			m.Acquire(ctx, other, false, nil, soon())
			m.Extend(ctx, mine)
			m.Load(ctx, "k")
			swept, _ = m.Sweep(ctx, "a", swept, 0)
		}
		synctest.Wait()
		want := []dsync.Event{
			{Type: dsync.EventReady},
			{Type: dsync.EventGrant, Key: "k", Claim: "a.1", Token: s.Token, Term: 1},
			{Type: dsync.EventChange, Key: "k"},
			{Type: dsync.EventChange, Key: "k"},
		}
		if !slices.Equal(got, want) {
			t.Errorf("events %+v, want %+v", got, want)
		}
		cancel()
		<-done
		m.Release(t.Context(), mine, dsync.Outcome{})
		time.Sleep(time.Second)
		if len(got) != len(want) {
			t.Errorf("events after its end: %+v", got[len(want):])
		}
	})
}

func TestMemoryValuesAreCopies(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	c, sent := claim("k", "a", 1), []byte("value")
	m.Acquire(ctx, c, true, nil, soon())
	m.Publish(ctx, c, 1, sent)
	sent[0] = 'x'
	s, _ := m.Load(ctx, "k")
	s.Value[1] = 'x'
	if again, _ := m.Load(ctx, "k"); string(again.Value) != "value" {
		t.Errorf("a caller changed the store's value to %q", again.Value)
	}
}

// What a caller was given does not change with the store.
func TestMemoryStatesAreCopies(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	var claims []dsync.Claim
	for i := range 3 {
		c := claim("k", "a", i)
		c.Limit = 2
		claims = append(claims, c)
	}
	m.Acquire(ctx, claims[0], true, nil, soon())
	m.Acquire(ctx, claims[1], true, nil, soon())
	s, _ := m.Acquire(ctx, claims[2], true, nil, soon())
	m.Release(ctx, claims[0], dsync.Outcome{})
	if s.Holders[0].Claim != claims[0].ID || s.Holders[1].Claim != claims[1].ID {
		t.Errorf("a release changed an earlier state to %+v", s.Holders)
	}
	m.Register(ctx, dsync.Member{ID: "a", TTL: time.Minute, Meta: map[string]string{"zone": "1"}})
	first, _, _ := m.Members(ctx, "a")
	first[0].Meta["zone"] = "2"
	if again, _, _ := m.Members(ctx, "a"); again[0].Meta["zone"] != "1" {
		t.Errorf("a caller changed the store's record to %v", again[0].Meta)
	}
	keys := []string{"k"}
	m.Observe(ctx, "a", 1, keys)
	keys[0] = "changed"
	found, _ := m.Observers(ctx, "k", "", 1)
	found[0].Meta["zone"] = "2"
	if again, _ := m.Observers(ctx, "k", "", 1); len(again) != 1 || again[0].Meta["zone"] != "1" {
		t.Errorf("a caller changed what is observed, or the store's record, to %+v", again)
	}
}
