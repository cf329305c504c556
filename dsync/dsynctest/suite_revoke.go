package dsynctest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// revokeCases test Revoke and what Heartbeat says of it.
func revokeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Revoke/StandsUntilItIsTakenOff", test: testRevokeStands},
		{name: "Revoke/AllThatStandAreListed", test: testRevokeAll},
		{name: "Revoke/IsNotAddedTwice", test: testRevokeTwice},
		{name: "Revoke/KeysAndClaimsAreComparedExactly", test: testRevokeExact},
		{name: "Revoke/StandsThroughARegister", test: testRevokeRegister},
		{name: "Revoke/OfTheLapsedIsNoHeartbeat", test: testRevokeLapsed},
		{name: "Revoke/OfTheDeadOrUnknown", test: testRevokeDead},
		{name: "Revoke/LeavesTheClaimAlone", test: testRevokeClaim},
		{name: "Revoke/LateHeartbeatsTakeOffNoOther", test: testRevokeLate},
		{name: "Watch/RevocationReachesItsSession", test: testRevokeWatch},
		{name: "Race/RevocationsAndHeartbeats", test: testRevokeRace},
	}
}

// revoke is a Revoke without an error.
func (e *env) revoke(session string, r dsync.Revocation) {
	e.Helper()
	if err := e.store.Revoke(e.ctx, session, r); err != nil {
		e.Fatalf("Revoke(%s, %+v): %v", session, r, err)
	}
}

// wantRevoked checks what stands for a session after what was given up, in any
// order.
func (e *env) wantRevoked(session string, given []dsync.Revocation, want ...dsync.Revocation) {
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

func testRevokeStands(e *env) {
	session := e.session()
	e.wantRevoked(session, nil)
	r := dsync.Revocation{Key: newID(), Claim: session + ".1"} // no such claim
	e.revoke(session, r)
	for range 3 {
		e.wantRevoked(session, nil, r)
	}
	e.wantRevoked(session, []dsync.Revocation{r})
	e.wantRevoked(session, nil)
	e.wantRevoked(session, []dsync.Revocation{r}) // it stands no more
}

func testRevokeAll(e *env) {
	session := e.session()
	var all []dsync.Revocation
	for i := range 20 {
		r := dsync.Revocation{Key: newID(), Claim: fmt.Sprintf("%s.%d", session, i)}
		e.revoke(session, r)
		all = append(all, r)
		e.wantRevoked(session, nil, all...)
	}
	e.wantRevoked(session, []dsync.Revocation{all[7], all[0], all[19]}, slices.Concat(all[1:7], all[8:19])...)
	e.wantRevoked(session, all)
}

func testRevokeTwice(e *env) {
	session := e.session()
	r, other := dsync.Revocation{Key: newID(), Claim: session + ".1"}, dsync.Revocation{Key: newID(), Claim: session + ".2"}
	e.revoke(session, r)
	e.revoke(session, other)
	e.revoke(session, r)
	e.wantRevoked(session, nil, r, other)
	e.wantRevoked(session, []dsync.Revocation{r}, other)
}

func testRevokeExact(e *env) {
	session, key := e.session(), newID()
	claim := session + ".1"
	var all []dsync.Revocation
	for _, r := range []dsync.Revocation{
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
		e.wantRevoked(session, []dsync.Revocation{r}, all...)
	}
}

func testRevokeRegister(e *env) {
	session := e.session()
	r := dsync.Revocation{Key: newID(), Claim: session + ".1"}
	e.revoke(session, r)
	if _, err := e.store.Register(e.ctx, dsync.Member{ID: session, TTL: long}); !errors.Is(err, dsync.ErrSessionExists) { // a late one
		e.Fatalf("Register of a known id: error %v, want ErrSessionExists", err)
	}
	e.wantRevoked(session, nil, r)
}

func testRevokeLapsed(e *env) {
	const ttl = 2 * time.Second
	r := dsync.Revocation{Key: newID(), Claim: "x.1"}
	dies, at := e.sessionTTL(short)
	lives, _ := e.sessionTTL(ttl)
	e.until(at.Add(ttl + time.Millisecond))
	e.revoke(dies, r)
	e.revoke(lives, r)
	if left, err := e.store.Bury(e.ctx, dies); left != 0 || err != nil {
		e.Errorf("Bury of a lapsed session after Revoke = %v, %v; want 0, no error", left, err)
	}
	e.wantRevoked(lives, nil, r)
}

func testRevokeDead(e *env) {
	unknown, killed, buried := newID(), e.session(), newID()
	e.revoke(killed, dsync.Revocation{Key: newID(), Claim: killed + ".1"})
	e.kill(killed)
	if _, err := e.store.Bury(e.ctx, buried); err != nil {
		e.Fatalf("Bury: %v", err)
	}
	for _, id := range []string{unknown, killed, buried} {
		for range 2 {
			if err := e.store.Revoke(e.ctx, id, dsync.Revocation{Key: newID(), Claim: id + ".1"}); !errors.Is(err, dsync.ErrSessionDead) {
				e.Errorf("Revoke of a dead or unknown session: %v, want ErrSessionDead", err)
			}
		}
	}
	e.wantDead(killed)
	e.wantDead(buried)
	// It is unknown, not buried, and nothing stands for it.
	if _, err := e.store.Register(e.ctx, dsync.Member{ID: unknown, TTL: long}); err != nil {
		e.Errorf("Register after Revoke of the unknown session: %v", err)
	}
	e.wantRevoked(unknown, nil)
}

func testRevokeClaim(e *env) {
	key, session, other := newID(), e.session(), e.session()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	for _, c := range []dsync.Claim{holder, waiter} {
		r := dsync.Revocation{Key: key, Claim: c.ID}
		e.revoke(session, r)
		e.wantRevoked(other, nil)
		e.wantRevoked(session, []dsync.Revocation{r})
	}
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, waiter)
}

// testRevokeLate repeats requests after later ones.
func testRevokeLate(e *env) {
	session := e.session()
	first, second := dsync.Revocation{Key: newID(), Claim: session + ".1"}, dsync.Revocation{Key: newID(), Claim: session + ".2"}
	e.revoke(session, first)
	e.wantRevoked(session, []dsync.Revocation{first})
	e.revoke(session, second)
	e.wantRevoked(session, []dsync.Revocation{first}, second) // the heartbeat again
	e.revoke(session, first)                                  // the revocation again: it stands, and can be taken off
	e.wantRevoked(session, nil, first, second)
	e.wantRevoked(session, []dsync.Revocation{first}, second)
	e.wantRevoked(session, []dsync.Revocation{second, second, first})
}

func testRevokeWatch(e *env) {
	session, other := e.session(), e.session()
	w, none := e.watch(session), e.watch(other, newID())
	if w == nil || none == nil {
		return
	}
	var all []dsync.Revocation
	for i := range 3 {
		r := dsync.Revocation{Key: newID(), Claim: fmt.Sprintf("%s.%d", session, i+1)}
		e.revoke(session, r)
		w.wantTold(dsync.EventRevoke, r.Key, r.Claim)
		all = append(all, r)
	}
	e.wantRevoked(session, all[:2], all[2])
	e.revoke(session, all[2])
	none.wantUntold(dsync.EventRevoke)
}

// testRevokeRace revokes while heartbeats take off: what was not given up
// stands in the end.
func testRevokeRace(e *env) {
	const n = 8
	session := e.session()
	var stay, taken []dsync.Revocation
	for i := range n {
		stay = append(stay, dsync.Revocation{Key: newID(), Claim: fmt.Sprintf("%s.%d", session, i)})
		taken = append(taken, dsync.Revocation{Key: newID(), Claim: fmt.Sprintf("%s.%d", session, n+i)})
		e.revoke(session, taken[i])
	}
	errs := make([]error, 2*n)
	together(len(errs), func(i int) {
		if i%2 == 0 {
			errs[i] = e.store.Revoke(e.ctx, session, stay[i/2])
		} else {
			_, errs[i] = e.store.Heartbeat(e.ctx, session, taken[i/2:i/2+1])
		}
	})
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("Revoke and Heartbeat at the same time: %v", err)
	}
	e.wantRevoked(session, nil, stay...)
}
