package dsynctest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// observeCases test Observe, Observers and Line.
func observeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Observe/IsFoundByEachKey", test: testObserveFound},
		{name: "Observe/ReplacesTheListBefore", test: testObserveReplaces},
		{name: "Observe/LateOlderOneChangesNothing", test: testObserveLate},
		{name: "Observe/StaysWithItsSession", test: testObserveStays},
		{name: "Observe/IsNoHeartbeat", test: testObserveIsNoHeartbeat},
		{name: "Observe/DeadOrUnknown", test: testObserveDead},
		{name: "Observers/ComparesKeysExactly", test: testObserversExact},
		{name: "Observers/AreTheLiving", test: testObserversLive},
		{name: "Observers/HaveEveryField", test: testObserversFields},
		{name: "Observers/AfterAndUpToN", test: testObserversPages},
		{name: "Line/HasAllInTheirOrder", test: testLineAll},
	}
}

// observe is an Observe without an error.
func (e *env) observe(session string, seq int64, keys ...string) {
	e.Helper()
	if err := e.store.Observe(e.ctx, session, seq, keys); err != nil {
		e.Fatalf("Observe(%s, %d, %q): %v", session, seq, keys, err)
	}
}

// observers is Observers without an error, up to 1,000.
func (e *env) observers(key string) []string {
	e.Helper()
	return e.observersPage(key, "", 1000)
}

func (e *env) observersPage(key, after string, n int) []string {
	e.Helper()
	members, err := e.store.Observers(e.ctx, key, after, n)
	if err != nil {
		e.Fatalf("Observers(%q, %q, %d): %v", key, after, n, err)
	}
	ids := []string{}
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	if !slices.IsSorted(ids) || len(ids) > min(n, 1000) {
		e.Fatalf("Observers(%q, %q, %d) = %q; want as many at the most, in the order of their bytes", key, after, n, ids)
	}
	return ids
}

// wantObservers reads until the sessions are those that observe key: the reading may
// be stale.
func (e *env) wantObservers(key string, want ...string) {
	e.Helper()
	slices.Sort(want)
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got := e.observers(key)
		if slices.Equal(got, want) {
			return
		}
		if time.Since(start) > patience {
			e.Fatalf("Observers(%q) = %q, want %q", key, got, want)
		}
	}
}

func testObserveFound(e *env) {
	a, b, c := e.session(), e.session(), e.session()
	first, second := newID(), newID()
	e.wantObservers(first)
	keys := []string{first, second}
	e.observe(a, 1, keys...)
	keys[0] = "changed by the caller afterwards"
	e.observe(b, 1, second)
	e.hold(e.claim(first, c)) // holds it, and does not observe it
	e.wantObservers(first, a)
	e.wantObservers(second, a, b)
	e.observe(a, 1, first, second) // again
	e.wantObservers(second, a, b)
}

func testObserveReplaces(e *env) {
	a, b := e.session(), e.session()
	first, second := newID(), newID()
	e.observe(a, 1, first)
	e.observe(b, 1, first)
	e.wantObservers(first, a, b)
	e.observe(a, 2, second)
	e.wantObservers(first, b)
	e.wantObservers(second, a)
	e.observe(a, 5)
	e.wantObservers(second)
	e.observe(a, 6, first)
	e.wantObservers(first, a, b)
}

func testObserveLate(e *env) {
	a, first, second := e.session(), newID(), newID()
	e.observe(a, 7, first)
	e.observe(a, 9)
	for _, seq := range []int64{8, 7, 1} {
		e.observe(a, seq, first, second)
	}
	e.wantObservers(first)
	e.observe(a, 10, second)
	e.observe(a, 9)
	e.wantObservers(second, a)
	e.wantObservers(first)
}

func testObserveStays(e *env) {
	a, other, key := e.session(), e.session(), newID()
	e.observe(a, 1, key)
	r := dsync.Revocation{Key: key, Claim: a + ".1"}
	if err := e.store.Revoke(e.ctx, a, r); err != nil {
		e.Fatalf("Revoke: %v", err)
	}
	e.observe(a, 2, key, newID())
	if p, err := e.store.Heartbeat(e.ctx, a, nil); err != nil || !slices.Equal(p.Revoked, []dsync.Revocation{r}) {
		e.Errorf("Heartbeat after Observe = %v, %v; want the revocation that stands", p.Revoked, err)
	}
	e.wantObservers(key, a)
	if p, err := e.store.Heartbeat(e.ctx, a, []dsync.Revocation{r}); err != nil || len(p.Revoked) > 0 {
		e.Errorf("Heartbeat that takes it off = %v, %v; want none", p.Revoked, err)
	}
	e.wantObservers(key, a)
	if _, err := e.store.Bury(e.ctx, a); err != nil { // it lives
		e.Fatalf("Bury: %v", err)
	}
	e.kill(other)
	e.wantObservers(key, a)
}

func testObserveIsNoHeartbeat(e *env) {
	a, at := e.sessionTTL(long)
	key := newID()
	e.until(at.Add(5 * time.Millisecond))
	e.observe(a, 1, key)
	e.wantObservers(key, a)
	e.member(a, "has the time of its last heartbeat", func(m dsync.Member) bool { return m.At.Equal(at) })
	e.wantLeft(a, at, long)
}

func testObserveDead(e *env) {
	dead, unknown, key := e.session(), newID(), newID()
	e.observe(dead, 1, key)
	e.kill(dead)
	for _, id := range []string{dead, unknown} {
		if err := e.store.Observe(e.ctx, id, 2, []string{key}); !errors.Is(err, dsync.ErrSessionDead) {
			e.Errorf("Observe of a dead or unknown session: error %v, want ErrSessionDead", err)
		}
	}
	e.wantObservers(key)
	if m, _, err := e.store.Members(e.ctx, unknown); err != nil || len(m) > 0 {
		e.Errorf("Observe made a session of an unknown one: %+v, %v", m, err)
	}
}

func testObserversExact(e *env) {
	base, a := "k"+newID(), e.session()
	keys := []string{base, strings.ToLower(base), base + "x", base[:len(base)-1]}
	for _, special := range specials() {
		keys = append(keys, base+special+"\u2603", special+base)
	}
	e.observe(a, 1, keys...)
	seq := int64(1)
	for i, key := range keys {
		e.wantObservers(key, a)
		e.observe(a, seq+1, slices.Delete(slices.Clone(keys), i, i+1)...) // all others
		e.wantObservers(key)
		seq += 2
		e.observe(a, seq, keys...)
	}
}

func testObserversLive(e *env) {
	key := newID()
	living, dead, buried := e.session(), e.session(), newID()
	lapsing, from := e.sessionTTL(short)
	e.observe(living, 1, key)
	e.observe(dead, 1, key)
	e.observe(lapsing, 1, key)
	e.kill(dead)
	if _, err := e.store.Bury(e.ctx, buried); err != nil {
		e.Fatalf("Bury: %v", err)
	}
	e.until(from.Add(short))
	e.wantObservers(key, living)
	if _, err := e.store.Heartbeat(e.ctx, lapsing, nil); err != nil {
		e.Fatalf("Heartbeat of a lapsed session that nobody buried: %v", err)
	}
	p, err := e.store.Observers(e.ctx, key, "", 1000)
	if now := e.now(); err != nil || len(p) != 2 && now.Before(from.Add(2*short)) {
		e.Errorf("Observers with one that lapsed and lives again: %+v, %v; want both", p, err)
	}
}

func testObserversFields(e *env) {
	key := newID()
	want := dsync.Member{
		ID: newID(), Name: "$$NOW worker", TTL: 61234 * time.Millisecond, Host: "höst", PID: 4711, App: "$app",
		Meta: map[string]string{"zone": "eu-1", "$c": "", "a.b": "x"},
	}
	at, err := e.store.Register(e.ctx, want)
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	e.observe(want.ID, 1, key)
	e.wantObservers(key, want.ID)
	found, err := e.store.Observers(e.ctx, key, "", 1)
	if err != nil || len(found) != 1 {
		e.Fatalf("Observers: %+v, %v; want one", found, err)
	}
	got := found[0]
	if got.ID != want.ID || got.Name != want.Name || got.TTL != want.TTL || got.Host != want.Host || got.PID != want.PID ||
		got.App != want.App || !maps.Equal(got.Meta, want.Meta) || !got.At.Equal(at) || got.Dead {
		e.Errorf("Observers = %+v,\nwant %+v at %v", got, want, at)
	}
}

func testObserversPages(e *env) {
	key := newID()
	var ids []string
	for range 7 {
		id := e.session()
		e.observe(id, 1, newID(), key)
		e.observe(e.session(), 1, newID()) // another key, between them
		ids = append(ids, id)
	}
	slices.Sort(ids)
	e.wantObservers(key, ids...)
	for n := range 9 {
		for from := range len(ids) + 1 {
			after := ""
			if from > 0 {
				after = ids[from-1]
			}
			if got, want := e.observersPage(key, after, n), ids[from:min(from+n, len(ids))]; !slices.Equal(got, want) {
				e.Fatalf("Observers(after %q, %d) = %q, want %q", after, n, got, want)
			}
		}
	}
	if got := e.observersPage(key, "\U0010ffff", 9); len(got) > 0 {
		e.Errorf("Observers behind all ids = %q", got)
	}
}

func testLineAll(e *env) {
	key, holder := newID(), e.claim(newID(), e.session())
	holder.Key = key
	want := []dsync.Waiter{}
	check := func() {
		e.Helper()
		got, err := e.store.Line(e.ctx, key)
		if err != nil || !slices.Equal(got, want) {
			e.Fatalf("Line = %+v, %v;\nwant %+v", got, err, want)
		}
	}
	check() // of a key without a record
	e.hold(holder)
	check()
	for i := range 12 {
		c := e.claim(key, e.session())
		if i == 5 {
			c.Lease = long
		}
		e.queue(c)
		want = append(want, dsync.Waiter{Claim: c.ID, Session: c.Session, Weight: c.Weight})
	}
	first := e.claim(key, e.session())
	first.First = true
	e.acquire(first)
	want = slices.Insert(want, 0, dsync.Waiter{Claim: first.ID, Session: first.Session, Weight: 1})
	check()
	e.release(holder)
	want = want[1:]
	check()
}
