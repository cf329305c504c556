package dsynctest_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

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
	var claims []driver.Claim
	for i := range 3 {
		c := claim("k", "a", i)
		c.Limit = 2
		claims = append(claims, c)
	}
	m.Acquire(ctx, claims[0], true, nil, soon())
	m.Acquire(ctx, claims[1], true, nil, soon())
	s, _, _ := m.Acquire(ctx, claims[2], true, nil, soon())
	m.Release(ctx, claims[0], driver.ReleaseOptions{})
	if s.Holders[0].Claim != claims[0].ID || s.Holders[1].Claim != claims[1].ID {
		t.Errorf("a release changed an earlier state to %+v", s.Holders)
	}
	m.Register(ctx, driver.Member{ID: "a", TTL: time.Minute, Meta: map[string]string{"zone": "1"}})
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

// What a caller was given or gave does not change with the store.
func TestMemoryResultsAreCopies(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	c, sent := claim("k", "a", 1), []byte("result")
	m.Acquire(ctx, c, true, nil, soon())
	m.Release(ctx, c, driver.ReleaseOptions{Seal: true, Result: sent})
	sent[0] = 'x'
	s, _ := m.Load(ctx, "k")
	s.Value[1] = 'x'
	if again, _ := m.Load(ctx, "k"); string(again.Value) != "result" {
		t.Errorf("a caller changed the store's result to %q", again.Value)
	}

	m.Register(ctx, driver.Member{ID: "a", TTL: 1 << 40})
	for _, claim := range []string{"a.1", "a.2"} {
		m.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: claim})
	}
	p, _ := m.Heartbeat(ctx, "a", nil)
	p.Revoked[0].Claim = "changed"
	if again, _ := m.Heartbeat(ctx, "a", nil); len(again.Revoked) != 2 || again.Revoked[0].Claim != "a.1" {
		t.Errorf("a caller changed the store's revocations to %+v", again.Revoked)
	}
}
