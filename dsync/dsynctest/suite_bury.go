package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// buryCases test how sessions die.
func buryCases() []conformanceCase {
	return []conformanceCase{
		{name: "Bury/LivingIsLeftAlone", test: testBuryLiving},
		{name: "Bury/NotBeforeItLapses", test: testBuryNotBefore},
		{name: "Bury/LapsedIsDeadForEver", test: testBuryLapsed},
		{name: "Bury/UnknownIsDeadForEver", test: testBuryUnknown},
		{name: "Unregister/DeadAtOnce", test: testUnregister},
		{name: "Unregister/UnknownIsDeadForEver", test: testUnregisterUnknown},
		{name: "Unregister/OnlyThatSession", test: testUnregisterOnly},
	}
}

func testBuryLiving(e *env) {
	id, at := e.sessionTTL(long)
	for range 3 {
		e.wantLeft(id, at, long) // of the first heartbeat each time: it changes nothing
	}
	m := e.member(id, "is there", func(dsync.Member) bool { return true })
	if m.Dead || !m.At.Equal(at) || m.TTL != long {
		e.Errorf("after Bury of a living session: %+v; want at %v, alive", m, at)
	}
	if _, err := e.store.Heartbeat(e.ctx, id, nil); err != nil {
		e.Errorf("Heartbeat after Bury of a living session: %v", err)
	}
}

// testBuryNotBefore buries a session again and again until it is dead: that must
// not be before its TTL is over, nor once it is.
func testBuryNotBefore(e *env) {
	id, at := e.sessionTTL(short)
	end := at.Add(short)
	for {
		before := e.now()
		left, err := e.store.Bury(e.ctx, id)
		after := e.now()
		switch {
		case err != nil:
			e.Fatalf("Bury: %v", err)
		case left < 0 || left > short:
			e.Fatalf("Bury = %v, want from 0 to the TTL %v", left, short)
		case left == 0 && after.Before(end):
			e.Fatalf("dead by %v, before its end %v", after, end)
		case left > 0 && !before.Before(end):
			e.Fatalf("alive for another %v at %v, its end was %v", left, before, end)
		case left == 0:
			return
		}
		time.Sleep(min(left, 20*time.Millisecond))
	}
}

func testBuryLapsed(e *env) {
	id, at := e.sessionTTL(short)
	e.until(at.Add(short))
	for range 2 {
		if left, err := e.store.Bury(e.ctx, id); left != 0 || err != nil {
			e.Fatalf("Bury of a lapsed session = %v, %v; want 0, no error", left, err)
		}
		e.wantDead(id)
	}
}

func testBuryUnknown(e *env) {
	id := newID()
	if left, err := e.store.Bury(e.ctx, id); left != 0 || err != nil {
		e.Fatalf("Bury of an unknown session = %v, %v; want 0, no error", left, err)
	}
	e.wantDead(id)
}

func testUnregister(e *env) {
	id := e.session()
	e.kill(id)
	e.wantDead(id)
}

func testUnregisterUnknown(e *env) {
	id := newID()
	e.kill(id)
	e.wantDead(id)
}

func testUnregisterOnly(e *env) {
	a, b := e.session(), e.session()
	e.kill(a)
	e.wantDead(a)
	if _, err := e.store.Heartbeat(e.ctx, b, nil); err != nil {
		e.Errorf("Heartbeat after another session was unregistered: %v", err)
	}
}
