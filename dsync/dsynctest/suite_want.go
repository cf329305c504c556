package dsynctest

import (
	"errors"
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
)

// wantDead checks that a session is dead and that nothing makes it alive. What
// would make it dead if it were not comes last.
func (e *env) wantDead(session string) {
	e.Helper()
	if _, err := e.store.Heartbeat(e.ctx, session, nil); !errors.Is(err, dsync.ErrSessionDead) {
		e.Errorf("Heartbeat of a dead session: error %v, want ErrSessionDead", err)
	}
	for range 2 {
		if _, err := e.store.Register(e.ctx, dsync.Member{ID: session, TTL: long}); !errors.Is(err, dsync.ErrSessionExists) {
			e.Errorf("Register of a dead session: error %v, want ErrSessionExists", err)
		}
	}
	if err := e.store.Unregister(e.ctx, session); err != nil {
		e.Errorf("Unregister of a dead session: %v", err)
	}
	if left, err := e.store.Bury(e.ctx, session); left != 0 || err != nil {
		e.Errorf("Bury of a dead session = %v, %v; want 0, no error", left, err)
	}
	e.member(session, "is dead", func(m dsync.Member) bool { return m.Dead })
}

// wantHolders checks who holds, in the order of the grants.
func (e *env) wantHolders(s dsync.State, want ...dsync.Claim) {
	e.Helper()
	var got []string
	for _, h := range s.Holders {
		got = append(got, h.Claim)
	}
	if !slices.Equal(got, claimIDs(want)) {
		e.Fatalf("holders %q, want %q", got, claimIDs(want))
	}
}

// wantLine checks the line of a state that was not asked for by a claim in line;
// of at most 8 claims if it is not Load's.
func (e *env) wantLine(s dsync.State, want ...dsync.Claim) {
	e.Helper()
	if got := ahead(s); s.Waiting != len(want) || s.Place != 0 || !slices.Equal(got, claimIDs(want)) {
		e.Fatalf("%d waiting, place %d, line %q; want %d, 0, %q", s.Waiting, s.Place, got, len(want), claimIDs(want))
	}
}

// wantFree checks that nobody holds or waits for a key.
func (e *env) wantFree(key string) {
	e.Helper()
	s := e.load(key)
	e.wantHolders(s)
	e.wantLine(s)
}

func ahead(s dsync.State) []string {
	var ids []string
	for _, w := range s.Ahead {
		ids = append(ids, w.Claim)
	}
	return ids
}

func claimIDs(claims []dsync.Claim) []string {
	var ids []string
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	return ids
}

// check checks what is true of every state of a key, which shows most claims of
// the line at the most. It must see the states in the order of their commands.
func (e *env) check(key string, s dsync.State, most int) {
	e.Helper()
	if s.Key != key {
		e.Errorf("state of key %q has Key %q", key, s.Key)
	}
	if s.Now.IsZero() {
		e.Errorf("state has no Now: %+v", s)
	}
	if len(s.Ahead) > most || len(s.Ahead) > s.Waiting || s.Place > s.Waiting {
		e.Errorf("%d claims ahead of place %d of %d; want at most %d, and no more than wait", len(s.Ahead), s.Place, s.Waiting, most)
	}
	g := e.tokens[key]
	if g == nil {
		g = &grantsOfAKey{byClaim: make(map[string]dsync.Holder)}
		e.tokens[key] = g
	}
	var sum, last int64
	granted := false
	for _, h := range s.Holders {
		sum += h.Weight
		if h.Token <= last {
			e.Errorf("holders are not in the order of their grants: %+v", s.Holders)
		}
		last = h.Token
		before, known := g.byClaim[h.Claim]
		switch {
		case known && (h.Token != before.Token || !h.Since.Equal(before.Since)):
			e.Errorf("claim %s was granted with token %d at %v, now it reads %d, %v", h.Claim, before.Token, before.Since, h.Token, h.Since)
		case !known && h.Token < g.last+1024 && g.last > 0:
			e.Errorf("claim %s was granted with token %d after token %d; want at least 1024 more", h.Claim, h.Token, g.last)
		}
		granted = granted || !known
		g.byClaim[h.Claim] = h
		g.last = max(g.last, h.Token)
	}
	if s.Sealed {
		last = 0 // the key's token is that of the claim that sealed it
	}
	if len(s.Holders) > 0 && (sum > s.Limit && (granted || !g.shrunk) || last > s.Token) {
		e.Errorf("holders weigh %d of %d, last token %d of %d: %+v", sum, s.Limit, last, s.Token, s.Holders)
	}
}
