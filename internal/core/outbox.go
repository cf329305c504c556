package core

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Releases and discards: what is said of claims that nobody here uses any more.

// leave gives the claim up: it is released, unless the store can't have it.
func (c *Core) leave(cl *claim) {
	cl.state, cl.due, cl.call = leaving, never, 0
	if cl.requestOver() {
		c.release(cl)
	}
	c.freeUnlessHeld(cl)
}

// requestOver reports whether no request to join is under way. A release that overtook it would release
// nothing, and the claim would join after it.
func (cl *claim) requestOver() bool { return cl.command == 0 }

// release sends a release.
func (c *Core) release(cl *claim) {
	if cl.command != 0 {
		return
	}
	if !cl.mayBe && cl.answers == cl.requests {
		c.move(cl, answered) // the store never had it
		return
	}
	if c.void(cl.void) {
		cl.void = time.Time{}
	}
	cl.due = never
	cl.command = c.send(Command{Op: Release, Session: cl.session, Edit: driver.Edit{Leave: &driver.Leave{Claim: c.request(cl)}}}, cl.number)
}

// void reports whether a request with that notAfter can't join any more, wherever within the margin the
// store's clock has stepped.
func (c *Core) void(notAfter time.Time) bool {
	return c.storeClock().After(notAfter.Add(c.cfg.Margin))
}

// releaseAnswered takes the reply to a release.
func (c *Core) releaseAnswered(cl *claim, r Reply) {
	switch {
	case r.Lost || r.Err != nil:
		c.move(cl, unanswered)
	case !r.Found && cl.hold != 0 && cl.failed == 0 && cl.doubted == 0:
		// A deposed primary may say so of a claim that was held. Believe it after the next
		// acknowledged heartbeat.
		cl.doubted = c.session.acks
		c.session.due = min(c.session.due, c.now)
	default:
		c.move(cl, answered)
	}
}

// discardDue discards, with one command, all claims that have left and whose requests are void, when one
// of them is due.
func (c *Core) discardDue() {
	if !c.mayDiscard() {
		return
	}
	var claims []driver.Claim
	due := false
	for _, cl := range c.inOrder() {
		switch {
		case cl.state != left:
		case c.void(cl.void) && cl.due != never:
			claims = append(claims, driver.Claim{Key: cl.key, ID: cl.id, Session: cl.session})
			due = due || cl.due <= c.now
		case cl.due == never || cl.due <= c.now: // it has just left, or the store's clock went back
			// One attempt's time longer than this one needs, so that later ones share the command.
			cl.due = c.now.Add(max(0, cl.void.Sub(c.storeClock())+c.cfg.Margin) + c.cfg.Attempt)
		}
	}
	if !due {
		return
	}
	c.discard = c.send(Command{Op: Discard, Session: c.session.id, Claims: claims}, 0)
	for _, d := range claims {
		cl := c.byID(d.ID)
		cl.command, cl.due = c.discard, never
	}
}

// mayDiscard reports whether claims can be discarded now: one command at a time, and none when the session
// closes, with which they end.
func (c *Core) mayDiscard() bool { return c.session.id != "" && c.discard == 0 && !c.closing }

// discarded forgets the claims of the Discard, or has them discarded again.
func (c *Core) discarded(r Reply) {
	c.discard = 0
	for _, cl := range c.inOrder() {
		if cl.state != left || cl.command != r.Command {
			continue
		}
		cl.command = 0
		if r.Lost || r.Err != nil {
			cl.due = c.now.Add(c.cfg.pause(cl.failed))
			cl.failed++
			continue
		}
		c.forget(cl)
	}
}

// forget removes the claim.
func (c *Core) forget(cl *claim) {
	delete(c.claims, cl.number)
	c.freeUnlessHeld(cl)
}

// notify sends notices to others, and takes those for this session.
func (c *Core) notify(notices []driver.Notice) {
	var others []driver.Notice
	for _, n := range notices {
		if n.Session == c.session.id && n.Session != "" {
			c.noticed(n)
		} else {
			others = append(others, n)
		}
	}
	if len(others) > 0 {
		c.out = append(c.out, Notify{others})
	}
}

// sessionsIn returns the sessions between self and the key: those of the holders that live with their
// session, and of the nearest waiters ahead.
func sessionsIn(st *driver.State, self string) []string {
	var ids []string
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Session != self && h.Until.IsZero() {
			ids = append(ids, h.Session)
		}
	}
	for _, w := range st.WaitersAhead {
		if w.Session != self {
			ids = append(ids, w.Session)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
