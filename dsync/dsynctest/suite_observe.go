package dsynctest

import (
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// observeCases test Observe, Sessions with Observing, and Load of a whole queue.
func observeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Observers/ComparesKeysExactly", test: testObserversExact},
		{name: "Observers/AreTheLiving", test: testObserversLive},
		{name: "Observers/HaveEveryField", test: testObserversFields},
		{name: "Observers/AfterAndUpToN", test: testObserversPages},
		{name: "Queue/HasAllInTheirOrder", test: testQueueAll},
	}
}

// observe calls Observe, which must not fail.
func (e *env) observe(session string, seq int64, keys ...string) {
	e.Helper()
	if err := e.store.Observe(e.ctx, session, seq, keys); err != nil {
		e.Fatalf("Observe(%s, %d, %q): %v", session, seq, keys, err)
	}
}

// observers returns the ids of up to 1,000 observers of a key. The reading must not fail.
func (e *env) observers(key string) []string {
	e.Helper()
	return e.observersPage(key, "", 1000)
}

func (e *env) observersPage(key, after string, n int) []string {
	e.Helper()
	members, err := storecmd.Observers(e.ctx, e.store, key, after, n)
	if err != nil {
		e.Fatalf("Observers(%q, %q, %d): %v", key, after, n, err)
	}
	ids := []string{}
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	if !slices.IsSorted(ids) || len(ids) > min(n, 1000) {
		e.Fatalf("Observers(%q, %q, %d) = %q; want at most as many, in byte order", key, after, n, ids)
	}
	return ids
}

// wantObservers checks the observers of a key. It reads them until they match, because a reading may be stale.
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
		e.observe(a, seq+1, slices.Delete(slices.Clone(keys), i, i+1)...) // all keys but this one
		e.wantObservers(key)
		seq += 2
		e.observe(a, seq, keys...)
	}
}

func testObserversLive(e *env) {
	key := newID()
	living, expired, unknown := e.session(), e.session(), newID()
	lapsing, from := e.sessionTTL(short)
	e.observe(living, 1, key)
	e.observe(expired, 1, key)
	e.observe(lapsing, 1, key)
	e.expire(expired)
	if _, err := e.store.Expire(e.ctx, unknown, false); err != nil {
		e.Fatalf("Expire: %v", err)
	}
	e.until(from.Add(short))
	e.wantObservers(key, living)
	if _, err := e.store.Heartbeat(e.ctx, lapsing, nil); err != nil {
		e.Fatalf("Heartbeat of a lapsed session that nobody expired: %v", err)
	}
	p, err := storecmd.Observers(e.ctx, e.store, key, "", 1000)
	if now := e.now(); err != nil || len(p) != 2 && now.Before(from.Add(2*short)) {
		e.Errorf("Observers with a lapsed session that is alive again: %+v, %v; want both", p, err)
	}
}

func testObserversFields(e *env) {
	key := newID()
	want := driver.Member{
		ID: newID(), Name: "$$NOW worker", TTL: 61234 * time.Millisecond, Host: "höst", PID: 4711, App: "$app",
		Meta:     map[string]string{"zone": "eu-1", "$c": "", "a.b": "x"},
		Settings: driver.Settings{Version: "v1.2.3-$x", Heartbeat: 7 * time.Second, Poll: 40 * time.Millisecond, Margin: 1500 * time.Millisecond, Grace: 9 * time.Second},
		HostFile: "0123456789abcdef-Z_9",
	}
	at, err := e.store.Register(e.ctx, want)
	if err != nil {
		e.Fatalf("Register: %v", err)
	}
	e.observe(want.ID, 1, key)
	e.wantObservers(key, want.ID)
	found, err := storecmd.Observers(e.ctx, e.store, key, "", 1)
	if err != nil || len(found) != 1 {
		e.Fatalf("Observers: %+v, %v; want one", found, err)
	}
	if got := found[0]; !isMember(got, want, at) {
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
	for n := 1; n < 9; n++ {
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
		e.Errorf("Observers after all ids = %q", got)
	}
}

func testQueueAll(e *env) {
	key, holder := newID(), e.claim(newID(), e.session())
	holder.Key = key
	want := []driver.Waiter{}
	check := func() {
		e.Helper()
		got, err := storecmd.Queue(e.ctx, e.store, key)
		if err != nil || !slices.Equal(got, want) {
			e.Fatalf("Queue = %+v, %v;\nwant %+v", got, err, want)
		}
	}
	check() // a key without a record
	e.hold(holder)
	check()
	for i := range 12 {
		c := e.claim(key, e.session())
		if i == 5 {
			c.Lease = long
		}
		e.queue(c)
		want = append(want, driver.Waiter{Claim: c.ID, Session: c.Session, Weight: c.Weight})
	}
	first := e.claim(key, e.session())
	first.First = true
	e.acquire(first)
	want = slices.Insert(want, 0, driver.Waiter{Claim: first.ID, Session: first.Session, Weight: 1})
	check()
	e.release(holder)
	want = want[1:]
	check()
}

// changeCases test the notices for the observers of a key.
func changeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Notice/ChangesOnlyOfObservedKeys", test: testChangeOnly},
		{name: "Notice/ChangeOfAKeyThatSeveralObserve", test: testChangeSeveral},
	}
}

// testChangeOnly uses keys that nobody observes, with nearly the same names as an observed key. After each command,
// env.noticed checks that every NoticeChange is about an observed key.
func testChangeOnly(e *env) {
	key, session := newID(), e.session()
	l := e.hears(key)
	if l == nil {
		return
	}
	e.observe(session, 1, key+"1") // Observe alone must not cause notices
	for _, other := range []string{key + "1", key[1:], strings.ToLower(key), "k/" + key, session, "s/" + session, l.session, newID()} {
		c, waiter := e.claim(other, session), e.claim(other, session)
		e.hold(c)
		e.publish(c, []byte(key))
		e.queue(waiter)
		e.release(waiter)
		e.resize(other, 1, 2)
		e.release(c)
		c = e.claim(other, session)
		e.hold(c)
		e.seal(c, []byte(key), true)
	}
}

// testChangeSeveral starts several listeners for a key, and ends them one after the other.
func testChangeSeveral(e *env) {
	key, session := newID(), e.session()
	var listeners []*listener
	for i := range 3 {
		l := e.listen([]string{"", session, newID()}[i], key, newID())
		if l == nil {
			return
		}
		listeners = append(listeners, l)
	}
	for len(listeners) > 0 {
		c := e.claim(key, session)
		e.hold(c)
		e.wantNotices(change(key))
		for _, l := range listeners {
			before := l.changes(key)
			e.send()
			if !l.wait(func([]driver.Notice) bool { return l.changes(key) > before }) {
				e.Fatalf("a change of key %q was sent but not received; received %+v", key, l.heard())
			}
		}
		e.release(c)
		e.wantNotices(change(key))
		listeners[0].cancel()
		<-listeners[0].done
		listeners = listeners[1:]
	}
}

// changes returns how many NoticeChanges of a key have been received so far.
func (l *listener) changes(key string) (n int) {
	for _, heard := range l.heard() {
		if heard.Type == driver.NoticeChange && heard.Key == key {
			n++
		}
	}
	return n
}

// testSweepObserved is one of sweepCases. It sweeps observed keys that have long been idle.
func testSweepObserved(e *env) {
	session := e.session()
	key, _ := e.used(session)
	e.until(e.now().Add(3 * short))
	l := e.hears(key, newID())
	if l == nil {
		return
	}
	e.sweep(2 * short)
	e.hold(e.claim(key, session))
	e.wantNotices(change(key))
	l.wantHeard(e.send()...)
}
