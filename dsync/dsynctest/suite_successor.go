package dsynctest

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// successorCases test Leave with Successor.
func successorCases() []conformanceCase {
	return []conformanceCase{
		{name: "Successor/GrantedInTheSameCommand", test: testSuccessor},
		{name: "Successor/FirstInTheQueue", test: testSuccessorFirst},
		{name: "Successor/NotWaiting", test: testSuccessorNotWaiting},
		{name: "Successor/OnlyFromAHolder", test: testSuccessorOfWaiter},
		{name: "Successor/RepeatedOrLatePrefersNobody", test: testSuccessorRepeated},
		{name: "Successor/FitsOrWaitsAtTheHead", test: testSuccessorFits},
		{name: "Successor/NotWithKeep", test: testSuccessorWithKeep},
		{name: "Notice/ReleaseGrantsTheSuccessor", test: testNoticeSuccessor},
	}
}

// releaseTo releases c, with its successor.
func (e *env) releaseTo(c, successor driver.Claim, wantFound bool) {
	e.Helper()
	if h, ok := e.load(c.Key).Holder(c.ID); ok {
		c.Token, c.NoneWaiting = h.Token, e.alone[c.ID]
	}
	e.releaseAs(c, driver.Leave{Successor: successor.ID}, wantFound)
}

// electing returns a key of an election with a leader that has published something, and n
// candidates.
func (e *env) electing(n int) (leader driver.Claim, candidates []driver.Claim) {
	e.Helper()
	leader = e.candidate(newID(), e.session())
	e.hold(leader)
	e.publish(leader, []byte("the leader's"))
	for range n {
		c := e.candidate(leader.Key, e.session())
		e.queue(c)
		candidates = append(candidates, c)
	}
	return leader, candidates
}

func testSuccessor(e *env) {
	leader, c := e.electing(4)
	e.releaseTo(leader, c[2], true)
	s := e.load(leader.Key)
	e.wantHolders(s, c[2])
	e.wantQueue(s, c[0], c[1], c[3])
	e.wantTerm(s, 2)
	e.wantValue(s, nil)
	if h := s.Holders[0]; h.Session != c[2].Session || h.Token != s.Token {
		e.Errorf("granted %+v, the key's last token is %d", h, s.Token)
	}
	e.release(c[2])
	e.wantHolders(e.load(leader.Key), c[0])
}

func testSuccessorFirst(e *env) {
	leader, c := e.electing(2)
	e.releaseTo(leader, c[0], true)
	s := e.load(leader.Key)
	e.wantHolders(s, c[0])
	e.wantQueue(s, c[1])
	e.releaseTo(c[0], c[1], true)
	s = e.load(leader.Key)
	e.wantHolders(s, c[1])
	e.wantQueue(s)
}

func testSuccessorNotWaiting(e *env) {
	leader, c := e.electing(3)
	e.release(c[1])
	strangers := []driver.Claim{c[1], leader, e.candidate(leader.Key, c[0].Session), e.candidate(newID(), e.session())}
	held := e.load(leader.Key)
	for _, stranger := range strangers {
		o := driver.Leave{Successor: stranger.ID}
		found, notices, err := storecmd.Release(e.ctx, e.store, leader, o)
		if !errors.Is(err, driver.ErrNotWaiting) || len(notices) > 0 {
			e.Errorf("Release to %s, which does not wait = %t, %+v, %v; want ErrNotWaiting", stranger.ID, found, notices, err)
		}
		s := e.load(leader.Key)
		e.wantHolders(s, leader)
		e.wantQueue(s, c[0], c[2])
		e.wantTerm(s, 1)
		e.wantValue(s, []byte("the leader's"))
		if s.Token != held.Token {
			e.Errorf("a Release that released nothing gave token %d after %d", s.Token, held.Token)
		}
	}
	e.release(leader)
	e.wantHolders(e.load(leader.Key), c[0])
}

func testSuccessorOfWaiter(e *env) {
	leader, c := e.electing(3)
	e.releaseTo(c[0], c[2], false)
	e.releaseTo(e.candidate(leader.Key, c[0].Session), c[2], false) // was never requested
	s := e.load(leader.Key)
	e.wantHolders(s, leader)
	e.wantQueue(s, c...)
	e.releaseTo(e.candidate(newID(), c[0].Session), c[2], false) // of a key that was never used
}

func testSuccessorRepeated(e *env) {
	leader, c := e.electing(4)
	e.releaseTo(leader, c[2], true)
	for range 2 {
		e.releaseTo(leader, c[2], false)
		e.releaseTo(leader, c[3], false)
	}
	s := e.load(leader.Key)
	e.wantHolders(s, c[2])
	e.wantQueue(s, c[0], c[1], c[3])
	e.release(c[2])
	e.releaseTo(leader, c[3], false)
	s = e.load(leader.Key)
	e.wantHolders(s, c[0])
	e.wantQueue(s, c[1], c[3])
}

// testSuccessorFits has a successor that waits for more than its predecessor frees.
func testSuccessorFits(e *env) {
	key, session := newID(), e.session()
	a, b := e.weighted(key, session, 1, 3), e.weighted(key, session, 2, 3)
	light, heavy := e.weighted(key, session, 1, 3), e.weighted(key, session, 3, 3)
	e.hold(a)
	e.hold(b)
	e.queue(light)
	e.queue(heavy)
	e.releaseTo(a, heavy, true)
	s := e.load(key)
	e.wantHolders(s, b)
	e.wantQueue(s, heavy, light)
	e.release(b)
	s = e.load(key)
	e.wantHolders(s, heavy)
	e.wantQueue(s, light)
}

func testSuccessorWithKeep(e *env) {
	leader, c := e.electing(2)
	e.releaseAs(leader, driver.Leave{Keep: long, Successor: c[1].ID}, true)
	s := e.load(leader.Key)
	e.wantHolders(s, leader)
	e.wantQueue(s, c...)
	if s.Holders[0].Until.IsZero() {
		e.Errorf("kept for %v, holds as %+v", long, s.Holders[0])
	}
}

func testNoticeSuccessor(e *env) {
	l := e.hears()
	if l == nil {
		return
	}
	leader, c := e.electing(1)
	mine, last := e.candidate(leader.Key, l.session), e.candidate(leader.Key, l.session)
	e.queue(mine)
	e.queue(last)
	e.releaseTo(leader, last, true)
	e.wantNotices(granted(last, true))
	e.release(last)
	e.wantNotices(granted(c[0], true))
	e.releaseTo(c[0], mine, true)
	e.wantNotices(granted(mine, false))
}
