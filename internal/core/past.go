package core

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A pastClaim has left the store. It is remembered until no notice, reply or request about it can arrive late.
type pastClaim struct {
	number     uint64
	key        string
	token      int64  // token of its grant; 0: it was never granted
	acks       uint64 // session.acks when it left
	joinsUntil int64  // claim.joinsUntil in Unix nanoseconds; 0: no request can join; discarding: a Discard is under way

	applied driver.OpTime // when its release was applied; zero: a fail-over can't undo the release
}

const (
	discarding = -1
	longAgo    = 1
)

// leaveStore ends a claim that the store no longer has. If an unanswered request, or a copy of an answered request,
// could still make the claim join again, the claim stays a past claim until none can, and is then discarded. Otherwise
// it is remembered for two heartbeats, so that late notices and replies about it are ignored. It is forgotten at once
// if nothing can be late, because the session does not listen and no command is under way.
func (c *Core) leaveStore(cl *claim, x *args) {
	cl.refused = nil
	if x.cause == nil {
		x.cause = cl.lostBy
	}
	if x.cause == nil { // otherwise the store may still have it
		c.noteReleased(cl)
	}
	c.settled(cl, x.cause)
	undoable, late := x.applied != driver.OpTime{}, !cl.joinsUntil.IsZero() || c.listener.running() || len(c.sent) > 0
	if cl.request.Session == c.session.id && (undoable || late) {
		p := pastClaim{number: cl.number, key: cl.request.Key, token: cl.request.Token, acks: c.session.acks, applied: x.applied}
		if !cl.joinsUntil.IsZero() {
			p.joinsUntil = cl.joinsUntil.UnixNano()
		}
		if c.past = append(c.past, p); p.joinsUntil > 0 && c.discards.due == never {
			c.discardLater()
		}
	}
}

// isNew reports whether a notice or reply about a claim is newer than the past claim with the same id. The notice or
// reply has the given id and token.
func (c *Core) isNew(id string, token int64) bool {
	n, _ := numberOf(id)
	i := slices.IndexFunc(c.past, func(p pastClaim) bool { return p.number == n })
	return i < 0 || token > c.past[i].token
}

// mayBeUndone reports whether the release of a past claim may have been undone, and no Discard has been sent for it
// yet.
func (c *Core) mayBeUndone(id string) bool {
	n, _ := numberOf(id)
	return slices.ContainsFunc(c.past, func(p pastClaim) bool {
		return p.number == n && p.applied != driver.OpTime{} && p.joinsUntil != discarding && p.joinsUntil != longAgo
	})
}

// forgetPast forgets past claims about which nothing can arrive late. It is called after every acknowledged
// heartbeat.
func (c *Core) forgetPast() {
	c.past = slices.DeleteFunc(c.past, func(p pastClaim) bool {
		return p.joinsUntil == 0 && p.applied == driver.OpTime{} && c.session.acks >= p.acks+2
	})
}

// committed is called when the store reports up to which position its writes are committed. If a release was applied in
// another term, it may have been undone without the store's knowing, so the claim is discarded.
func (c *Core) committed(at driver.OpTime) {
	var rejoin []pastClaim
	for i := range c.past {
		switch p := &c.past[i]; {
		case p.joinsUntil == discarding, p.joinsUntil == longAgo: // its Discard is under way, or failed and will be sent again
		case p.applied == driver.OpTime{}:
		case p.applied.Term != at.Term:
			if p.joinsUntil > 0 { // discard it again once no request can join
				rejoin = append(rejoin, pastClaim{number: p.number, key: p.key, token: p.token, acks: p.acks, joinsUntil: p.joinsUntil})
			}
			p.joinsUntil = longAgo
		case p.applied.Time <= at.Time:
			p.applied = driver.OpTime{}
		}
	}
	c.past = append(c.past, rejoin...)
}

// forgetJoins clears cl.joinsUntil if the store has the claim, and none of its requests can still join, even if the
// store's clock steps by up to the margin. If the store is not known to have the claim, the answer that its release
// finds nothing may come from a deposed primary, so the claim is discarded later.
func (c *Core) forgetJoins(cl *claim) {
	if cl.stored == present && c.storeClock().After(cl.joinsUntil.Add(c.cfg.Margin)) {
		cl.joinsUntil = time.Time{}
	}
}

// discards schedules the Discards of past claims that could join again because of a copy of a request, or whose release
// may have been undone. They are sent after an acknowledged heartbeat, one at a time, for up to maxDiscards claims.
type discards struct {
	due    Instant // when to send a failed Discard again, or a heartbeat for the next; never: none is needed, or one is under way
	failed int     // consecutive Discards that were refused or not answered
}

// maxDiscards is the most claims that one command discards.
const maxDiscards = 1000

// discard sends a Discard for the claims of which no request can join any more by the store's clock in the last
// acknowledged heartbeat. A primary that was deposed before that heartbeat might not know of a claim that has joined
// again, and would answer that nothing is left of it.
//
// The driver of a replica set, and a router, send no command to the former primary once the new one has answered them.
// Through another router a Discard might reach it.
func (c *Core) discard() {
	c.discards.due = never
	if c.closing != nil || slices.ContainsFunc(c.past, func(p pastClaim) bool { return p.joinsUntil == discarding }) {
		return
	}
	var claims []driver.Claim
	for i := range c.past {
		p := &c.past[i]
		if len(claims) == maxDiscards {
			break
		}
		if c.mayDiscard(p) {
			p.joinsUntil = discarding
			claims = append(claims, driver.Claim{Key: p.key, ID: c.claimID(p.number), Session: c.session.id})
		}
	}
	if len(claims) > 0 {
		c.send(&Command{Op: Discard, Session: c.session.id, Claims: claims}, 0)
	} else {
		c.discardLater()
	}
}

func (c *Core) mayDiscard(p *pastClaim) bool { return p.joinsUntil > 0 && c.noneJoins(p.joinsUntil) }

// noneJoins reports whether requests that can join until the given time, in Unix nanoseconds, could no longer join when
// the last acknowledged heartbeat was executed, even if the store's clock steps by up to the margin.
func (c *Core) noneJoins(until int64) bool {
	return c.session.lastBeat.clock.After(time.Unix(0, until).Add(c.cfg.Margin))
}

// discardLater schedules a heartbeat for the next Discard, in case none is due sooner. It waits one Attempt longer than
// the first claim requires, so that one heartbeat and one Discard do for later claims, too.
func (c *Core) discardLater() {
	if i := slices.IndexFunc(c.past, func(p pastClaim) bool { return p.joinsUntil != 0 }); i >= 0 && c.closing == nil && c.past[i].joinsUntil != discarding {
		left := time.Unix(0, c.past[i].joinsUntil).Sub(c.storeClock())
		c.discards.due = c.now.Add(max(0, left) + c.cfg.Margin + c.cfg.Attempt)
	}
}

// discardsDue sends a failed Discard again, or the heartbeat that must come before the next.
func (c *Core) discardsDue() {
	if c.discards.due > c.now {
		return
	}
	if c.discard(); c.discards.due != never && c.session.heartbeat == 0 {
		c.heartbeatSoon()
	}
}

// discarded handles the answer to a Discard.
func (c *Core) discarded(s *sent, r *Reply) {
	if s.Session != c.session.id {
		return
	}
	if r.Err != nil { // no answer, or refused: a missing privilege may be granted later
		c.discardAgain()
		return
	}
	for i := range c.past {
		if p := &c.past[i]; p.joinsUntil == discarding {
			p.joinsUntil, p.applied = 0, driver.OpTime{}
		}
	}
	c.discards.failed = 0
	c.discard() // more may be due
}

// discardAgain schedules another Discard, after a pause, for the claims of a failed Discard. It puts them behind the
// other past claims, so that claims that can't be discarded don't block the rest.
func (c *Core) discardAgain() {
	var failed []pastClaim
	c.past = slices.DeleteFunc(c.past, func(p pastClaim) bool {
		if p.joinsUntil != discarding {
			return false
		}
		p.joinsUntil = longAgo
		failed = append(failed, p)
		return true
	})
	c.past = append(c.past, failed...)
	c.discards.due = c.now.Add(c.cfg.pause(c.discards.failed))
	c.discards.failed++
}

// unknown looks in st for claims of this session that this process does not know, and releases them. A duplicated
// request that arrives late can create such a claim, even after the claim was released.
func (c *Core) unknown(st *driver.State, about *claim) {
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Session == about.request.Session && h.Claim != about.request.ID && h.Until.IsZero() {
			c.unknownClaim(st.Key, h.Claim, h.Token)
		}
	}
	for i := range st.WaitersAhead {
		if w := &st.WaitersAhead[i]; w.Session == about.request.Session {
			c.unknownClaim(st.Key, w.Claim, 0)
		}
	}
}

func (c *Core) unknownClaim(key, id string, token int64) {
	switch {
	case c.byID(id) != nil:
	case c.isNew(id, token):
		c.orphan(key, id)
	case c.mayBeUndone(id):
		c.heartbeatSoon() // its reply says whether the release was undone (see committed)
	}
}

// orphan releases a claim of this session that is unknown to this process. A copy of the claim's request may
// still be under way.
func (c *Core) orphan(key, id string) {
	n, session := numberOf(id)
	if n == 0 || session != c.session.id || c.claims[n] != nil {
		return
	}
	c.past = slices.DeleteFunc(c.past, func(p pastClaim) bool { return p.number == n })
	cl := c.addClaim(n)
	cl.stored, cl.joinsUntil = present, c.storeClock().Add(c.cfg.Attempt)
	cl.request = driver.Claim{Key: key, ID: id, Session: session}
	c.fire(cl, appeared, args{})
}

func (c *Core) releaseOrphan(cl *claim, x *args) {
	c.do(Orphan{cl.request.ID, cl.request.Key})
	c.release(cl, x)
}
