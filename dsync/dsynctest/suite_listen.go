package dsynctest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A listener runs one Listen and keeps the notices that it receives.
type listener struct {
	e       *env
	session string
	cancel  context.CancelFunc
	done    chan struct{} // closed when Listen has returned err
	err     error
	more    chan struct{} // has a token if notices have arrived since the last token was taken

	mu      sync.Mutex
	notices []driver.Notice
}

// listen starts a Listen and waits for its first notice. It returns nil if the
// store can't notify.
func (e *env) listen(session string, keys ...string) *listener {
	e.Helper()
	for _, key := range keys {
		e.observed[key] = true
	}
	ctx, cancel := context.WithCancel(e.ctx)
	l := &listener{e: e, session: session, cancel: cancel, done: make(chan struct{}), more: make(chan struct{}, 1)}
	e.wg.Go(func() {
		defer close(l.done)
		l.err = e.store.Listen(ctx, session, keys, l.add)
	})
	if l.wait(func([]driver.Notice) bool { return true }) {
		if first := l.heard()[0]; first != (driver.Notice{Type: driver.NoticeReady}) {
			e.Errorf("the first notice is %+v, want NoticeReady", first)
		}
		return l
	}
	select {
	case <-l.done:
		if errors.Is(l.err, errors.ErrUnsupported) {
			return nil
		}
		e.Fatalf("Listen: %v, before its first notice", l.err)
	default:
		e.Fatalf("Listen: no notice within %v", patience)
	}
	return nil
}

// hears calls listen for a new session.
func (e *env) hears(keys ...string) *listener {
	e.Helper()
	return e.listen(e.session(), keys...)
}

func (l *listener) add(n driver.Notice) {
	l.mu.Lock()
	l.notices = append(l.notices, n)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// heard returns the notices received so far.
func (l *listener) heard() []driver.Notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notices[:len(l.notices):len(l.notices)]
}

// wait waits until notices have been received and ok returns true for them. It returns false if the Listen ends or
// patience runs out first.
func (l *listener) wait(ok func([]driver.Notice) bool) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		if heard := l.heard(); len(heard) > 0 && ok(heard) {
			return true
		}
		select {
		case <-l.more:
		case <-l.done:
			heard := l.heard()
			return len(heard) > 0 && ok(heard)
		case <-timeout.C:
			return false
		}
	}
}

// wantHeard waits until the given notices have been received, unchanged except for their addresses.
func (l *listener) wantHeard(want ...driver.Notice) {
	l.e.Helper()
	for _, n := range want {
		if !l.wait(func(heard []driver.Notice) bool { return contains(heard, n) }) {
			l.e.Fatalf("notice %+v was sent but not received; received %+v", n, l.heard())
		}
	}
}

// wantOnly checks that no notices other than these arrive, apart from NoticeReady.
func (l *listener) wantOnly(want ...driver.Notice) {
	l.e.Helper()
	time.Sleep(20 * time.Millisecond)
	for _, n := range l.heard() {
		if n.Type != driver.NoticeReady && !contains(want, n) {
			l.e.Errorf("received %+v, which is not for this listener", n)
		}
	}
}

// contains reports whether n is among the notices, ignoring addresses.
func contains(notices []driver.Notice, n driver.Notice) bool {
	n.Address = 0
	return slices.ContainsFunc(notices, func(o driver.Notice) bool {
		o.Address = 0
		return o == n
	})
}

// to returns the notices for a session.
func to(session string, notices []driver.Notice) (some []driver.Notice) {
	for _, n := range notices {
		if n.Session == session {
			some = append(some, n)
		}
	}
	return some
}

// send sends the notices that the last command returned, and returns them.
func (e *env) send() []driver.Notice {
	e.Helper()
	if err := e.store.Notify(e.ctx, e.notices); err != nil {
		e.Fatalf("Notify(%+v): %v", e.notices, err)
	}
	return e.notices
}

// listenCases test Listen and Notify. If the store can't notify, they test that Listen returns
// errors.ErrUnsupported.
func listenCases() []conformanceCase {
	return []conformanceCase{
		{name: "Listen/ReadyFirstOrUnsupportedAtOnce", test: testListenReady},
		{name: "Listen/HearsWhatIsSent", test: testListenHears},
		{name: "Listen/OnlyItsSession", test: testListenOnlyItsSession},
		{name: "Listen/OnlyItsKeys", test: testListenOnlyItsKeys},
		{name: "Listen/WithoutASession", test: testListenWithoutSession},
		{name: "Listen/ManyKeys", test: testListenManyKeys},
		{name: "Listen/TwoOfOneSession", test: testListenTwo},
		{name: "Listen/OneCallAtATime", test: testListenOneCallAtATime},
		{name: "Listen/EndsWithItsContext", test: testListenEnds},
		{name: "Notify/SeveralAtOnce", test: testNotifySeveral},
		{name: "Notify/NobodyListens", test: testNotifyNobody},
	}
}

// handOff hands the key from another session to a new claim of the given session, and returns that claim. It leaves
// the notices of the Release in e.notices.
func (e *env) handOff(key, session string) driver.Claim {
	e.Helper()
	holder, waiter := e.claim(key, e.session()), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.release(holder)
	return waiter
}

// testListenReady sends a notice before anybody listens. The notice may be received later, but only after a
// NoticeReady.
func testListenReady(e *env) {
	session, key := e.session(), newID()
	c := e.handOff(key, session)
	if err := e.store.Notify(e.ctx, e.notices); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		e.Fatalf("Notify(%+v): %v", e.notices, err)
	}
	e.release(c)
	start := time.Now()
	l := e.listen(session)
	if l == nil {
		if took := time.Since(start); took > patience/3 {
			e.Errorf("Listen took %v to say that it is not supported", took)
		}
		return
	}
	c = e.handOff(key, session)
	e.wantNotices(granted(c, false))
	l.wantHeard(e.send()...)
}

// testListenHears sends each type of notice to a session that observes the key.
func testListenHears(e *env) {
	key, other := newID(), e.session()
	l := e.hears(key)
	if l == nil {
		return
	}
	var all []driver.Notice
	send := func(want ...driver.Notice) {
		e.Helper()
		e.wantNotices(want...)
		l.wantHeard(e.send()...)
		all = append(all, e.notices...)
	}
	holder, mine, next, last := e.candidate(key, other), e.candidate(key, l.session), e.candidate(key, other), e.candidate(key, l.session)
	mine.Yield = true
	e.hold(holder)
	e.queue(mine)
	e.release(holder)
	send(granted(mine, false), change(key))
	e.queue(next)
	send(yields(mine), change(key))
	e.release(mine)
	e.queue(last)
	e.releaseKeep(next, long, true)
	send(wakes(last), change(key))
	r := driver.Revocation{Key: key, Claim: last.ID}
	e.revoke(l.session, r)
	send(revocation(l.session, r))
	l.wantOnly(all...)
}

// testListenOnlyItsSession uses sessions whose ids are nearly the same.
func testListenOnlyItsSession(e *env) {
	key, base := newID(), newID()
	held := e.claim(key, e.session())
	e.hold(held)
	var listeners []*listener
	var claims []driver.Claim
	for _, session := range []string{base, base + "1", "1" + base, base + "-", base + "_", strings.ToLower(base)} {
		if _, err := e.store.Register(e.ctx, driver.Member{ID: session, TTL: long}); err != nil {
			e.Fatalf("Register: %v", err)
		}
		l := e.listen(session)
		if l == nil {
			return
		}
		listeners = append(listeners, l)
		c := e.claim(key, session)
		e.queue(c)
		claims = append(claims, c)
	}
	var sent [][]driver.Notice
	for i, l := range listeners {
		e.release(held)
		held = claims[i]
		e.wantNotices(granted(held, i < len(claims)-1))
		sent = append(sent, e.send())
		l.wantHeard(sent[i]...)
	}
	for i, l := range listeners {
		l.wantOnly(sent[i]...)
	}
}

// testListenOnlyItsKeys observes one of several keys whose names are nearly the same.
func testListenOnlyItsKeys(e *env) {
	key, session := newID(), e.session()
	others := []string{key + "1", key[1:], strings.ToLower(key), "k/" + key, session, "s/" + session, newID()}
	l, o, none := e.hears(key), e.hears(others...), e.listen(session)
	if l == nil || o == nil || none == nil {
		return
	}
	var sent []driver.Notice
	for _, other := range others {
		e.hold(e.claim(other, session))
		e.wantNotices(change(other))
		sent = append(sent, e.send()...)
	}
	o.wantHeard(sent...)
	c := e.claim(key, session)
	e.hold(c)
	e.wantNotices(change(key))
	l.wantHeard(e.send()...)
	l.wantOnly(change(key))
	o.wantOnly(sent...)
	none.wantOnly()
}

func testListenWithoutSession(e *env) {
	key, session := newID(), e.session()
	l := e.listen("", key, newID())
	if l == nil {
		return
	}
	c := e.handOff(key, session)
	e.send() // includes the notice of the grant, which is for the session
	l.wantHeard(change(key))
	r := driver.Revocation{Key: key, Claim: c.ID}
	e.revoke(session, r)
	e.send()
	l.wantOnly(change(key))
}

func testListenManyKeys(e *env) {
	keys := make([]string, 1500)
	for i := range keys {
		keys[i] = newID()
	}
	session := e.session()
	l := e.listen(session, keys...)
	if l == nil {
		return
	}
	for _, i := range []int{0, 999, 1000, len(keys) - 1} {
		e.hold(e.claim(keys[i], session))
		e.wantNotices(change(keys[i]))
		l.wantHeard(e.send()...)
	}
}

func testListenTwo(e *env) {
	key, session := newID(), e.session()
	first, second := e.listen(session, key), e.listen(session, key)
	if first == nil || second == nil {
		return
	}
	c := e.handOff(key, session)
	e.wantNotices(granted(c, false), change(key))
	e.send()
	first.wantHeard(e.notices...)
	second.wantHeard(e.notices...)
	e.release(c)

	// The end of one Listen does not end the other.
	first.cancel()
	<-first.done
	c = e.handOff(key, session)
	e.wantNotices(granted(c, false), change(key))
	second.wantHeard(e.send()...)
}

func testListenOneCallAtATime(e *env) {
	const grants = 8
	key, session, other := newID(), e.session(), e.session()
	var calls, heard atomic.Int32
	done := make(chan error, 1)
	ready, all := make(chan struct{}), make(chan struct{})
	e.observed[key] = true
	e.wg.Go(func() {
		done <- e.store.Listen(e.ctx, session, []string{key}, func(n driver.Notice) {
			if calls.Add(1) > 1 {
				e.Error("Listen calls f while another call of f is running")
			}
			defer calls.Add(-1)
			time.Sleep(5 * time.Millisecond)
			switch {
			case n.Type == driver.NoticeGrant && heard.Add(1) == grants:
				close(all)
			case n.Type == driver.NoticeReady && heard.Load() == 0:
				close(ready)
			}
		})
	})
	select {
	case <-ready:
	case err := <-done:
		if !errors.Is(err, errors.ErrUnsupported) {
			e.Errorf("Listen: %v", err)
		}
		return
	}
	for range grants {
		holder, waiter := e.claim(key, other), e.claim(key, session)
		e.hold(holder)
		e.queue(waiter)
		e.send() // the change
		e.release(holder)
		e.send()
		e.release(waiter)
	}
	select {
	case <-all:
	case <-time.After(patience):
		e.Errorf("received %d of %d grants", heard.Load(), grants)
	}
}

func testListenEnds(e *env) {
	key, session := newID(), e.session()
	l := e.listen(session, key)
	if l == nil {
		return
	}
	l.cancel()
	select {
	case <-l.done:
	case <-time.After(patience):
		e.Fatal("Listen has not returned after its ctx ended")
	}
	if !errors.Is(l.err, context.Canceled) {
		e.Errorf("Listen: error %v when its ctx was cancelled, want context.Canceled", l.err)
	}
	before := len(l.heard())
	e.handOff(key, session)
	e.send()
	time.Sleep(50 * time.Millisecond)
	if heard := l.heard(); len(heard) > before {
		e.Errorf("notices after Listen has returned: %+v", heard[before:])
	}
}

func testNotifySeveral(e *env) {
	key := newID()
	a, b, o := e.hears(), e.hears(), e.listen("", key)
	if a == nil || b == nil || o == nil {
		return
	}
	writer := e.weighted(key, e.session(), 4, 4)
	e.hold(writer)
	first, second, third := e.weighted(key, a.session, 1, 4), e.weighted(key, b.session, 1, 4), e.weighted(key, a.session, 1, 4)
	e.queue(first)
	e.queue(second)
	e.queue(third)
	e.release(writer)
	e.wantNotices(granted(first, false), granted(second, false), granted(third, false), change(key))
	sent := e.send()
	for _, l := range []*listener{a, b, o} {
		l.wantHeard(to(l.session, sent)...)
	}
	for _, l := range []*listener{a, b, o} {
		l.wantOnly(to(l.session, sent)...)
	}
}

func testNotifyNobody(e *env) {
	l := e.hears(newID())
	if l == nil {
		return
	}
	l.cancel()
	<-l.done
	e.handOff(newID(), l.session) // a session that no longer listens
	e.send()
	e.handOff(newID(), e.session())
	e.send()
	e.handOff(newID(), newID()) // a session that was never registered
	e.send()
	e.notices = nil
	e.send()
}
