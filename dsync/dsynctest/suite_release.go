package dsynctest

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// releaseCases test Release without options.
func releaseCases() []conformanceCase {
	return []conformanceCase{
		{name: "Release/OnlyThatID_B05", test: testReleaseOnlyThatID},
		{name: "Release/FixedLeaseEndsAtOnce", test: testReleaseFixedLease},
	}
}

// keepCases test Release with Keep.
func keepCases() []conformanceCase {
	return []conformanceCase{
		{name: "Keep/EndsThatMuchLater_B35", test: testKeepEnds},
		{name: "Keep/RepeatingDoesNotProlong", test: testKeepRepeated},
		{name: "Keep/ShorterOneShortens", test: testKeepShorter},
		{name: "Keep/EarlierEndOfFixedLeaseStays", test: testKeepFixedLease},
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

func testReleaseFixedLease(e *env) {
	key, session := newID(), e.session()
	c, next := e.leased(key, session, long), e.claim(key, session)
	e.hold(c)
	e.queue(next)
	e.release(c)
	e.wantHolders(e.load(key), next)
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
	// Nor does a repeated Acquire remove the end of the hold.
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
	e.expire(a)
	e.wantLapse(next, h, a)
}

// leaseCases test fixed leases and Extend.
func leaseCases() []conformanceCase {
	return []conformanceCase{
		{name: "Lease/EndsThatLongAfterItsGrant", test: testLeaseEnd},
		{name: "Lease/LivesWithItsSessionUntilItIsExtended", test: testLeaseUndated},
		{name: "Lease/AnotherMayHaveItFromItsEndOn", test: testLeaseLapses},
		{name: "Lease/LapsedIsShownUntilItIsDropped", test: testLeaseShown},
		{name: "Lease/TinyOneHasAnEnd", test: testLeaseTiny},
		{name: "Lease/LongestDurations", test: testLongestDurations},
		{name: "Lease/RepeatedAcquireDoesNotProlong", test: testLeaseRepeatedAcquire},
		{name: "Extend/MovesTheEnd_B25", test: testExtend},
		{name: "Extend/OfASecondGrant", test: testExtendOfASecondGrant},
		{name: "Extend/NeverShortens", test: testExtendNeverShortens},
		{name: "Extend/NotHeld", test: testExtendNotHeld},
		{name: "Extend/NotAfterItsEnd", test: testExtendAfterEnd},
	}
}

func testLeaseEnd(e *env) {
	c := e.leased(newID(), e.session(), 90*time.Second)
	granted, before := e.acquire(c).Holders[0], e.now()
	h, after := e.extend(c), e.now()
	if h.Until.Before(before.Add(c.Lease)) || h.Until.After(after.Add(c.Lease)) {
		e.Errorf("extended by %v until %v; want that long after a time from %v to %v", c.Lease, h.Until, before, after)
	}
	if read, _ := e.load(c.Key).Holder(c.ID); !read.Until.Equal(h.Until) || !read.Since.Equal(granted.Since) || read.Token != granted.Token {
		e.Errorf("Load reads %+v; want the end %v, and the rest as it was granted, %+v", read, h.Until, granted)
	}
}

// A claim with a lease can be granted in several ways. In each case its hold has no end until the first Extend, and
// lasts as long as its session. Otherwise a grant that nobody learns of would block the key for the whole lease.
func testLeaseUndated(e *env) {
	for _, grant := range []func(c driver.Claim){
		func(c driver.Claim) { e.acquire(c) },
		func(c driver.Claim) { e.try(c) },
		func(c driver.Claim) {
			holder := e.claim(c.Key, e.session())
			e.hold(holder)
			e.queue(c)
			e.release(holder)
		},
		func(c driver.Claim) {
			holder := e.claim(c.Key, e.session())
			e.hold(holder)
			e.queue(c)
			e.expire(holder.Session)
			e.try(e.claim(c.Key, e.session()), holder.Session)
		},
	} {
		c := e.leased(newID(), e.session(), long)
		grant(c)
		if h, ok := e.load(c.Key).Holder(c.ID); !ok || !h.Until.IsZero() {
			e.Errorf("held is %t, until %v; want it held without an end", ok, h.Until)
		}
		e.expire(c.Session)
		next := e.claim(c.Key, e.session())
		e.wantHolders(e.acquire(next, c.Session), next)
		e.wantNotHeld(c, "a lease whose session had expired")
	}
}

func testLeaseLapses(e *env) {
	key, session := newID(), e.session()
	c, next := e.leased(key, session, 2*short), e.claim(key, session)
	e.wantLapse(next, e.hold(c))
}

func testLeaseShown(e *env) {
	c := e.leased(newID(), e.session(), short)
	h := e.hold(c)
	e.until(h.Until)
	e.wantHolders(e.load(c.Key), c)
	// A late Acquire of the claim does not bring it back.
	s := e.acquireAs(c, true, h.Since.Add(-time.Second))
	e.wantHolders(s)
	e.wantQueue(s)
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

func testLeaseRepeatedAcquire(e *env) {
	c := e.leased(newID(), e.session(), long)
	h := e.hold(c)
	e.until(h.Since.Add(5 * time.Millisecond))
	if again := e.hold(c); !again.Until.Equal(h.Until) {
		e.Errorf("Acquire repeated: ends at %v, want still %v", again.Until, h.Until)
	}
}

func testExtend(e *env) {
	c := e.leased(newID(), e.session(), long)
	h := e.hold(c)
	e.until(h.Since.Add(5 * time.Millisecond))
	before := e.now()
	got := e.extend(c)
	after := e.now()
	if until := got.Until; until.Before(before.Add(c.Lease)) || until.After(after.Add(c.Lease)) {
		e.Fatalf("Extend = %v; want %v after now, which was from %v to %v", until, c.Lease, before, after)
	}
	read, _ := e.load(c.Key).Holder(c.ID)
	if !read.Until.Equal(got.Until) || read.Token != h.Token || !read.Since.Equal(h.Since) {
		e.Errorf("Load reads %+v; want the end %v as Extend returned, the rest as in %+v", read, got.Until, h)
	}
	if got.Claim != h.Claim || got.Token != h.Token || !got.Since.Equal(h.Since) {
		e.Errorf("Extend returned %+v; want all but the end as in %+v", got, h)
	}
}

// After a lease has lapsed, a late copy of its request may be granted. No session knows about this second grant, so an
// Extend for the first grant must not extend it.
func testExtendOfASecondGrant(e *env) {
	c := e.leased(newID(), e.session(), 20*time.Millisecond)
	first := e.hold(c)
	e.until(first.Until)
	between := e.claim(c.Key, e.session())
	e.hold(between)
	e.release(between)
	second := e.again(c)
	if second.Token <= first.Token {
		e.Fatalf("Acquire of a claim that has lapsed: held with token %d, after %d", second.Token, first.Token)
	}
	c.Token = first.Token
	if got, err := storecmd.Extend(e.ctx, e.store, c); !errors.Is(err, driver.ErrNotHeld) {
		e.Errorf("Extend with the token of the first grant = %+v, %v; want ErrNotHeld", got, err)
	}
	if h, ok := e.load(c.Key).Holder(c.ID); !ok || !h.Until.IsZero() {
		e.Errorf("held is %t, until %v; want the second grant as it was", ok, h.Until)
	}
	if got := e.extend(c); got.Token != second.Token || !got.Since.Equal(second.Since) {
		e.Errorf("Extend = %+v; want the token and the time of the second grant, %+v", got, second)
	}
}

func testExtendNeverShortens(e *env) {
	c := e.leased(newID(), e.session(), long)
	h := e.hold(c)
	c.Lease = time.Second
	for range 2 {
		if got := e.extend(c); !got.Until.Equal(h.Until) {
			e.Errorf("Extend by less = %v; want the end as it was, %v", got.Until, h.Until)
		}
	}
	if read, _ := e.load(c.Key).Holder(c.ID); !read.Until.Equal(h.Until) {
		e.Errorf("Load reads the end %v, want %v", read.Until, h.Until)
	}
}

// wantNotHeld checks that Extend returns ErrNotHeld.
func (e *env) wantNotHeld(c driver.Claim, what string) {
	e.Helper()
	if got, err := e.extendAs(c); !errors.Is(err, driver.ErrNotHeld) {
		e.Errorf("Extend of %s = %+v, %v; want ErrNotHeld", what, got, err)
	}
}

func testExtendNotHeld(e *env) {
	key, session := newID(), e.session()
	e.wantNotHeld(e.leased(key, session, long), "a claim on a key that was never used")

	plain := e.claim(key, session)
	e.hold(plain)
	e.wantNotHeld(plain, "a hold without a lease")
	waiter := e.leased(key, session, long)
	e.queue(waiter)
	e.wantNotHeld(waiter, "a claim in the queue")
	e.wantNotHeld(e.leased(key, session, long), "a claim that was never requested")

	s := e.load(key)
	e.wantHolders(s, plain)
	e.wantQueue(s, waiter)
	if !s.Holders[0].Until.IsZero() {
		e.Errorf("Extend gave an end to a hold that had none: %+v", s.Holders[0])
	}

	e.release(plain)
	h, _ := e.load(key).Holder(waiter.ID)
	other := e.leased(key, session, long)
	other.Token = h.Token
	e.wantNotHeld(other, "another claim of the holder's session")
	if again, _ := e.load(key).Holder(waiter.ID); !again.Until.Equal(h.Until) {
		e.Errorf("Extend of another claim moved the end from %v to %v", h.Until, again.Until)
	}
	e.release(waiter)
	e.wantNotHeld(waiter, "a released claim")
	e.wantFree(key)
}

func testExtendAfterEnd(e *env) {
	c := e.leased(newID(), e.session(), short)
	e.until(e.hold(c).Until)
	// Nobody else has acquired the key, and no command has dropped the lapsed lease.
	for range 2 {
		e.wantNotHeld(c, "a lease whose end has come")
	}
	next := e.claim(c.Key, c.Session)
	e.hold(next)
	e.wantNotHeld(c, "a lease that another has taken")
	e.wantHolders(e.load(c.Key), next)
}
