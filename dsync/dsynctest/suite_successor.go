package dsynctest

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// successorCases test Release with Successor.
func successorCases() []conformanceCase {
	return []conformanceCase{
		{name: "Successor/NotWithKeep", test: testSuccessorWithKeep},
		{name: "Notice/ReleaseGrantsTheSuccessor", test: testNoticeSuccessor},
	}
}

// releaseTo releases c with the given Successor.
func (e *env) releaseTo(c, successor driver.Claim, wantFound bool) {
	e.Helper()
	if h, ok := e.load(c.Key).Holder(c.ID); ok {
		c.Token, c.NoneWaiting = h.Token, e.alone[c.ID]
	}
	e.releaseAs(c, driver.Release{Successor: successor.ID}, wantFound)
}

// electing returns the claims of a new election: the leader's, which has published a value, and those of n
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

func testSuccessorWithKeep(e *env) {
	leader, c := e.electing(2)
	e.releaseAs(leader, driver.Release{Keep: long, Successor: c[1].ID}, true)
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
