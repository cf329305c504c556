package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// replaceCases test edits with Release and Acquire.
func replaceCases() []conformanceCase {
	return []conformanceCase{
		{name: "Replace/OfAnySort", test: testReplaceSorts},
	}
}

// replace releases the old claim and acquires the next one in one edit.
func (e *env) replace(old, next driver.Claim, notAfter time.Time) driver.State {
	e.Helper()
	if h, ok := e.load(old.Key).Holder(old.ID); ok {
		old.Token, old.NoneWaiting = h.Token, e.alone[old.ID]
	}
	return e.join(driver.Edit{Release: &driver.Release{Claim: old}, Acquire: &driver.Acquire{Claim: next, Wait: true, NotAfter: notAfter}})
}

// releaseTo releases c with the given Successor.
func (e *env) releaseTo(c, successor driver.Claim, wantFound bool) {
	e.Helper()
	if h, ok := e.load(c.Key).Holder(c.ID); ok {
		c.Token, c.NoneWaiting = h.Token, e.alone[c.ID]
	}
	e.releaseAs(c, driver.Release{Successor: successor.ID}, wantFound)
}

// testReplaceSorts replaces claims of three sorts while claims of these sorts wait. Each edit must have the same result
// as a Release followed by an Acquire.
func testReplaceSorts(e *env) {
	sorts := []func(key, session string) driver.Claim{
		e.claim,
		func(key, session string) driver.Claim { return e.yielding(key, session, 1, 1) },
		func(key, session string) driver.Claim { return e.leased(key, session, long) },
	}
	for _, sort := range sorts {
		for _, waiter := range sorts {
			for _, published := range []bool{false, true} {
				key, session := newID(), e.session()
				old, first, next := sort(key, session), waiter(key, e.session()), sort(key, session)
				e.hold(old)
				if published {
					e.publish(old, []byte("value"))
				}
				e.queue(first)
				s := e.replace(old, next, e.far)
				e.wantHolders(s, first)
				read := e.load(key)
				e.wantHolders(read, first)
				e.wantQueue(read, next)
				if s.Position != 1 || s.Value != nil || read.Value != nil {
					e.Errorf("state %+v, Load %+v; want %s first in the queue, and no value", s, read, next.ID)
				}
				if first.Lease > 0 {
					e.extend(first)
				}
			}
		}
	}
	key, session := newID(), e.session()
	old, next := e.weighted(key, session, 3, 3), e.weighted(key, session, 3, 3)
	reader := e.weighted(key, e.session(), 1, 3)
	e.hold(old)
	e.queue(reader)
	e.wantHolders(e.replace(old, next, e.far), reader)
	e.wantQueue(e.load(key), next)
}
