package dsynctest

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// leaseCases test fixed leases and Extend.
func leaseCases() []conformanceCase {
	return []conformanceCase{
		{name: "Lease/EndsThatLongAfterItsGrant", test: testLeaseEnd},
		{name: "Lease/CountsFromTheGrantNotTheJoin", test: testLeaseFromGrant},
		{name: "Lease/AnotherMayHaveItFromItsEndOn", test: testLeaseLapses},
		{name: "Lease/LapsedIsShownUntilItIsDropped", test: testLeaseShown},
		{name: "Lease/TinyOneHasAnEnd", test: testLeaseTiny},
		{name: "Lease/RepeatedAcquireDoesNotProlong", test: testLeaseRepeatedAcquire},
		{name: "Extend/MovesTheEnd_B25", test: testExtend},
		{name: "Extend/NeverShortens", test: testExtendNeverShortens},
		{name: "Extend/NotHeld", test: testExtendNotHeld},
		{name: "Extend/NotAfterItsEnd", test: testExtendAfterEnd},
	}
}

func testLeaseEnd(e *env) {
	c := e.leased(newID(), e.session(), 90*time.Second)
	h := e.hold(c)
	if want := h.Since.Add(c.Lease); !h.Until.Equal(want) {
		e.Errorf("granted at %v for %v until %v, want %v", h.Since, c.Lease, h.Until, want)
	}
	if read, _ := e.load(c.Key).Holder(c.ID); !read.Until.Equal(h.Until) {
		e.Errorf("Load reads the end %v, Acquire returned %v", read.Until, h.Until)
	}
}

func testLeaseFromGrant(e *env) {
	key, session := newID(), e.session()
	holder, c := e.claim(key, session), e.leased(key, session, 90*time.Second)
	e.hold(holder)
	e.queue(c)
	joined := e.now()
	e.until(joined.Add(20 * time.Millisecond))
	e.release(holder)
	h, ok := e.load(key).Holder(c.ID)
	if !ok || !h.Since.After(joined) || !h.Until.Equal(h.Since.Add(c.Lease)) {
		e.Errorf("joined by %v, granted %t at %v until %v; want it granted for %v from then", joined, ok, h.Since, h.Until, c.Lease)
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
	// Its own Acquire, late and void, does not bring it back.
	s := e.ask(c, true, h.Since.Add(-time.Second))
	e.wantHolders(s)
	e.wantLine(s)
}

func testLeaseTiny(e *env) {
	c := e.leased(newID(), e.session(), time.Nanosecond)
	if h := e.hold(c); h.Until.IsZero() {
		e.Errorf("a lease of %v has no end", c.Lease)
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
	until, err := e.store.Extend(e.ctx, c)
	after := e.now()
	if err != nil || until.Before(before.Add(c.Lease)) || until.After(after.Add(c.Lease)) {
		e.Fatalf("Extend = %v, %v; want %v after now, which was from %v to %v", until, err, c.Lease, before, after)
	}
	read, _ := e.load(c.Key).Holder(c.ID)
	if !read.Until.Equal(until) || read.Token != h.Token || !read.Since.Equal(h.Since) {
		e.Errorf("Load reads %+v; want the end %v as Extend returned, the rest as in %+v", read, until, h)
	}
}

func testExtendNeverShortens(e *env) {
	c := e.leased(newID(), e.session(), long)
	h := e.hold(c)
	c.Lease = time.Second
	for range 2 {
		if until, err := e.store.Extend(e.ctx, c); err != nil || !until.Equal(h.Until) {
			e.Errorf("Extend by less = %v, %v; want the end as it was, %v", until, err, h.Until)
		}
	}
	if read, _ := e.load(c.Key).Holder(c.ID); !read.Until.Equal(h.Until) {
		e.Errorf("Load reads the end %v, want %v", read.Until, h.Until)
	}
}

// wantNotHeld checks that Extend says so.
func (e *env) wantNotHeld(c dsync.Claim, what string) {
	e.Helper()
	if until, err := e.store.Extend(e.ctx, c); !errors.Is(err, dsync.ErrNotHeld) {
		e.Errorf("Extend of %s = %v, %v; want ErrNotHeld", what, until, err)
	}
}

func testExtendNotHeld(e *env) {
	key, session := newID(), e.session()
	e.wantNotHeld(e.leased(key, session, long), "a claim on a key that was never used")

	plain := e.claim(key, session)
	e.hold(plain)
	extended := plain
	extended.Lease = long
	e.wantNotHeld(extended, "a hold without an end")
	waiter := e.leased(key, session, long)
	e.queue(waiter)
	e.wantNotHeld(waiter, "a claim in line")
	e.wantNotHeld(e.leased(key, session, long), "a claim that never asked")

	s := e.load(key)
	e.wantHolders(s, plain)
	e.wantLine(s, waiter)
	if !s.Holders[0].Until.IsZero() {
		e.Errorf("Extend gave a hold without an end one: %+v", s.Holders[0])
	}

	e.release(plain)
	h, _ := e.load(key).Holder(waiter.ID)
	e.wantNotHeld(e.leased(key, session, long), "another claim of the holder's session")
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
	// Nobody else has taken it, nobody has dropped it.
	for range 2 {
		e.wantNotHeld(c, "a lease whose end has come")
	}
	next := e.claim(c.Key, c.Session)
	e.hold(next)
	e.wantNotHeld(c, "a lease that another has taken")
	e.wantHolders(e.load(c.Key), next)
}
