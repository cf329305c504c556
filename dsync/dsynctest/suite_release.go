package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// releaseCases test Release without an Outcome.
func releaseCases() []conformanceCase {
	return []conformanceCase{
		{name: "Release/HolderGrantsNext", test: testReleaseGrantsNext},
		{name: "Release/OneOfSeveralHolders", test: testReleaseOneOfSeveral},
		{name: "Release/FromTheLine", test: testReleaseFromLine},
		{name: "Release/AbsentIsNoError", test: testReleaseAbsent},
		{name: "Release/FindsByIDAlone", test: testReleaseByID},
		{name: "Release/OnlyThatID_B05", test: testReleaseOnlyThatID},
		{name: "Release/RepeatedOrLateNeverFreesNewerHold_B28", test: testReleaseRepeated},
		{name: "Release/FixedLeaseEndsAtOnce", test: testReleaseFixedLease},
	}
}

// keepCases test Release with Outcome.Keep.
func keepCases() []conformanceCase {
	return []conformanceCase{
		{name: "Keep/EndsThatMuchLater_B35", test: testKeepEnds},
		{name: "Keep/RepeatingDoesNotProlong", test: testKeepRepeated},
		{name: "Keep/ShorterOneShortens", test: testKeepShorter},
		{name: "Keep/EarlierEndOfFixedLeaseStays", test: testKeepFixedLease},
		{name: "Keep/OutlivesItsSession", test: testKeepOutlivesSession},
		{name: "Keep/FromTheLineTakesOut", test: testKeepFromLine},
		{name: "Keep/ReleaseEndsIt", test: testKeepThenRelease},
		{name: "Keep/AbsentIsNoError", test: testKeepAbsent},
	}
}

func testReleaseGrantsNext(e *env) {
	key := newID()
	holder, next, last := e.claim(key, e.session()), e.claim(key, e.session()), e.claim(key, e.session())
	e.hold(holder)
	e.queue(next)
	e.queue(last)
	before := e.now()
	e.release(holder)
	s := e.load(key)
	e.wantHolders(s, next)
	e.wantLine(s, last)
	if h := s.Holders[0]; h.Session != next.Session || h.Since.Before(before) || h.Since.After(s.Now) || h.Token != s.Token {
		e.Errorf("granted %+v between %v and %v, the key's last token is %d", h, before, s.Now, s.Token)
	}
}

func testReleaseOneOfSeveral(e *env) {
	key, session := newID(), e.session()
	a, b, c := e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 3)
	next := e.weighted(key, session, 1, 3)
	e.hold(a)
	e.hold(b)
	e.hold(c)
	e.queue(next)
	e.release(b)
	e.wantHolders(e.load(key), a, c, next)
}

func testReleaseFromLine(e *env) {
	key, session := newID(), e.session()
	holder := e.claim(key, session)
	e.hold(holder)
	var line []dsync.Claim
	for range 3 {
		c := e.claim(key, session)
		e.queue(c)
		line = append(line, c)
	}
	e.release(line[1])
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, line[0], line[2])
	e.release(line[0])
	e.release(line[2])
	e.wantLine(e.load(key))
	e.release(holder)
	e.wantFree(key)
}

func testReleaseAbsent(e *env) {
	key, session := newID(), e.session()
	e.releaseKeep(e.claim(key, session), 0, false) // of a key that was never used
	if s := e.load(key); s.Kind != "" || s.Token != 0 || len(s.Holders) != 0 || s.Waiting != 0 {
		e.Errorf("Release on a key that was never used left %+v", s)
	}
	c := e.claim(key, session)
	e.hold(c)
	e.release(c)
	for range 2 {
		e.releaseKeep(c, 0, false)
	}
	e.wantFree(key)
}

func testReleaseByID(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.release(dsync.Claim{Key: key, ID: waiter.ID})
	e.release(dsync.Claim{Key: key, ID: holder.ID})
	e.wantFree(key)
}

// testReleaseOnlyThatID releases claims with ids and sessions that are nearly
// those of the holder and the one in line.
func testReleaseOnlyThatID(e *env) {
	key, a, b := newID(), e.session(), e.session()
	other := e.claim(key, a) // a.1
	var holder dsync.Claim
	for range 10 {
		holder = e.claim(key, a) // a.11 at last
	}
	waiter := e.claim(key, b)
	e.hold(holder)
	e.queue(waiter)
	for _, id := range []string{other.ID, a, a + ".", a + ".1", a + ".111", b + ".11", newID() + ".1", ".", ".*"} {
		e.releaseKeep(dsync.Claim{Key: key, ID: id, Session: a, Kind: holder.Kind, Weight: 1, Limit: 1}, 0, false)
		s := e.load(key)
		e.wantHolders(s, holder)
		e.wantLine(s, waiter)
	}
	elsewhere := holder
	elsewhere.Key = newID()
	e.releaseKeep(elsewhere, 0, false)
	e.wantHolders(e.load(key), holder)
}

func testReleaseRepeated(e *env) {
	key, a := newID(), e.session()
	old := e.claim(key, a)
	e.hold(old)
	e.release(old)
	for _, session := range []string{a, e.session()} {
		newer, waiter := e.claim(key, session), e.claim(key, session)
		e.hold(newer)
		e.queue(waiter)
		for range 2 {
			e.releaseKeep(old, 0, false)
			e.releaseKeep(old, time.Millisecond, false)
		}
		s := e.load(key)
		e.wantHolders(s, newer)
		e.wantLine(s, waiter)
		if !s.Holders[0].Until.IsZero() {
			e.Errorf("a late Release gave a newer hold an end: %+v", s.Holders[0])
		}
		e.release(waiter)
		e.release(newer)
	}
}

func testReleaseFixedLease(e *env) {
	key, session := newID(), e.session()
	c, next := e.leased(key, session, long), e.claim(key, session)
	e.hold(c)
	e.queue(next)
	e.release(c)
	e.wantHolders(e.load(key), next)
}

// keep releases a held claim with Keep and returns the hold as it is then.
func (e *env) keep(c dsync.Claim, d time.Duration) dsync.Holder {
	e.Helper()
	e.releaseKeep(c, d, true)
	h, ok := e.load(c.Key).Holder(c.ID)
	if !ok {
		e.Fatalf("Release of %s with Keep %v: it holds no more", c.ID, d)
	}
	return h
}

func testKeepEnds(e *env) {
	key := newID()
	c, next := e.claim(key, e.session()), e.claim(key, e.session())
	held := e.hold(c)
	before := e.now()
	h := e.keep(c, 2*short)
	after := e.now()
	if h.Until.Before(before.Add(2*short)) || h.Until.After(after.Add(2*short)) {
		e.Errorf("ends at %v, want %v after the release, which was from %v to %v", h.Until, 2*short, before, after)
	}
	if h.Token != held.Token || !h.Since.Equal(held.Since) {
		e.Errorf("kept as %+v, was held as %+v", h, held)
	}
	e.wantLapse(next, h)
}

func testKeepRepeated(e *env) {
	c := e.claim(newID(), e.session())
	e.hold(c)
	first := e.keep(c, long)
	for _, d := range []time.Duration{long, 2 * long} {
		e.until(e.now().Add(5 * time.Millisecond))
		if again := e.keep(c, d); !again.Until.Equal(first.Until) {
			e.Errorf("Keep %v repeated with %v: ends at %v, want still %v", long, d, again.Until, first.Until)
		}
	}
	// Nor does a repeated Acquire bring its session's hold back.
	s := e.acquire(c)
	if h, ok := s.Holder(c.ID); !ok || !h.Until.Equal(first.Until) {
		e.Errorf("Acquire repeated after Keep: %+v, want it kept until %v", s.Holders, first.Until)
	}
}

func testKeepShorter(e *env) {
	c := e.claim(newID(), e.session())
	e.hold(c)
	first := e.keep(c, 2*long)
	if second := e.keep(c, long); !second.Until.Before(first.Until) {
		e.Errorf("Keep %v, then %v: ends at %v, want before %v", 2*long, long, second.Until, first.Until)
	}
}

func testKeepFixedLease(e *env) {
	session := e.session()
	c := e.leased(newID(), session, long)
	h := e.hold(c)
	if kept := e.keep(c, 2*long); !kept.Until.Equal(h.Until) {
		e.Errorf("a lease until %v, kept for longer: ends at %v, want it unchanged", h.Until, kept.Until)
	}
	c = e.leased(newID(), session, 2*long)
	h = e.hold(c)
	if kept := e.keep(c, long); !kept.Until.Before(h.Until) {
		e.Errorf("a lease until %v, kept for less: ends at %v, want earlier", h.Until, kept.Until)
	}
}

func testKeepOutlivesSession(e *env) {
	key, a := newID(), e.session()
	c, next := e.claim(key, a), e.claim(key, e.session())
	e.hold(c)
	h := e.keep(c, 2*short)
	e.kill(a)
	e.wantLapse(next, h, a)
}

func testKeepFromLine(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.releaseKeep(waiter, long, true)
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s)
	if !s.Holders[0].Until.IsZero() {
		e.Errorf("keeping a claim in line gave the holder an end: %+v", s.Holders[0])
	}
}

func testKeepThenRelease(e *env) {
	key, session := newID(), e.session()
	c, next := e.claim(key, session), e.claim(key, session)
	e.hold(c)
	e.keep(c, long)
	e.queue(next)
	e.release(c)
	e.wantHolders(e.load(key), next)
}

func testKeepAbsent(e *env) {
	key, session := newID(), e.session()
	c := e.claim(key, session)
	e.releaseKeep(c, long, false)
	e.hold(c)
	e.release(c)
	e.releaseKeep(c, long, false)
	e.wantFree(key)
}
