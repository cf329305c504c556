package dsynctest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// revokeCases test Revoke and the revocations that Heartbeat returns.
func revokeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Revoke/KeysAndClaimsAreComparedExactly", test: testRevokeExact},
		{name: "Revoke/LeavesTheClaimAlone", test: testRevokeClaim},
		{name: "Notice/RevocationIsForItsSession", test: testRevokeNotice},
		{name: "Race/RevocationsAndHeartbeats", test: testRevokeRace},
	}
}

// revoke calls Revoke, which must not fail.
func (e *env) revoke(session string, r driver.Revocation) {
	e.Helper()
	notices, err := e.store.Revoke(e.ctx, session, r)
	if err != nil {
		e.Fatalf("Revoke(%s, %+v): %v", session, r, err)
	}
	e.notices = notices
	for _, n := range notices {
		if !contains([]driver.Notice{revocation(session, r)}, n) {
			e.Errorf("Revoke(%s, %+v) returns notice %+v", session, r, n)
		}
	}
}

// wantRevoked sends a heartbeat that removes the given revocations, and checks that exactly the wanted revocations
// remain, in any order.
func (e *env) wantRevoked(session string, given []driver.Revocation, want ...driver.Revocation) {
	e.Helper()
	p, err := e.store.Heartbeat(e.ctx, session, given)
	if err != nil {
		e.Fatalf("Heartbeat(%s, %+v): %v", session, given, err)
	}
	same := len(p.Revoked) == len(want)
	for _, r := range want {
		same = same && slices.Contains(p.Revoked, r)
	}
	if !same {
		e.Fatalf("Heartbeat(given %+v): revoked %+v, want %+v", given, p.Revoked, want)
	}
}

func testRevokeExact(e *env) {
	session, key := e.session(), newID()
	claim := session + ".1"
	var all []driver.Revocation
	for _, r := range []driver.Revocation{
		{Key: key, Claim: claim}, {Key: key + "x", Claim: claim}, {Key: key, Claim: claim + "1"},
		{Key: "$" + key, Claim: claim}, {Key: "$$NOW", Claim: claim}, {Key: key + ".a", Claim: claim}, {Key: `{"$gt":` + key, Claim: claim},
	} {
		e.revoke(session, r)
		all = append(all, r)
	}
	e.wantRevoked(session, nil, all...)
	for len(all) > 0 {
		r := all[0]
		all = all[1:]
		e.wantRevoked(session, []driver.Revocation{r}, all...)
	}
}

func testRevokeClaim(e *env) {
	key, session, other := newID(), e.session(), e.session()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	for _, c := range []driver.Claim{holder, waiter} {
		r := driver.Revocation{Key: key, Claim: c.ID}
		e.revoke(session, r)
		e.wantRevoked(other, nil)
		e.wantRevoked(session, []driver.Revocation{r})
	}
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantQueue(s, waiter)
}

func testRevokeNotice(e *env) {
	l := e.hears()
	if l == nil {
		return
	}
	var all []driver.Revocation
	for i := range 3 {
		r := driver.Revocation{Key: newID(), Claim: fmt.Sprintf("%s.%d", l.session, i+1)}
		e.revoke(l.session, r)
		e.wantNotices(revocation(l.session, r))
		all = append(all, r)
	}
	e.wantRevoked(l.session, all[:2], all[2])
	e.revoke(l.session, all[2]) // the revocation exists already, as if the first Revoke's reply had been lost
	if len(e.notices) > 0 {
		e.wantNotices(revocation(l.session, all[2]))
	}
	e.revoke(l.session, all[0]) // was removed before
	e.wantNotices(revocation(l.session, all[0]))
}

// testRevokeRace adds revocations while heartbeats remove others. In the end, exactly the revocations that no
// heartbeat has removed must remain.
func testRevokeRace(e *env) {
	const n = 8
	session := e.session()
	var stay, taken []driver.Revocation
	for i := range n {
		stay = append(stay, driver.Revocation{Key: newID(), Claim: fmt.Sprintf("%s.%d", session, i)})
		taken = append(taken, driver.Revocation{Key: newID(), Claim: fmt.Sprintf("%s.%d", session, n+i)})
		e.revoke(session, taken[i])
	}
	errs := make([]error, 2*n)
	together(len(errs), func(i int) {
		if i%2 == 0 {
			_, errs[i] = e.store.Revoke(e.ctx, session, stay[i/2])
		} else {
			_, errs[i] = e.store.Heartbeat(e.ctx, session, taken[i/2:i/2+1])
		}
	})
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("Revoke and Heartbeat at the same time: %v", err)
	}
	e.wantRevoked(session, nil, stay...)
}
