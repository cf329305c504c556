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
		{name: "Extend/OfASecondGrant", test: testExtendOfASecondGrant},
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
	got, err := e.store.Extend(e.ctx, c)
	after := e.now()
	if until := got.Until; err != nil || until.Before(before.Add(c.Lease)) || until.After(after.Add(c.Lease)) {
		e.Fatalf("Extend = %v, %v; want %v after now, which was from %v to %v", until, err, c.Lease, before, after)
	}
	read, _ := e.load(c.Key).Holder(c.ID)
	if !read.Until.Equal(got.Until) || read.Token != h.Token || !read.Since.Equal(h.Since) {
		e.Errorf("Load reads %+v; want the end %v as Extend returned, the rest as in %+v", read, got.Until, h)
	}
	if got.Claim != h.Claim || got.Token != h.Token || !got.Since.Equal(h.Since) {
		e.Errorf("Extend returned %+v; want all but the end as in %+v", got, h)
	}
}

// A claim whose end has come may be granted again by a repeated request, as one that
// stood in line may. What it holds then, it holds with a token that is greater than
// that of whoever held in between: Extend says which.
func testExtendOfASecondGrant(e *env) {
	c := e.leased(newID(), e.session(), 20*time.Millisecond)
	first := e.hold(c)
	e.until(first.Until)
	between := e.claim(c.Key, e.session())
	e.hold(between)
	e.release(between)
	c.Lease = long
	// Not through e: that a claim is granted twice is wrong of all that lapse by nothing
	// but their sessions.
	s, err := e.store.Acquire(e.ctx, c, true, nil, e.far)
	second, ok := s.Holder(c.ID)
	if err != nil || !ok {
		e.Fatalf("Acquire of a claim that has lapsed = %+v, %v; want it held", s, err)
	}
	got, err := e.store.Extend(e.ctx, c)
	if err != nil || got.Token != second.Token || got.Token <= first.Token || !got.Since.Equal(second.Since) {
		e.Errorf("Extend = %+v, %v; want the token and the time of the second grant, %+v", got, err, second)
	}
}

func testExtendNeverShortens(e *env) {
	c := e.leased(newID(), e.session(), long)
	h := e.hold(c)
	c.Lease = time.Second
	for range 2 {
		if got, err := e.store.Extend(e.ctx, c); err != nil || !got.Until.Equal(h.Until) {
			e.Errorf("Extend by less = %v, %v; want the end as it was, %v", got.Until, err, h.Until)
		}
	}
	if read, _ := e.load(c.Key).Holder(c.ID); !read.Until.Equal(h.Until) {
		e.Errorf("Load reads the end %v, want %v", read.Until, h.Until)
	}
}

// wantNotHeld checks that Extend says so.
func (e *env) wantNotHeld(c dsync.Claim, what string) {
	e.Helper()
	if got, err := e.store.Extend(e.ctx, c); !errors.Is(err, dsync.ErrNotHeld) {
		e.Errorf("Extend of %s = %+v, %v; want ErrNotHeld", what, got, err)
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
