package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// deadCases test what becomes of the claims of dead sessions that an Acquire
// names.
func deadCases() []conformanceCase {
	return []conformanceCase{
		{name: "Dead/HolderIsDropped", test: testDeadHolder},
		{name: "Dead/FirstInLineIsGrantedNotWhoNoticed", test: testDeadFirstInLine},
		{name: "Dead/WaitersAreDropped", test: testDeadWaiters},
		{name: "Dead/TryDropsThemToo", test: testDeadTry},
		{name: "Dead/LateRequestStillSettles", test: testDeadLateRequest},
		{name: "Dead/FixedLeaseStaysUntilItsEnd", test: testDeadFixedLease},
		{name: "Dead/WaiterForFixedLeaseIsDropped", test: testDeadLeaseWaiter},
		{name: "Dead/OnlyThoseNamed", test: testDeadOnlyNamed},
	}
}

func testDeadHolder(e *env) {
	key, a := newID(), e.session()
	holder, next := e.claim(key, a), e.claim(key, e.session())
	e.hold(holder)
	e.kill(a)
	s := e.acquire(next, a)
	e.wantHolders(s, next)
	e.wantLine(s)
	// The dead one's requests change nothing any more.
	e.releaseKeep(holder, 0, false)
	e.wantHolders(e.load(key), next)
}

func testDeadFirstInLine(e *env) {
	key, a := newID(), e.session()
	holder, first, noticed := e.claim(key, a), e.claim(key, e.session()), e.claim(key, e.session())
	e.hold(holder)
	e.queue(first)
	e.kill(a)
	s := e.acquire(noticed, a)
	e.wantHolders(s, first)
	if s.Place != 1 || s.Waiting != 1 {
		e.Errorf("who named the dead has place %d of %d, want 1 of 1", s.Place, s.Waiting)
	}
}

func testDeadWaiters(e *env) {
	key, a, b := newID(), e.session(), e.session()
	holder, living := e.claim(key, e.session()), e.claim(key, e.session())
	e.hold(holder)
	e.queue(e.claim(key, a))
	e.queue(e.claim(key, b))
	e.queue(living)
	e.queue(e.claim(key, a))
	e.kill(a)
	e.kill(b)
	last := e.claim(key, e.session())
	s := e.acquire(last, a, b)
	e.wantHolders(s, holder)
	if s.Place != 2 || s.Waiting != 2 || len(s.Ahead) != 1 || s.Ahead[0].Claim != living.ID {
		e.Errorf("place %d of %d, ahead %q; want 2 of 2, %q", s.Place, s.Waiting, ahead(s), living.ID)
	}
	e.wantLine(e.load(key), living, last)
}

func testDeadTry(e *env) {
	key, a := newID(), e.session()
	holder, try := e.claim(key, a), e.claim(key, e.session())
	e.hold(holder)
	e.kill(a)
	e.wantHolders(e.try(try), holder)
	e.wantHolders(e.try(try, a), try)
}

func testDeadLateRequest(e *env) {
	key, a := newID(), e.session()
	waiter := e.claim(key, e.session())
	e.hold(e.claim(key, a))
	e.queue(waiter)
	e.kill(a)
	s := e.ask(e.claim(key, e.session()), true, e.now().Add(-time.Second), a)
	e.wantHolders(s, waiter)
	e.wantLine(s)
}

func testDeadFixedLease(e *env) {
	key, a := newID(), e.session()
	holder, waiter := e.leased(key, a, 2*short), e.claim(key, e.session())
	h := e.hold(holder)
	e.kill(a)
	e.wantLapse(waiter, h, a)
}

func testDeadLeaseWaiter(e *env) {
	key, a := newID(), e.session()
	holder, living := e.claim(key, e.session()), e.claim(key, e.session())
	e.hold(holder)
	e.queue(e.leased(key, a, long))
	e.kill(a)
	if s := e.acquire(living, a); s.Place != 1 || s.Waiting != 1 {
		e.Errorf("place %d of %d behind a dead session's wait for a fixed lease, want 1 of 1", s.Place, s.Waiting)
	}
}

func testDeadOnlyNamed(e *env) {
	key, a := newID(), e.session()
	holder, waiter := e.weighted(key, e.session(), 1, 2), e.weighted(key, e.session(), 2, 2)
	e.hold(holder)
	e.hold(e.weighted(key, a, 1, 2))
	e.queue(waiter)
	e.kill(a)
	last := e.weighted(key, e.session(), 1, 2)
	s := e.acquire(last, newID(), a, newID())
	e.wantHolders(s, holder)
	if s.Place != 2 || s.Waiting != 2 {
		e.Errorf("place %d of %d, want 2 of 2", s.Place, s.Waiting)
	}
}

// wantLapse asks for c, naming the dead, until it is granted, and checks that
// this is not before the end of the hold h, nor later.
func (e *env) wantLapse(c dsync.Claim, h dsync.Holder, dead ...string) {
	e.Helper()
	for {
		s := e.acquire(c, dead...)
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
