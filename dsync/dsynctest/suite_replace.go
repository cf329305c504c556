package dsynctest

import (
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// replaceCases test edits with Leave and Join.
func replaceCases() []conformanceCase {
	return []conformanceCase{
		{name: "Replace/GrantsTheFirstWaiter", test: testReplaceGrants},
		{name: "Replace/GrantsItselfIfNobodyWaits", test: testReplaceAlone},
		{name: "Replace/JoinsBehindAll", test: testReplaceBehind},
		{name: "Replace/LateOnlyReleases", test: testReplaceLate},
		{name: "Replace/MayRepeat", test: testReplaceRepeated},
		{name: "Replace/OfAnySort", test: testReplaceSorts},
		{name: "Replace/OfAReleasedClaim", test: testReplaceAbsent},
	}
}

// replace makes old leave and next join in one edit. Its caller knows the token of old.
func (e *env) replace(old, next driver.Claim, notAfter time.Time) driver.State {
	e.Helper()
	if h, ok := e.load(old.Key).Holder(old.ID); ok {
		old.Token, old.NoneWaiting = h.Token, e.alone[old.ID]
	}
	return e.join(driver.Edit{Leave: &driver.Leave{Claim: old}, Join: &driver.Join{Claim: next, Wait: true, NotAfter: notAfter}})
}

func testReplaceGrants(e *env) {
	key, session := newID(), e.session()
	old, first, next := e.claim(key, session), e.claim(key, e.session()), e.claim(key, session)
	e.hold(old)
	e.queue(first)
	s := e.replace(old, next, e.far)
	e.wantHolders(s, first)
	if s.Position != 1 || s.Waiting != 1 || len(s.WaitersAhead) != 0 || s.Token != s.Holders[0].Token || !s.Holders[0].Since.Equal(s.Now) {
		e.Errorf("state %+v; want %s granted now and %s first in the queue", s, first.ID, next.ID)
	}
	read := e.load(key)
	e.wantHolders(read, first)
	e.wantQueue(read, next)
	if read.Token != s.Token || !read.Holders[0].Since.Equal(s.Holders[0].Since) {
		e.Errorf("Load reads %+v back, Acquire returned %+v", read, s)
	}
	e.release(first)
	e.wantHolders(e.load(key), next)
	e.release(next)
	e.wantFree(key)

	// The waiter is notified, and that somebody waits behind it.
	if l := e.hears(); l != nil {
		old, first, next := e.claim(key, session), e.claim(key, l.session), e.claim(key, session)
		e.hold(old)
		e.queue(first)
		e.replace(old, next, e.far)
		e.wantNotices(granted(first, true))
	}
}

func testReplaceAlone(e *env) {
	key, session := newID(), e.session()
	last := e.claim(key, session)
	token := e.hold(last).Token
	for range 3 {
		next := e.claim(key, session)
		s := e.replace(last, next, e.far)
		e.wantHolders(s, next)
		e.wantHolders(e.load(key), next)
		e.wantQueue(e.load(key))
		if s.Position != 0 || s.Waiting != 0 || s.Token != s.Holders[0].Token || s.Token <= token {
			e.Errorf("state %+v after the token %d, want a greater one and nobody in the queue", s, token)
		}
		last, token = next, s.Token
	}
	e.release(last)
	e.wantFree(key)
}

func testReplaceBehind(e *env) {
	key, session := newID(), e.session()
	old := e.claim(key, session)
	e.hold(old)
	var queue []driver.Claim
	for range 11 {
		c := e.claim(key, e.session())
		e.queue(c)
		queue = append(queue, c)
	}
	next := e.claim(key, session)
	s := e.replace(old, next, e.far)
	e.wantHolders(s, queue[0])
	if got, want := strings.Join(ahead(s), " "), strings.Join(claimIDs(queue[3:]), " "); s.Position != 11 || s.Waiting != 11 || got != want {
		e.Errorf("position %d of %d, behind [%s]; want 11 of as many, behind [%s]", s.Position, s.Waiting, got, want)
	}
	e.wantQueue(e.load(key), append(queue[1:], next)...)
}

func testReplaceLate(e *env) {
	key, session := newID(), e.session()
	for _, waits := range []bool{false, true} {
		old, first, next := e.claim(key, session), e.claim(key, e.session()), e.claim(key, session)
		e.hold(old)
		if waits {
			e.queue(first)
		}
		s := e.replace(old, next, e.now().Add(-time.Second))
		if _, held := s.Holder(next.ID); held || s.Position > 0 {
			e.Errorf("state %+v of a request that came too late, want that it joined nothing", s)
		}
		if waits {
			e.wantHolders(s, first)
			e.wantQueue(e.load(key))
			e.release(first)
		}
		e.wantFree(key)
	}
}

func testReplaceRepeated(e *env) {
	key, session := newID(), e.session()
	old, first, next := e.claim(key, session), e.claim(key, e.session()), e.claim(key, session)
	e.hold(old)
	e.queue(first)
	e.replace(old, next, e.far)
	for range 2 {
		s := e.replace(old, next, e.far)
		e.wantHolders(s, first)
		e.wantQueue(e.load(key), next)
		if s.Position != 1 {
			e.Errorf("position %d of a repeated request, want 1", s.Position)
		}
	}
	e.release(first)
	s := e.replace(old, next, e.far)
	e.wantHolders(s, next)
	e.release(next)
	e.wantFree(key)
}

// testReplaceSorts replaces claims of all sorts, with all sorts of claims in the queue. It ends as a
// Release and an Acquire do.
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

func testReplaceAbsent(e *env) {
	key, session := newID(), e.session()
	old, holder, next := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	e.hold(old)
	e.release(old)
	e.hold(holder)
	e.wantHolders(e.replace(old, next, e.far), holder)
	e.wantQueue(e.load(key), next)
	e.release(next)
	e.release(holder)
	e.wantFree(key)
}
