package dsynctest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// memberCases test Register, Heartbeat and Members.
func memberCases() []conformanceCase {
	return []conformanceCase{
		{name: "Register/StartsTTL", test: testRegisterStartsTTL},
		{name: "Register/IgnoresAtAndDead", test: testRegisterIgnoresAtAndDead},
		{name: "Register/KnownIDIsRefused", test: testRegisterKnown},
		{name: "Register/EveryFieldIsReadBack", test: testRegisterFields},
		{name: "Heartbeat/RecordsNow_B25", test: testHeartbeatRecordsNow},
		{name: "Heartbeat/RevivesLapsed", test: testHeartbeatRevivesLapsed},
		{name: "Heartbeat/UnknownIsDead", test: testHeartbeatUnknown},
		{name: "Members/LeavesOutUnknown", test: testMembersLeavesOutUnknown},
		{name: "Members/ComparesIDsExactly", test: testMembersExact},
		{name: "Members/WithoutIDsAreTheLiving", test: testMembersAll},
		{name: "Lives/TellAtTTLAndDead", test: testLives},
		{name: "Lives/CarryNothingElse", test: testLivesSlim},
	}
}

// wantLeft checks that Bury tells what is left of a session's TTL.
func (e *env) wantLeft(session string, at time.Time, ttl time.Duration) {
	e.Helper()
	before := e.now()
	left, err := e.store.Bury(e.ctx, session)
	after := e.now()
	most, least := at.Add(ttl).Sub(before), at.Add(ttl).Sub(after)
	if err != nil || left > most || left < least {
		e.Errorf("Bury of a living session = %v, %v; want from %v to %v", left, err, least, most)
	}
}

func testRegisterStartsTTL(e *env) {
	before := e.now()
	id, at := e.sessionTTL(long)
	if after := e.now(); at.Before(before) || at.After(after) {
		e.Errorf("Register = %v, want the store's time, from %v to %v", at, before, after)
	}
	m := e.member(id, "is there", func(dsync.Member) bool { return true })
	if !m.At.Equal(at) || m.Dead {
		e.Errorf("Members: at %v, dead %t; want %v as Register returned, false", m.At, m.Dead, at)
	}
	e.wantLeft(id, at, long)
}

func testRegisterIgnoresAtAndDead(e *env) {
	id := newID()
	at, err := e.store.Register(e.ctx, dsync.Member{ID: id, TTL: long, At: e.now().Add(-24 * time.Hour), Dead: true})
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	m := e.member(id, "is there", func(dsync.Member) bool { return true })
	if !m.At.Equal(at) || m.Dead {
		e.Errorf("Members: at %v, dead %t; want %v, false", m.At, m.Dead, at)
	}
	e.wantLeft(id, at, long)
}

// testRegisterKnown registers ids of sessions that live, that have lapsed and that are
// dead: each is refused, and what is known of the session stays.
func testRegisterKnown(e *env) {
	lives, first := e.sessionTTL(long)
	lapses, at := e.sessionTTL(short)
	dead := e.session()
	e.kill(dead)
	e.until(at.Add(short))
	for _, id := range []string{lives, lapses, dead} {
		for range 2 {
			now, err := e.store.Register(e.ctx, dsync.Member{ID: id, TTL: 2 * long, Name: "another"})
			if !errors.Is(err, dsync.ErrSessionExists) {
				e.Fatalf("Register of a known id = %v, %v; want ErrSessionExists", now, err)
			}
		}
		m := e.member(id, "is there", func(dsync.Member) bool { return true })
		if m.Name != "" || m.TTL == 2*long {
			e.Errorf("after a Register that was refused: %+v; want it as it was", m)
		}
	}
	e.wantLeft(lives, first, long)
	if left, err := e.store.Bury(e.ctx, lapses); left != 0 || err != nil {
		e.Errorf("Bury of a lapsed session after a Register that was refused = %v, %v; want 0, no error", left, err)
	}
}

func testRegisterFields(e *env) {
	want := dsync.Member{
		ID:   newID() + "_-z9",
		Name: "$$NOW worker-7 {$x: 1} \"é\"",
		TTL:  61234 * time.Millisecond,
		Host: "höst-1.example",
		PID:  4711,
		App:  "$app 1.2.3 \"quoted\" \\ {$now: 1}",
		Meta: map[string]string{"zone": "eu-1", "a.b": "$$NOW", "$c": "", "": "empty", "emoji": "🔒", "long": strings.Repeat("x", 2000)},
	}
	sent := want
	sent.Meta = maps.Clone(want.Meta)
	at, err := e.store.Register(e.ctx, sent)
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	sent.Meta["zone"] = "changed by the caller afterwards"
	got := e.member(want.ID, "is there", func(dsync.Member) bool { return true })
	if got.Name != want.Name || got.TTL != want.TTL || got.Host != want.Host || got.PID != want.PID || got.App != want.App ||
		!maps.Equal(got.Meta, want.Meta) || !got.At.Equal(at) || got.Dead {
		e.Errorf("Members = %+v,\nwant %+v at %v", got, want, at)
	}
}

func testHeartbeatRecordsNow(e *env) {
	id, last := e.sessionTTL(long)
	for range 3 {
		e.until(last.Add(5 * time.Millisecond))
		before := e.now()
		p, err := e.store.Heartbeat(e.ctx, id, nil)
		at, after := p.Now, e.now()
		if err != nil || at.Before(before) || at.After(after) {
			e.Fatalf("Heartbeat = %v, %v; want from %v to %v", at, err, before, after)
		}
		e.member(id, "has the time that Heartbeat returned", func(m dsync.Member) bool { return m.At.Equal(at) && !m.Dead })
		e.wantLeft(id, at, long)
		last = at
	}
}

func testHeartbeatRevivesLapsed(e *env) {
	const ttl = 2 * time.Second
	id, at := e.sessionTTL(ttl)
	e.until(at.Add(ttl))
	p, err := e.store.Heartbeat(e.ctx, id, nil)
	if err != nil {
		e.Fatalf("Heartbeat of a lapsed session that nobody buried: %v", err)
	}
	left, err := e.store.Bury(e.ctx, id)
	if now := e.now(); err != nil || left <= 0 && now.Before(p.Now.Add(ttl)) {
		e.Errorf("Bury after a heartbeat at %v = %v, %v; want it alive at %v", p.Now, left, err, now)
	}
}

func testHeartbeatUnknown(e *env) {
	id := newID()
	for range 2 {
		if _, err := e.store.Heartbeat(e.ctx, id, nil); !errors.Is(err, dsync.ErrSessionDead) {
			e.Fatalf("Heartbeat of an unknown session: error %v, want ErrSessionDead", err)
		}
	}
	// It is unknown, not buried: its registration may be on the way.
	if _, err := e.store.Register(e.ctx, dsync.Member{ID: id, TTL: long}); err != nil {
		e.Errorf("Register after Heartbeat of the unknown session: %v", err)
	}
}

func testMembersLeavesOutUnknown(e *env) {
	m, now, err := e.store.Members(e.ctx, newID())
	if len(m) != 0 || err != nil {
		e.Errorf("Members of an unknown id = %v, %v; want none", m, err)
	}
	if now.IsZero() {
		e.Error("Members of an unknown id: no time of the reading")
	}
	a, b, dead := e.session(), e.session(), e.session()
	e.kill(dead)
	e.member(dead, "is dead", func(m dsync.Member) bool { return m.Dead })
	m, now, err = e.store.Members(e.ctx, b, newID(), dead, a)
	got := make(map[string]bool)
	for _, m := range m {
		got[m.ID] = m.Dead
		if m.At.After(now) {
			e.Errorf("Members: last heartbeat %v after the time of the reading %v", m.At, now)
		}
	}
	if want := map[string]bool{a: false, b: false, dead: true}; err != nil || len(m) != 3 || !maps.Equal(got, want) {
		e.Errorf("Members = %+v, %v; want %v (id: dead) and no others", m, err, want)
	}
}

func testMembersExact(e *env) {
	upper, _ := e.sessionTTL(long)
	lower := strings.ToLower(upper)
	if err := e.store.Unregister(e.ctx, lower); err != nil {
		e.Fatalf("Unregister: %v", err)
	}
	if _, err := e.store.Heartbeat(e.ctx, upper, nil); err != nil {
		e.Errorf("Heartbeat of %s after %s became dead: %v", upper, lower, err)
	}
	if _, err := e.store.Heartbeat(e.ctx, lower, nil); !errors.Is(err, dsync.ErrSessionDead) {
		e.Errorf("Heartbeat of dead %s with %s alive: error %v, want ErrSessionDead", lower, upper, err)
	}
}

// all reads all sessions that live until ok says that the reading, which may be
// stale, is what is wanted.
func (e *env) all(want string, ok func(map[string]dsync.Member) bool) {
	e.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, now, err := e.store.Members(e.ctx)
		if err != nil || now.IsZero() {
			e.Fatalf("Members of no ids: %v, read at %v", err, now)
		}
		got := make(map[string]dsync.Member)
		for _, m := range m {
			if m.Dead || !now.Before(m.At.Add(m.TTL)) {
				e.Fatalf("Members of no ids at %v has %+v, which does not live", now, m)
			}
			got[m.ID] = m
		}
		if len(got) != len(m) || len(m) > 1000 {
			e.Fatalf("Members of no ids has %d sessions, %d of them different; want at most 1,000, each once", len(m), len(got))
		}
		if ok(got) {
			return
		}
		if time.Since(start) > patience {
			e.Fatalf("Members of no ids has %d sessions, but not %s", len(m), want)
		}
	}
}

func testMembersAll(e *env) {
	living := dsync.Member{ID: newID(), Name: "name", TTL: long, Host: "host", PID: 7, App: "app", Meta: map[string]string{"zone": "1"}}
	at, err := e.store.Register(e.ctx, living)
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	other, dead, buried := e.session(), e.session(), newID()
	lapsing, from := e.sessionTTL(short)
	e.all("all that live", func(m map[string]dsync.Member) bool {
		_, ok := m[dead]
		return ok && m[living.ID].ID != "" && m[other].ID != ""
	})
	e.kill(dead)
	if _, err := e.store.Bury(e.ctx, buried); err != nil {
		e.Fatalf("Bury: %v", err)
	}
	e.until(from.Add(short))
	e.all("those alone that live", func(m map[string]dsync.Member) bool {
		for _, id := range []string{dead, buried, lapsing} {
			if _, ok := m[id]; ok {
				return false
			}
		}
		got, ok := m[living.ID]
		if ok && (got.Name != living.Name || got.TTL != long || got.Host != living.Host || got.PID != 7 || got.App != living.App ||
			!maps.Equal(got.Meta, living.Meta) || !got.At.Equal(at)) {
			e.Fatalf("Members of no ids has %+v,\nwant %+v at %v", got, living, at)
		}
		return ok && m[other].ID != ""
	})
}

// A reader is Members or Lives.
type reader func(context.Context, ...string) ([]dsync.Member, time.Time, error)

// reads reads sessions until ok says that the reading, which may be stale, is what is
// wanted.
func (e *env) reads(name string, read reader, ids []string, want string, ok func([]dsync.Member) bool) {
	e.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, now, err := read(e.ctx, ids...)
		switch {
		case err != nil || now.IsZero():
			e.Fatalf("%s of %d ids: %v, read at %v", name, len(ids), err, now)
		case ok(m):
			return
		case time.Since(start) > patience:
			e.Fatalf("%s of %d ids has %d sessions, want %s", name, len(ids), len(m), want)
		}
	}
}

func testLives(e *env) {
	lives, at := e.sessionTTL(long)
	lapsed, _ := e.sessionTTL(short)
	dead, buried := e.session(), newID()
	e.kill(dead)
	if _, err := e.store.Bury(e.ctx, buried); err != nil {
		e.Fatalf("Bury: %v", err)
	}
	e.until(at.Add(short + time.Millisecond))
	p, err := e.store.Heartbeat(e.ctx, lives, nil)
	if err != nil {
		e.Fatalf("Heartbeat: %v", err)
	}
	ids := []string{buried, newID(), lapsed, dead, lives}
	e.reads("Lives", e.store.Lives, ids, "those that are known, with what Members says", func(m []dsync.Member) bool {
		full, _, err := e.store.Members(e.ctx, ids...)
		if err != nil {
			e.Fatalf("Members: %v", err)
		}
		want := make(map[string]dsync.Member)
		for _, f := range full {
			want[f.ID] = f
		}
		for _, got := range m {
			f, ok := want[got.ID]
			if !ok || got.TTL != f.TTL || !got.At.Equal(f.At) || got.Dead != f.Dead {
				return false
			}
			delete(want, got.ID)
		}
		return len(m) == 4 && len(want) == 0
	})
	e.reads("Lives", e.store.Lives, []string{lives}, "its last heartbeat, alive", func(m []dsync.Member) bool {
		return len(m) == 1 && m[0].At.Equal(p.Now) && m[0].TTL == long && !m[0].Dead
	})
	e.reads("Lives", e.store.Lives, []string{dead}, "it dead", func(m []dsync.Member) bool { return len(m) == 1 && m[0].Dead })
	e.reads("Lives", e.store.Lives, nil, "none", func(m []dsync.Member) bool { return len(m) == 0 })
}

func testLivesSlim(e *env) {
	full := dsync.Member{ID: newID(), Name: "name", TTL: long, Host: "host", PID: 7, App: "app", Meta: map[string]string{"zone": "1"}}
	if _, err := e.store.Register(e.ctx, full); err != nil {
		e.Fatalf("Register: %v", err)
	}
	e.reads("Lives", e.store.Lives, []string{full.ID}, "it without what people read", func(m []dsync.Member) bool {
		return len(m) == 1 && m[0].ID == full.ID && m[0].Name == "" && m[0].Host == "" && m[0].PID == 0 && m[0].App == "" && m[0].Meta == nil
	})
}

// testMembersMost is one of sweepCases, which run alone: sessions of other cases
// would be among those left out.
func testMembersMost(e *env) {
	const n, workers = 1010, 16
	ids := make([]string, n)
	for i := range ids {
		ids[i] = newID()
	}
	each := func(do func(id string) error) {
		e.Helper()
		errs := make([]error, workers)
		together(workers, func(w int) {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(ids[i])
			}
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("one of %d sessions: %v", n, err)
		}
	}
	each(func(id string) error {
		_, err := e.store.Register(e.ctx, dsync.Member{ID: id, TTL: long})
		return err
	})
	e.all("1,000 of them", func(m map[string]dsync.Member) bool { return len(m) == 1000 })
	for name, read := range map[string]reader{"Members": e.store.Members, "Lives": e.store.Lives} {
		e.reads(name, read, ids[:1000], "all", func(m []dsync.Member) bool { return len(m) == 1000 })
	}
	key := newID()
	each(func(id string) error { return e.store.Observe(e.ctx, id, 1, []string{key}) })
	slices.Sort(ids)
	for _, most := range []int{1000, n, 1_000_000} {
		first := e.observersPage(key, "", most)
		if rest := e.observersPage(key, ids[999], most); !slices.Equal(first, ids[:1000]) || !slices.Equal(rest, ids[1000:]) {
			e.Fatalf("Observers(%d) of %d: %d, and %d behind these; want 1,000 and the rest", most, n, len(first), len(rest))
		}
	}
	each(func(id string) error { return e.store.Unregister(e.ctx, id) })
	e.all("fewer again", func(m map[string]dsync.Member) bool { return len(m) < 1000 })
}
