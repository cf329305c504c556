package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// releaseCases test Release without options.
func releaseCases() []conformanceCase {
	return []conformanceCase{
		{name: "Release/OnlyThatID_B05", test: testReleaseOnlyThatID},
	}
}

// keepCases test Release with Keep.
func keepCases() []conformanceCase {
	return []conformanceCase{
		{name: "Keep/EndsThatMuchLater_B35", test: testKeepEnds},
		{name: "Keep/OutlivesItsSession", test: testKeepOutlivesSession},
	}
}

// testReleaseOnlyThatID releases claims whose ids are nearly those of the holder and the waiter.
func testReleaseOnlyThatID(e *env) {
	key, a, b := newID(), e.session(), e.session()
	other := e.claim(key, a) // a.1
	var holder driver.Claim
	for range 10 {
		holder = e.claim(key, a) // finally a.11
	}
	waiter := e.claim(key, b)
	e.hold(holder)
	e.queue(waiter)
	for _, id := range []string{other.ID, a, a + ".", a + ".1", a + ".111", b + ".11", newID() + ".1", ".", ".*"} {
		e.releaseKeep(driver.Claim{Key: key, ID: id, Session: a, Kind: holder.Kind, Weight: 1, Limit: 1}, 0, false)
		s := e.load(key)
		e.wantHolders(s, holder)
		e.wantQueue(s, waiter)
	}
	elsewhere := holder
	elsewhere.Key = newID()
	e.releaseKeep(elsewhere, 0, false)
	e.wantHolders(e.load(key), holder)
}

// keep releases a held claim with Keep and returns the hold afterwards.
func (e *env) keep(c driver.Claim, d time.Duration) driver.Holder {
	e.Helper()
	e.releaseKeep(c, d, true)
	h, ok := e.load(c.Key).Holder(c.ID)
	if !ok {
		e.Fatalf("Release of %s with Keep %v: the claim no longer holds the key", c.ID, d)
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

func testKeepOutlivesSession(e *env) {
	key, a := newID(), e.session()
	c, next := e.claim(key, a), e.claim(key, e.session())
	e.hold(c)
	h := e.keep(c, 2*short)
	e.expire(a)
	e.wantLapse(next, h, a)
}

// leaseCases test fixed leases and Extend.
func leaseCases() []conformanceCase {
	return []conformanceCase{
		{name: "Lease/AnotherMayHaveItFromItsEndOn", test: testLeaseLapses},
		{name: "Lease/TinyOneHasAnEnd", test: testLeaseTiny},
		{name: "Lease/LongestDurations", test: testLongestDurations},
	}
}

func testLeaseLapses(e *env) {
	key, session := newID(), e.session()
	c, next := e.leased(key, session, 2*short), e.claim(key, session)
	e.wantLapse(next, e.hold(c))
}

func testLeaseTiny(e *env) {
	c := e.leased(newID(), e.session(), time.Nanosecond)
	if h := e.hold(c); h.Until.IsZero() {
		e.Errorf("a lease of %v has no end", c.Lease)
	}
}

// testLongestDurations uses the longest duration for a lease and for Keep.
func testLongestDurations(e *env) {
	session := e.session()
	c := e.leased(newID(), session, driver.MaxDuration)
	before := e.now()
	if h := e.hold(c); h.Until.Before(before.Add(c.Lease)) {
		e.Errorf("extended by %v at %v, but only until %v", c.Lease, before, h.Until)
	}
	kept := e.claim(newID(), session)
	e.hold(kept)
	before = e.now()
	e.releaseKeep(kept, driver.MaxDuration, true)
	if h, _ := e.load(kept.Key).Holder(kept.ID); h.Until.Before(before.Add(driver.MaxDuration)) {
		e.Errorf("kept for %v at %v, but only until %v", driver.MaxDuration, before, h.Until)
	}
}
