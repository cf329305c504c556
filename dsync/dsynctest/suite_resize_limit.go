package dsynctest

import "github.com/leasehold-go/leasehold/dsync"

// formerCases test the limits that a key had.
func formerCases() []conformanceCase {
	return []conformanceCase{
		{name: "Resize/FormerLimitCountsAsThePresent", test: testFormerCounts},
		{name: "Resize/FormerLimitCountsOnAFreeKey", test: testFormerFree},
		{name: "Resize/FromCountsToo", test: testFormerFrom},
		{name: "Resize/UnknownLimitIsMismatch", test: testFormerUnknown},
		{name: "Resize/UnknownLimitTakesAFreeKeyOver", test: testFormerTakenOver},
		{name: "Resize/OtherKindHadNoFormerLimits", test: testFormerKind},
		{name: "Resize/WeightAboveThePresentLimitIsMismatch", test: testFormerWeight},
		{name: "Resize/AndBack", test: testFormerBack},
		{name: "Resize/EightFormerLimitsAreKnown", test: testFormerEight},
	}
}

// wantUnknown checks that a claim with this limit joins nothing, as the key has
// another.
func (e *env) wantUnknown(key, session string, limit, present int64) {
	e.Helper()
	c := e.weighted(key, session, 1, limit)
	e.wantMismatch(c, dsync.MismatchError{Key: key, Kind: c.Kind, WantKind: c.Kind, Limit: present, WantLimit: limit})
}

func testFormerCounts(e *env) {
	key, session := newID(), e.session()
	a := e.weighted(key, session, 2, 2)
	e.hold(a)
	e.resize(key, 2, 4)
	old, young := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 4)
	e.hold(old)
	e.hold(young)
	e.wantHolders(e.load(key), a, old, young)
	e.wantSize(key, a.Kind, 4)
	waits := e.weighted(key, session, 2, 2)
	e.queue(waits)
	e.wantHolders(e.try(e.weighted(key, session, 1, 2)), a, old, young)
	e.release(a)
	e.wantHolders(e.load(key), old, young, waits)
}

func testFormerFree(e *env) {
	key, session := newID(), e.session()
	first := e.weighted(key, session, 1, 2)
	e.hold(first)
	e.resize(key, 2, 3)
	e.release(first)
	for range 2 {
		a, b, c := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 3)
		e.hold(a)
		e.wantSize(key, a.Kind, 3) // it takes nothing over
		e.hold(b)
		e.hold(c)
		e.wantHolders(e.try(e.weighted(key, session, 1, 2)), a, b, c)
		e.release(a)
		e.release(b)
		e.release(c)
		e.wantFree(key)
	}
}

func testFormerFrom(e *env) {
	key, session := newID(), e.session()
	e.resize(key, 1, 3) // that was never used
	e.wantSize(key, dsync.KindMutex, 3)
	a, b, c := e.weighted(key, session, 1, 1), e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 1)
	e.hold(a)
	e.hold(b)
	e.hold(c)
	e.wantSize(key, dsync.KindMutex, 3)
	e.wantUnknown(key, session, 2, 3)
	e.resize(key, 2, 3) // the key never had it, but another may think so
	d := e.weighted(key, session, 1, 2)
	e.queue(d)
	e.queue(e.weighted(key, session, 1, 1))
	e.release(b)
	e.wantHolders(e.load(key), a, c, d)
}

func testFormerUnknown(e *env) {
	key, session := newID(), e.session()
	holder := e.weighted(key, session, 2, 2)
	e.hold(holder)
	e.resize(key, 2, 3)
	e.wantUnknown(key, session, 7, 3)
	waiter := e.weighted(key, session, 2, 2)
	e.queue(waiter)
	e.wantUnknown(key, session, 1, 3)
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, waiter)
	e.wantSize(key, holder.Kind, 3)
}

func testFormerTakenOver(e *env) {
	key, session := newID(), e.session()
	first := e.weighted(key, session, 1, 2)
	e.hold(first)
	e.resize(key, 2, 3)
	e.release(first)
	c := e.weighted(key, session, 1, 7)
	e.hold(c)
	e.wantSize(key, c.Kind, 7)
	e.wantUnknown(key, session, 2, 7)
	e.wantUnknown(key, session, 3, 7)
}

func testFormerKind(e *env) {
	key, session := newID(), e.session()
	first, other := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2)
	e.hold(first)
	e.resize(key, 2, 3)
	e.release(first)
	other.Kind = "other"
	e.hold(other)
	e.wantSize(key, "other", 2)
	third := e.weighted(key, session, 1, 3)
	third.Kind = "other"
	e.wantMismatch(third, dsync.MismatchError{Key: key, Kind: "other", WantKind: "other", Limit: 2, WantLimit: 3})
	e.release(other)
	e.hold(e.weighted(key, session, 1, 2)) // nor are they remembered of the first
	e.wantSize(key, first.Kind, 2)
	e.wantUnknown(key, session, 3, 2)
}

func testFormerWeight(e *env) {
	key, session := newID(), e.session()
	holder := e.weighted(key, session, 1, 4)
	e.hold(holder)
	e.resize(key, 4, 2)
	heavy := e.weighted(key, session, 3, 4)
	want := dsync.MismatchError{Key: key, Kind: holder.Kind, WantKind: heavy.Kind, Limit: 2, WantLimit: 4}
	e.wantMismatch(heavy, want)
	e.wantLine(e.load(key))
	fits := e.weighted(key, session, 2, 4)
	e.queue(fits)
	e.release(holder)
	e.wantHolders(e.load(key), fits)
	e.release(fits)
	e.wantMismatch(heavy, want) // the key is free
	e.wantFree(key)
	e.wantSize(key, holder.Kind, 2)
}

func testFormerBack(e *env) {
	key, session := newID(), e.session()
	a := e.weighted(key, session, 3, 3)
	e.hold(a)
	e.resize(key, 3, 5)
	e.resize(key, 5, 3)
	e.wantSize(key, a.Kind, 3)
	b, c := e.weighted(key, session, 1, 5), e.weighted(key, session, 1, 3)
	e.queue(b)
	e.queue(c)
	e.release(a)
	e.wantHolders(e.load(key), b, c)
	heavy := e.weighted(key, session, 4, 5)
	e.wantMismatch(heavy, dsync.MismatchError{Key: key, Kind: a.Kind, WantKind: a.Kind, Limit: 3, WantLimit: 5})
	e.resize(key, 3, 5)
	e.queue(heavy)
	e.wantSize(key, a.Kind, 5)
}

func testFormerEight(e *env) {
	key, session := newID(), e.session()
	e.hold(e.weighted(key, session, 1, 1))
	for limit := int64(1); limit < 9; limit++ {
		e.resize(key, limit, limit+1)
	}
	for limit := int64(1); limit <= 8; limit++ {
		e.hold(e.weighted(key, session, 1, limit))
	}
	e.wantSize(key, dsync.KindMutex, 9)
	e.wantHolders(e.try(e.weighted(key, session, 1, 1)), e.claimsOf(key)...)
}

// claimsOf returns the holders of a key as claims.
func (e *env) claimsOf(key string) (claims []dsync.Claim) {
	e.Helper()
	for _, h := range e.load(key).Holders {
		claims = append(claims, dsync.Claim{ID: h.Claim})
	}
	return claims
}
