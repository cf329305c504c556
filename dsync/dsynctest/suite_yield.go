package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// yieldCases test claims that yield: what their sessions are told, and the room
// that is behind their tokens.
func yieldCases() []conformanceCase {
	return []conformanceCase{
		{name: "Yield/IsShown", test: testYieldShown},
		{name: "Watch/YieldWhenTheFirstJoins", test: testYieldJoin},
		{name: "Watch/YieldOnlyToThoseThatDo", test: testYieldOnly},
		{name: "Watch/YieldWhenGrantedWhileOthersWait", test: testYieldGrant},
		{name: "Token/RoomBehindOneThatYields", test: testYieldRoom},
		{name: "Token/NoRoomBehindAPart", test: testYieldPart},
	}
}

// room is how far apart the tokens of a key are behind a claim that has all of
// it and yields.
const room = 65_536

// yielding returns a new claim that yields.
func (e *env) yielding(key, session string, weight, limit int64) dsync.Claim {
	c := e.weighted(key, session, weight, limit)
	c.Yield = true
	return c
}

func testYieldShown(e *env) {
	key, session := newID(), e.session()
	yields, keeps := e.yielding(key, session, 1, 3), e.weighted(key, session, 1, 3)
	later := e.yielding(key, session, 2, 3)
	e.hold(yields)
	e.hold(keeps)
	e.queue(later)
	e.release(keeps)
	keeps = e.weighted(key, session, 1, 3)
	s := e.load(key)
	e.wantHolders(s, yields, later)
	e.release(yields)
	asked := e.acquire(keeps)
	for _, s := range []dsync.State{s, asked, e.load(key)} {
		for _, h := range s.Holders {
			if h.Yield != (h.Claim != keeps.ID) {
				e.Errorf("holder %+v yields %t, want %t", h, h.Yield, !h.Yield)
			}
		}
	}
}

func testYieldJoin(e *env) {
	session, other := e.session(), e.session()
	w := e.watch(session)
	if w == nil {
		return
	}
	var all []dsync.Claim
	for _, wait := range []func(c dsync.Claim){e.queue, func(c dsync.Claim) {
		c.First = true
		e.queue(c)
	}} {
		holder := e.yielding(newID(), session, 1, 1)
		e.hold(holder)
		e.try(e.claim(holder.Key, other)) // is in line no more
		w.wantUntold(dsync.EventYield, all...)
		wait(e.claim(holder.Key, other))
		w.wantTold(dsync.EventYield, holder.Key, holder.ID)
		all = append(all, holder)
	}

	// The line was empty again.
	holder, waiter := e.yielding(newID(), session, 1, 1), e.claim("", other)
	waiter.Key = holder.Key
	e.hold(holder)
	e.queue(waiter)
	w.wantTold(dsync.EventYield, holder.Key, holder.ID)
	e.release(waiter)
	time.Sleep(20 * time.Millisecond)
	before := w.yields(holder)
	e.queue(e.claim(holder.Key, other))
	if !w.wait(func([]dsync.Event) bool { return w.yields(holder) > before }) {
		e.Errorf("no event for the first in a line that was empty again; events: %+v", w.seen())
	}
}

// yields is how often a claim was told that others are in line.
func (w *watcher) yields(c dsync.Claim) int {
	n := 0
	for _, event := range w.seen() {
		if event.Type == dsync.EventYield && event.Claim == c.ID {
			n++
		}
	}
	return n
}

// testYieldOnly has a key that several hold: all are told that yield, each by its
// own session.
func testYieldOnly(e *env) {
	key, a, b, other := newID(), e.session(), e.session(), e.session()
	wa, wb, none := e.watch(a), e.watch(b), e.watch(other, key)
	if wa == nil || wb == nil || none == nil {
		return
	}
	first, second, third := e.yielding(key, a, 1, 4), e.yielding(key, a, 1, 4), e.yielding(key, b, 1, 4)
	e.hold(first)
	e.hold(second)
	e.hold(third)
	e.hold(e.weighted(key, a, 1, 4))
	e.queue(e.yielding(key, other, 1, 4))
	wa.wantTold(dsync.EventYield, key, first.ID)
	wa.wantTold(dsync.EventYield, key, second.ID)
	wb.wantTold(dsync.EventYield, key, third.ID)
	wa.wantUntold(dsync.EventYield, first, second)
	wb.wantUntold(dsync.EventYield, third)
	none.wantUntold(dsync.EventYield)
}

func testYieldGrant(e *env) {
	key, session, other := newID(), e.session(), e.session()
	w := e.watch(session)
	if w == nil {
		return
	}
	holder, next, last := e.claim(key, other), e.yielding(key, session, 1, 1), e.claim(key, other)
	e.hold(holder)
	e.queue(next)
	e.queue(last)
	w.wantUntold(dsync.EventYield)
	e.release(holder)
	w.wantGrant(next)
	w.wantTold(dsync.EventYield, key, next.ID)
	e.release(next)

	// Nobody is behind this one.
	alone := e.yielding(key, session, 1, 1)
	e.queue(alone)
	e.release(last)
	w.wantGrant(alone)
	w.wantUntold(dsync.EventYield, next)
	e.release(alone)

	// From the dead.
	dead := e.session()
	e.hold(e.claim(key, dead))
	next = e.yielding(key, session, 1, 1)
	e.queue(next)
	e.kill(dead)
	e.acquire(e.claim(key, other), dead)
	w.wantGrant(next)
	w.wantTold(dsync.EventYield, key, next.ID)
}

// testYieldRoom lets a hold that yields go in every way there is.
func testYieldRoom(e *env) {
	key, living := newID(), e.session()
	var last int64
	for i := range 16 {
		session := living
		if i%4 == 2 {
			session = e.session()
		}
		limit := int64(i%3 + 1)
		c, next := e.yielding(key, session, limit, limit), e.weighted(key, living, 1, limit)
		if i%4 == 3 {
			c.Lease = time.Millisecond
		}
		s := e.acquire(c)
		e.wantHolders(s, c)
		token := s.Holders[0].Token
		if token < last+1024 || s.Token < token || s.Token >= token+room {
			e.Fatalf("token %d after %d; the key's is %d, want it in the room of %d", token, last, s.Token, room)
		}
		var h dsync.Holder
		switch i % 4 {
		case 0: // after a release
			e.release(c)
			h = e.hold(next)
		case 1: // by hand-over
			e.queue(next)
			e.release(c)
			h, _ = e.load(key).Holder(next.ID)
		case 2: // from the dead
			e.kill(session)
			h = e.hold(next, session)
		case 3: // from a lapsed lease
			e.until(s.Holders[0].Until)
			h = e.hold(next)
		}
		if h.Token < token+room {
			e.Fatalf("round %d: token %d after %d, which yields; want at least %d more", i, h.Token, token, room)
		}
		e.release(next)
		last = h.Token
	}
}

func testYieldPart(e *env) {
	key, session := newID(), e.session()
	for range 5 {
		part, all := e.yielding(key, session, 1, 2), e.weighted(key, session, 2, 2)
		for _, c := range []dsync.Claim{part, all} {
			h := e.hold(c)
			if s := e.load(key); s.Token < h.Token || s.Token >= h.Token+1024 {
				e.Errorf("claim %+v has token %d, the key %d; want it in the room of 1024", c, h.Token, s.Token)
			}
			e.release(c)
		}
	}
}

// testSweepRoom is one of sweepCases: it sweeps right behind each grant.
func testSweepRoom(e *env) {
	key, session := newID(), e.session()
	var last int64
	for i := range 12 {
		c := e.yielding(key, session, 1, 1)
		h := e.hold(c)
		if i > 0 && h.Token < last+room {
			e.Fatalf("round %d: token %d after %d, which yielded; want at least %d more", i, h.Token, last, room)
		}
		last = h.Token
		e.release(c)
		e.until(e.now().Add(time.Duration(i) * 10 * time.Millisecond)) // 64 ms are the room
		e.sweep(0)
	}
}
