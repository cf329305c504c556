package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// termCases test the number of grants of an election's key.
func termCases() []conformanceCase {
	return []conformanceCase{
		{name: "Term/CountsEveryGrant", test: testTermCounts},
		{name: "Term/OnlyGrantsCount", test: testTermOnlyGrants},
		{name: "Term/ZeroOfOtherKinds", test: testTermOtherKinds},
		{name: "Watch/GrantCarriesItsTerm", test: testTermInEvents},
	}
}

// candidate returns a new claim to lead.
func (e *env) candidate(key, session string) dsync.Claim {
	c := e.claim(key, session)
	c.Kind = dsync.KindElection
	return c
}

// wantTerm checks the term of a state and of a reading after it.
func (e *env) wantTerm(s dsync.State, want int64) {
	e.Helper()
	if read := e.load(s.Key); s.Term != want || read.Term != want {
		e.Fatalf("term %d, read back as %d, want %d", s.Term, read.Term, want)
	}
}

// testTermCounts changes the leader in every way there is.
func testTermCounts(e *env) {
	key, living := newID(), e.session()
	for term := int64(0); term < 12; {
		first, next := e.candidate(key, living), e.candidate(key, living)

		e.wantTerm(e.acquire(first), term+1) // of a free key
		e.queue(next)
		e.release(first) // by hand-over
		e.wantTerm(e.load(key), term+2)
		e.wantHolders(e.load(key), next)
		e.release(next)
		e.wantTerm(e.load(key), term+2) // nobody leads

		dead := e.session() // from the dead
		e.wantTerm(e.acquire(e.candidate(key, dead)), term+3)
		e.kill(dead)
		leased := e.candidate(key, living) // from a lapsed lease
		leased.Lease = time.Millisecond
		s := e.acquire(leased, dead)
		e.wantTerm(s, term+4)
		e.until(s.Holders[0].Until)
		first = e.candidate(key, living)
		e.wantTerm(e.try(first), term+5)
		e.release(first)
		term += 5
	}

	// One command that grants several.
	all := e.weighted(newID(), living, 3, 3)
	all.Kind = dsync.KindElection
	e.wantTerm(e.acquire(all), 1)
	for range 3 {
		one := e.weighted(all.Key, living, 1, 3)
		one.Kind = dsync.KindElection
		e.queue(one)
	}
	e.release(all)
	e.wantTerm(e.load(all.Key), 4)
}

func testTermOnlyGrants(e *env) {
	key, session := newID(), e.session()
	late := e.ask(e.candidate(key, session), true, e.now().Add(-time.Second))
	e.wantTerm(late, 0)
	leader, waiter := e.candidate(key, session), e.candidate(key, session)
	e.hold(leader)
	for range 2 {
		e.wantTerm(e.acquire(leader), 1)
		e.wantTerm(e.acquire(waiter), 1)
		e.wantTerm(e.try(e.candidate(key, session)), 1)
	}
	e.release(waiter)
	e.releaseKeep(leader, long, true)
	e.wantTerm(e.load(key), 1)
	if err := e.store.Publish(e.ctx, leader, 1, []byte("value")); err != nil {
		e.Errorf("Publish: %v", err)
	}
	e.wantTerm(e.load(key), 1)
}

func testTermOtherKinds(e *env) {
	key, session := newID(), e.session()
	for range 2 {
		c := e.claim(key, session)
		e.wantTerm(e.acquire(c), 0)
		e.release(c)
	}
	c := e.candidate(key, session)
	e.wantTerm(e.acquire(c), 1) // the mutex' grants are none
	e.release(c)
	c = e.claim(key, session)
	e.wantTerm(e.acquire(c), 0)
	e.release(c)
	e.wantTerm(e.acquire(e.candidate(key, session)), 2)
}

func testTermInEvents(e *env) {
	key, session := newID(), e.session()
	w := e.watch(session)
	if w == nil {
		return
	}
	for range 3 {
		leader, waiter := e.candidate(key, e.session()), e.candidate(key, session)
		e.hold(leader)
		e.queue(waiter)
		e.release(leader)
		w.wantGrant(waiter)
		e.release(waiter)
	}
	holder, waiter := e.claim(key, session), e.claim(key, session) // of a key that was an election's
	e.hold(holder)
	e.queue(waiter)
	e.release(holder)
	w.wantGrant(waiter)
}
