package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// forgetCases test Forget.
func forgetCases() []conformanceCase {
	return []conformanceCase{
		{name: "Forget/SealGoesAndTokensGrowOn", test: testForgetSeal},
		{name: "Forget/TermsCountFromOne", test: testForgetTerms},
		{name: "Forget/FormerLimitsAreUnknown", test: testForgetLimits},
		{name: "Forget/KeyInUseStays", test: testForgetInUse},
		{name: "Forget/HolderWhoseEndHasComeIsNone", test: testForgetEnded},
		{name: "Forget/OtherTokenForgetsNothing", test: testForgetLate},
		{name: "Notice/ChangeByForget", test: testForgetNotice},
	}
}

// forget sends a Forget, which must not fail.
func (e *env) forget(key string, token int64, want bool) {
	e.Helper()
	before := e.seen
	forgot, notices, err := storecmd.Forget(e.ctx, e.store, key, token)
	if err != nil || forgot != want {
		e.Fatalf("Forget(%d) = %t, %v; want %t", token, forgot, err, want)
	}
	e.noticed(driver.Claim{Key: key}, before, notices)
}

// once returns a new claim of KindOnce.
func (e *env) once(key, session string) driver.Claim {
	c := e.claim(key, session)
	c.Kind = driver.KindOnce
	return c
}

func testForgetSeal(e *env) {
	key, session := newID(), e.session()
	e.forget(key, 1, false) // there is no record
	for range 8 {           // makes tokens run ahead of the clock
		c := e.once(key, session)
		e.hold(c)
		e.release(c)
	}
	for range 3 {
		c := e.once(key, session)
		token := e.hold(c).Token // hold checks that the token is greater than the last one
		e.seal(c, []byte("result"), true)
		e.wantSealed(e.load(key), token, []byte("result"))
		e.forget(key, token, true)
		e.wantNotSealed(key)
		e.wantValue(e.load(key), nil)
		e.forget(key, e.load(key).Token, true) // although nothing is left to forget
		e.seal(c, []byte("result"), false)     // a late copy of the Release
		e.wantNotSealed(key)
	}
}

func testForgetTerms(e *env) {
	key, session := newID(), e.session()
	for range 2 {
		for term := int64(1); term <= 2; term++ {
			c := e.candidate(key, session)
			e.wantTerm(e.acquire(c), term)
			e.release(c)
		}
		e.forget(key, e.load(key).Token, true)
		e.wantTerm(e.load(key), 0)
	}
}

// wantUnknown checks that a claim with the given limit is refused, because it is neither the present nor a former limit
// of the key.
func (e *env) wantUnknown(key, session string, limit, present int64) {
	e.Helper()
	c := e.weighted(key, session, 1, limit)
	e.wantMismatch(c, driver.MismatchError{Key: key, Kind: c.Kind, WantKind: c.Kind, Limit: present, WantLimit: limit})
}

func testForgetLimits(e *env) {
	key, session := newID(), e.session()
	first, second := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2)
	e.hold(first)
	e.resize(key, 2, 3)
	e.release(first)
	e.forget(key, e.load(key).Token, true)
	e.hold(second) // the key takes over the claim's limit, because its former limits are forgotten
	e.wantSize(key, second.Kind, 2)
	e.wantUnknown(key, session, 3, 2)
}

func testForgetInUse(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.candidate(key, session), e.candidate(key, session)
	token := e.hold(holder).Token
	e.publish(holder, []byte("value"))
	for range 2 { // first only held, then also waited for
		e.forget(key, token, false)
		s := e.load(key)
		e.wantHolders(s, holder)
		e.wantValue(s, []byte("value"))
		if s.Term == 0 {
			e.Errorf("the number of terms was forgotten: %+v", s)
		}
		e.queue(waiter)
	}
	e.wantQueue(e.load(key), waiter)
	e.release(holder)
	e.wantTerm(e.load(key), 2)
	e.wantHolders(e.load(key), waiter)
}

func testForgetEnded(e *env) {
	key, session := newID(), e.session()
	c := e.candidate(key, session)
	token := e.hold(c).Token
	e.releaseKeep(c, short, true)
	e.forget(key, token, false)
	e.wantTerm(e.load(key), 1)
	e.until(e.load(key).Holders[0].Until)
	e.forget(key, token, true)
	e.wantFree(key)
	e.wantTerm(e.load(key), 0)
}

func testForgetLate(e *env) {
	key, session := newID(), e.session()
	c := e.once(key, session)
	old := e.hold(c).Token
	e.seal(c, []byte("old"), true)
	e.forget(key, old-1, false)
	e.wantSealed(e.load(key), old, []byte("old"))
	e.forget(key, old, true)
	c = e.once(key, session)
	token := e.hold(c).Token
	e.seal(c, []byte("new"), true)
	e.forget(key, old, false)
	e.wantSealed(e.load(key), token, []byte("new"))
}

func testForgetNotice(e *env) {
	key := newID()
	l := e.hears(key)
	if l == nil {
		return
	}
	c := e.candidate(key, l.session)
	token := e.hold(c).Token
	e.release(c)
	e.until(e.now().Add(5 * time.Millisecond))
	e.forget(key, token, true)
	e.wantNotices(change(key))
}
