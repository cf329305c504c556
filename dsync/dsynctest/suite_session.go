package dsynctest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// memberCases test Register, Heartbeat, Members and Liveness.
func memberCases() []conformanceCase {
	return []conformanceCase{
		{name: "Register/IgnoresLastHeartbeatAndExpired", test: testRegisterIgnoresAtAndDead},
		{name: "Register/EveryFieldIsReadBack", test: testRegisterFields},
		{name: "Members/LeavesOutUnknown", test: testMembersLeavesOutUnknown},
		{name: "Members/WithoutIDsAreTheLiving", test: testMembersAll},
		{name: "Liveness/HasLastHeartbeatTTLAndExpired", test: testLives},
		{name: "Liveness/HasNothingElse", test: testLivesSlim},
	}
}

// wantLeft checks that Expire returns the time left until the session lapses.
func (e *env) wantLeft(session string, at time.Time, ttl time.Duration) {
	e.Helper()
	before := e.now()
	left, err := e.store.Expire(e.ctx, session, false)
	after := e.now()
	most, least := at.Add(ttl).Sub(before), at.Add(ttl).Sub(after)
	if err != nil || left > most || left < least {
		e.Errorf("Expire of a living session = %v, %v; want from %v to %v", left, err, least, most)
	}
}

func testRegisterIgnoresAtAndDead(e *env) {
	id := newID()
	at, err := e.store.Register(e.ctx, driver.Member{ID: id, TTL: long, LastHeartbeat: e.now().Add(-24 * time.Hour), Expired: true})
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	m := e.member(id, "is there", func(driver.Member) bool { return true })
	if !m.LastHeartbeat.Equal(at) || m.Expired {
		e.Errorf("Members: at %v, expired %t; want %v, false", m.LastHeartbeat, m.Expired, at)
	}
	e.wantLeft(id, at, long)
}

func testRegisterFields(e *env) {
	want := driver.Member{
		ID:       newID() + "_-z9",
		Name:     "$$NOW worker-7 {$x: 1} \"é\"",
		TTL:      61234 * time.Millisecond,
		Host:     "höst-1.example",
		PID:      4711,
		App:      "$app 1.2.3 \"quoted\" \\ {$now: 1}",
		Meta:     map[string]string{"zone": "eu-1", "a.b": "$$NOW", "$c": "", "": "empty", "emoji": "🔒", "long": strings.Repeat("x", 2000)},
		Settings: driver.Settings{Version: "v1.2.3-$x", Heartbeat: 7 * time.Second, Poll: 40 * time.Millisecond, Margin: 1500 * time.Millisecond, Grace: 9 * time.Second},
		HostFile: "0123456789abcdef-Z_9",
	}
	sent := want
	sent.Meta = maps.Clone(want.Meta)
	at, err := e.store.Register(e.ctx, sent)
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	sent.Meta["zone"] = "changed by the caller afterwards"
	got := e.member(want.ID, "is there", func(driver.Member) bool { return true })
	if !isMember(got, want, at) {
		e.Errorf("Members = %+v,\nwant %+v at %v", got, want, at)
	}
}

// isMember reports whether got is alive, was registered with want's fields, and has the given last heartbeat.
func isMember(got, want driver.Member, at time.Time) bool {
	return got.ID == want.ID && got.Name == want.Name && got.TTL == want.TTL && got.Host == want.Host && got.PID == want.PID && got.App == want.App &&
		got.Settings == want.Settings && got.HostFile == want.HostFile && maps.Equal(got.Meta, want.Meta) && got.LastHeartbeat.Equal(at) && !got.Expired
}

func testMembersLeavesOutUnknown(e *env) {
	m, now, err := storecmd.Members(e.ctx, e.store, newID())
	if len(m) != 0 || err != nil {
		e.Errorf("Members of an unknown id = %v, %v; want none", m, err)
	}
	if now.IsZero() {
		e.Error("Members of an unknown id did not return the store's time")
	}
	a, b, expired := e.session(), e.session(), e.session()
	e.expire(expired)
	e.member(expired, "has expired", func(m driver.Member) bool { return m.Expired })
	m, now, err = storecmd.Members(e.ctx, e.store, b, newID(), expired, a)
	got := make(map[string]bool)
	for _, m := range m {
		got[m.ID] = m.Expired
		if m.LastHeartbeat.After(now) {
			e.Errorf("Members: last heartbeat %v after the time of the reading %v", m.LastHeartbeat, now)
		}
	}
	if want := map[string]bool{a: false, b: false, expired: true}; err != nil || len(m) != 3 || !maps.Equal(got, want) {
		e.Errorf("Members = %+v, %v; want %v (id: expired) and no others", m, err, want)
	}
}

// all reads all live sessions. A reading may be stale, so all repeats it until ok accepts the sessions.
func (e *env) all(want string, ok func(map[string]driver.Member) bool) {
	e.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, now, err := storecmd.Members(e.ctx, e.store)
		if err != nil || now.IsZero() {
			e.Fatalf("Members of no ids: %v, read at %v", err, now)
		}
		got := make(map[string]driver.Member)
		for _, m := range m {
			if m.Expired || !now.Before(m.LastHeartbeat.Add(m.TTL)) {
				e.Fatalf("Members of no ids at %v has %+v, which is not alive", now, m)
			}
			got[m.ID] = m
		}
		if len(got) != len(m) || len(m) > 1000 {
			e.Fatalf("Members of no ids has %d sessions, %d of them different; want at most 1,000, each once", len(m), len(got))
		}
		if !slices.IsSortedFunc(m, func(a, b driver.Member) int { return strings.Compare(a.ID, b.ID) }) {
			e.Fatalf("Members of no ids has %+v; want them in the order of their ids", m)
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
	living := driver.Member{ID: newID(), Name: "name", TTL: long, Host: "host", PID: 7, App: "app", Meta: map[string]string{"zone": "1"}}
	at, err := e.store.Register(e.ctx, living)
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	other, expired, unknown := e.session(), e.session(), newID()
	lapsing, from := e.sessionTTL(short)
	e.all("all live sessions", func(m map[string]driver.Member) bool {
		_, ok := m[expired]
		return ok && m[living.ID].ID != "" && m[other].ID != ""
	})
	e.expire(expired)
	if _, err := e.store.Expire(e.ctx, unknown, false); err != nil {
		e.Fatalf("Expire: %v", err)
	}
	e.until(from.Add(short))
	e.all("only the live sessions", func(m map[string]driver.Member) bool {
		for _, id := range []string{expired, unknown, lapsing} {
			if _, ok := m[id]; ok {
				return false
			}
		}
		got, ok := m[living.ID]
		if ok && !isMember(got, living, at) {
			e.Fatalf("Members of no ids has %+v,\nwant %+v at %v", got, living, at)
		}
		return ok && m[other].ID != ""
	})
}

// A reader reads sessions, either with all fields or only their liveness.
type reader func(context.Context, driver.Store, ...string) ([]driver.Member, time.Time, error)

// reads calls read until ok accepts the sessions, because a reading may be stale.
func (e *env) reads(name string, read reader, ids []string, want string, ok func([]driver.Member) bool) {
	e.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, now, err := read(e.ctx, e.store, ids...)
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
	expired, unknown := e.session(), newID()
	e.expire(expired)
	if _, err := e.store.Expire(e.ctx, unknown, false); err != nil {
		e.Fatalf("Expire: %v", err)
	}
	e.until(at.Add(short + time.Millisecond))
	p, err := e.store.Heartbeat(e.ctx, lives, nil)
	if err != nil {
		e.Fatalf("Heartbeat: %v", err)
	}
	ids := []string{unknown, newID(), lapsed, expired, lives}
	e.reads("Liveness", storecmd.Liveness, ids, "those that are known, with what Members says", func(m []driver.Member) bool {
		full, _, err := storecmd.Members(e.ctx, e.store, ids...)
		if err != nil {
			e.Fatalf("Members: %v", err)
		}
		want := make(map[string]driver.Member)
		for _, f := range full {
			want[f.ID] = f
		}
		for _, got := range m {
			f, ok := want[got.ID]
			if !ok || got.TTL != f.TTL || !got.LastHeartbeat.Equal(f.LastHeartbeat) || got.Expired != f.Expired {
				return false
			}
			delete(want, got.ID)
		}
		return len(m) == 4 && len(want) == 0
	})
	e.reads("Liveness", storecmd.Liveness, []string{lives}, "its last heartbeat, alive", func(m []driver.Member) bool {
		return len(m) == 1 && m[0].LastHeartbeat.Equal(p.Now) && m[0].TTL == long && !m[0].Expired
	})
	e.reads("Liveness", storecmd.Liveness, []string{expired}, "that it has expired", func(m []driver.Member) bool { return len(m) == 1 && m[0].Expired })
}

func testLivesSlim(e *env) {
	full := driver.Member{
		ID: newID(), Name: "name", TTL: long, Host: "host", PID: 7, App: "app", Meta: map[string]string{"zone": "1"},
		Settings: driver.Settings{Version: "v1", Heartbeat: time.Second}, HostFile: "file",
	}
	if _, err := e.store.Register(e.ctx, full); err != nil {
		e.Fatalf("Register: %v", err)
	}
	e.reads("Liveness", storecmd.Liveness, []string{full.ID}, "it without the fields for display", func(m []driver.Member) bool {
		return len(m) == 1 && m[0].ID == full.ID && m[0].Name == "" && m[0].Host == "" && m[0].PID == 0 && m[0].App == "" && m[0].Meta == nil && m[0].Settings == driver.Settings{} && m[0].HostFile == ""
	})
}

// testMembersMost is one of sweepCases, because those run alone. Otherwise Members would return sessions of other
// cases instead of the sessions of this one.
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
		_, err := e.store.Register(e.ctx, driver.Member{ID: id, TTL: long})
		return err
	})
	e.all("1,000 of them", func(m map[string]driver.Member) bool { return len(m) == 1000 })
	for name, read := range map[string]reader{"Members": storecmd.Members, "Liveness": storecmd.Liveness} {
		e.reads(name, read, ids[:1000], "all", func(m []driver.Member) bool { return len(m) == 1000 })
	}
	slices.Sort(ids)
	e.pages(ids)
	key := newID()
	each(func(id string) error { return e.store.Observe(e.ctx, id, 1, []string{key}) })
	e.pages(ids)
	for _, most := range []int{1000, n, 1_000_000} {
		first := e.observersPage(key, "", most)
		if rest := e.observersPage(key, ids[999], most); !slices.Equal(first, ids[:1000]) || !slices.Equal(rest, ids[1000:]) {
			e.Fatalf("Observers(%d) of %d: %d, and %d after these; want 1,000 and the rest", most, n, len(first), len(rest))
		}
	}
	each(func(id string) error { return storecmd.Unregister(e.ctx, e.store, id) })
	e.all("fewer again", func(m map[string]driver.Member) bool { return len(m) < 1000 })
}

// pages reads all sessions, page by page. A reading may be stale, so pages repeats it until it has found all ids.
func (e *env) pages(ids []string) {
	e.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		all := e.observersPage("", "", 1_000_000)
		for page := all; len(page) == 1000; {
			page = e.observersPage("", page[999], 1000)
			all = append(all, page...)
		}
		missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			_, found := slices.BinarySearch(all, id)
			return found
		})
		if len(missing) == 0 {
			return
		}
		if time.Since(start) > patience {
			e.Fatalf("Observers of no key returned %d sessions in all, but lacks %d that are alive: %q", len(all), len(missing), missing)
		}
	}
}

// expireCases test how sessions expire.
func expireCases() []conformanceCase {
	return []conformanceCase{
		{name: "Expire/NotBeforeItLapses", test: testExpireNotBefore},
	}
}

// testExpireNotBefore calls Expire until the session has expired. The session must expire when its TTL ends, no earlier
// and no later.
func testExpireNotBefore(e *env) {
	id, at := e.sessionTTL(short)
	end := at.Add(short)
	for {
		before := e.now()
		left, err := e.store.Expire(e.ctx, id, false)
		after := e.now()
		switch {
		case err != nil:
			e.Fatalf("Expire: %v", err)
		case left < 0 || left > short:
			e.Fatalf("Expire = %v, want from 0 to the TTL %v", left, short)
		case left == 0 && after.Before(end):
			e.Fatalf("the session had expired by %v, before the end of its TTL at %v", after, end)
		case left > 0 && !before.Before(end):
			e.Fatalf("the session has %v left at %v, although its TTL ended at %v", left, before, end)
		case left == 0:
			return
		}
		time.Sleep(min(left, 20*time.Millisecond))
	}
}

// expiredCases test what an Acquire does to the claims of the sessions in Acquire.Expired.
func expiredCases() []conformanceCase {
	return []conformanceCase{
		{name: "Expired/FixedLeaseStaysUntilItsEnd", test: testExpiredFixedLease},
	}
}

func testExpiredFixedLease(e *env) {
	key, a := newID(), e.session()
	holder, waiter := e.leased(key, a, 2*short), e.claim(key, e.session())
	h := e.hold(holder)
	e.expire(a)
	e.wantLapse(waiter, h, a)
}

// wantLapse repeats an Acquire of c, which names the expired sessions, until c is granted. It checks that this
// happens as soon as the hold h ends, and no earlier.
func (e *env) wantLapse(c driver.Claim, h driver.Holder, expired ...string) {
	e.Helper()
	for {
		s := e.acquire(c, expired...)
		got, ok := s.Holder(c.ID)
		if ok && got.Since.Before(h.Until) {
			e.Fatalf("granted at %v, before the end %v of the hold before it", got.Since, h.Until)
		}
		if ok {
			e.wantHolders(s, c)
			return
		}
		left := h.Until.Sub(s.Now)
		if left <= 0 {
			e.Fatalf("not granted at %v, the end of the hold was %v: %+v", s.Now, h.Until, s)
		}
		time.Sleep(min(left, 50*time.Millisecond))
	}
}
