package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// earlyCases test Release with Early. They do not test what a fail-over may undo, or what heartbeats then return: each
// store needs its own tests for that.
func earlyCases() []conformanceCase {
	return []conformanceCase{
		{name: "Early/TheNextIsLetIn", test: testEarlyNext},
		{name: "Early/AHeartbeatSaysWhenCommitted", test: testEarlyHeartbeat},
		{name: "Early/RepeatedOrLateChangesNothing", test: testEarlyRepeated},
		{name: "Early/CommittedIfSomebodyWaits", test: testEarlyWaiter},
		{name: "Early/CommittedIfObserved", test: testEarlyObserved},
		{name: "Early/CommittedWithOptions", test: testEarlyOptions},
	}
}

// releaseEarly sends a Release of c with Early and the fields of l, as if c's session knew of no waiters. The
// Release must not fail.
func (e *env) releaseEarly(c driver.Claim, l driver.Release, wantFound bool) driver.OpTime {
	e.Helper()
	if h, ok := e.load(c.Key).Holder(c.ID); ok {
		c.Token = h.Token
	}
	c.NoneWaiting = true
	l.Claim, l.Early = c, true
	before := e.seen
	done, err := e.store.Edit(e.ctx, driver.Edit{Release: &l})
	if err != nil || done.Found != wantFound {
		e.Fatalf("Release of %s with %+v: found %t, %v; want %t, no error", c.ID, l, done.Found, err, wantFound)
	}
	if !done.Found && done.Applied != (driver.OpTime{}) {
		e.Errorf("Release of %s, which is absent: applied at %+v", c.ID, done.Applied)
	}
	if done.Applied == (driver.OpTime{}) { // otherwise Load may still show the state before the Release
		e.noticed(c, before, done.Notices)
	} else if len(done.Notices) > 0 {
		e.Errorf("Release of %s may still be undone, but returned the notices %+v", c.ID, done.Notices)
	}
	return done.Applied
}

// wantCommitted is like releaseEarly, but checks that the Release is committed when its reply arrives.
func (e *env) wantCommitted(c driver.Claim, l driver.Release) {
	e.Helper()
	if applied := e.releaseEarly(c, l, true); applied != (driver.OpTime{}) {
		e.Errorf("Release with %+v: it may be undone, applied at %+v", l, applied)
	}
}

func testEarlyNext(e *env) {
	key, session := newID(), e.session()
	for range 3 {
		c := e.claim(key, session)
		e.hold(c)
		e.releaseEarly(c, driver.Release{}, true)
	}
	next := e.claim(key, e.session())
	e.hold(next)
	e.wantHolders(e.load(key), next)
}

func testEarlyHeartbeat(e *env) {
	key, session := newID(), e.session()
	for range 3 {
		c := e.claim(key, session)
		e.hold(c)
		applied := e.releaseEarly(c, driver.Release{}, true)
		if applied == (driver.OpTime{}) {
			continue
		}
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			r, err := e.store.Heartbeat(e.ctx, session, nil)
			if err != nil {
				e.Fatalf("Heartbeat: %v", err)
			}
			if r.Committed.Term == applied.Term && r.Committed.Time >= applied.Time {
				break
			}
			if time.Since(begin) > patience {
				e.Fatalf("Heartbeat says that the log is committed up to %+v; a Release was applied at %+v %v ago", r.Committed, applied, patience)
			}
		}
		e.wantFree(key)
	}
}

func testEarlyRepeated(e *env) {
	key, session := newID(), e.session()
	old := e.claim(key, session)
	token := e.hold(old).Token
	e.releaseEarly(old, driver.Release{}, true)
	newer := e.claim(key, session)
	e.hold(newer)
	old.Token = token
	for range 2 {
		e.releaseEarly(old, driver.Release{}, false)
	}
	e.wantHolders(e.load(key), newer)
}

func testEarlyWaiter(e *env) {
	for _, weight := range []int64{1, 2} {
		c, next := e.weighted(newID(), e.session(), weight, 2), e.session()
		e.hold(c)
		waiter := e.weighted(c.Key, next, 2, 2)
		e.queue(waiter)
		e.wantCommitted(c, driver.Release{})
		e.wantHolders(e.load(c.Key), waiter)
	}
}

func testEarlyObserved(e *env) {
	session := e.session()
	for _, before := range []bool{true, false} {
		c := e.claim(newID(), session)
		if before {
			if e.hears(c.Key) == nil {
				return
			}
		}
		e.hold(c)
		if !before {
			e.hears(c.Key)
		}
		e.wantCommitted(c, driver.Release{})
		e.wantNotices(change(c.Key))
	}
}

func testEarlyOptions(e *env) {
	session := e.session()
	hold := func() driver.Claim {
		c := e.claim(newID(), session)
		e.hold(c)
		return c
	}
	c := hold()
	e.wantCommitted(c, driver.Release{Keep: long})
	e.wantHolders(e.load(c.Key), c)

	c = hold()
	token := e.load(c.Key).Token
	e.wantCommitted(c, driver.Release{Seal: 1, Result: []byte("result")})
	e.wantSealed(e.load(c.Key), token, []byte("result"))

	c = hold()
	next := e.claim(c.Key, session)
	e.queue(next)
	e.wantCommitted(c, driver.Release{Successor: next.ID})
	e.wantHolders(e.load(c.Key), next)
}
