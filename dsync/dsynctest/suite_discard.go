package dsynctest

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// discardCases test that Discard removes released claims after late copies of their requests have brought them back.
func discardCases() []conformanceCase {
	return []conformanceCase{
		{name: "Discard/LetsTheNextIn", test: testDiscardHolder},
	}
}

// discard calls Discard, which must not fail.
func (e *env) discard(claims ...driver.Claim) []driver.Notice {
	e.Helper()
	var named []driver.Claim
	for _, c := range claims {
		named = append(named, driver.Claim{Key: c.Key, ID: c.ID, Session: c.Session})
	}
	notices, err := e.store.Discard(e.ctx, named)
	if err != nil {
		e.Fatalf("Discard(%q): %v", claimIDs(claims), err)
	}
	return notices
}

// again requests a released claim once more, like a late copy of its request. If the claim is granted, again
// returns the hold.
func (e *env) again(c driver.Claim) driver.Holder {
	e.Helper()
	s, _, err := storecmd.Acquire(e.ctx, e.store, c, true, nil, e.far) // not through e, which expects each claim to be granted once
	if err != nil {
		e.Fatalf("Acquire of %s again: %v", c.ID, err)
	}
	h, _ := s.Holder(c.ID)
	delete(e.tokens[c.Key].byClaim, c.ID)
	return h
}

func testDiscardHolder(e *env) {
	session, other := e.session(), e.session()
	var claims, waiters []driver.Claim
	for range 3 {
		c, waiter := e.claim(newID(), session), e.claim(newID(), other)
		waiter.Key = c.Key
		e.hold(c)
		e.release(c)
		e.again(c)
		e.queue(waiter)
		claims, waiters = append(claims, c), append(waiters, waiter)
	}
	kept := e.claim(claims[0].Key, session) // this claim has the same session and key, but is not passed to Discard
	e.queue(kept)
	e.discard(claims...)
	for i, w := range waiters {
		s := e.load(w.Key)
		e.wantHolders(s, w)
		if i == 0 {
			e.wantQueue(s, kept)
		}
	}
}
