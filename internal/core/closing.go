package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// closing is the state of a call of Close.
//
// Close returns within a bounded time even if the store doesn't answer. It waits for holders no longer than
// their grace. It repeats unanswered commands until one attempt's time has passed without any answer from
// the store. A [Hurry] makes it send each remaining command once, all at the same time, and wait for one
// attempt's time. When the time is up, it gives up and reports the keys that may not have been released.
type closing struct {
	phase       closePhase
	due         Instant      // when Close gives up on the store; never once Close is done
	command     uint64       // the Unregister under way, or 0
	failed      int          // number of Unregisters without an answer
	retryAt     Instant      // when to send the next Unregister
	notReleased []unreleased // claims that the store may still hold, in the order in which Close learned of them
	listed      error        // why the session may stay registered; nil if it does not
}

type closePhase int

const (
	patient closePhase = iota // Close's context has not ended
	hurried
	closed
)

// hurryLanes is how many commands are under way after a Hurry, when there is no time to send them one after another. A
// thousand commands that wait for a connection inside a driver use about ten megabytes.
const hurryLanes = 1024

// unreleased is a claim that the store may still have after Close.
type unreleased struct {
	claim uint64
	key   string
	end   endOf
	why   error
}

// endOf is when the store frees a claim that was not released.
type endOf int

const (
	withSession endOf = iota // when its session is unregistered, or expires
	withGrace                // like withSession, but the holder's grace may still be running, so the session must not be unregistered
	byItself                 // when its lease runs out
)

// unregistering reports whether an Unregister is under way or about to be repeated.
func (c *Core) unregistering() bool {
	return c.closing != nil && (c.closing.command != 0 || c.closing.failed > 0)
}

// repeats reports whether an unanswered command is sent again. After a Hurry, commands are sent only once.
func (c *Core) repeats(s *sent) bool {
	cg := c.closing
	return cg == nil || cg.phase == patient || cg.phase == hurried && s.at < cg.due.Add(-c.cfg.Attempt)
}

// close refuses all waiting callers, ends all holds and releases lingering claims.
func (c *Core) close(e Close) {
	if c.closing != nil {
		return
	}
	c.lanes.closing = e.Releases
	c.closing = &closing{due: c.now.Add(c.cfg.Grace + c.cfg.Attempt), listed: c.mayBeListed()}
	c.session.registerAt, c.sweeper.due, c.discards.due = never, never, never
	for _, key := range sortedKeys(c.queues) {
		q := c.queues[key]
		calls := append(q.calls[:len(q.calls):len(q.calls)], q.admitted...)
		for _, a := range q.admitted {
			q.used -= q.share(a.Weight)
		}
		q.calls, q.admitted, q.turn = nil, nil, nil
		for _, a := range calls {
			c.deny(a, ErrClosed)
		}
		c.next(q)
	}
	for _, cl := range c.those(func(*claim) bool { return true }) {
		c.fire(cl, closes, args{cause: ErrClosed})
	}
	c.fillLanes() // not earlier, so that requests that wait for a lane are not sent
	for _, m := range c.inOrder() {
		if m.command == 0 && (m.began == never || c.unwanted(m)) {
			c.messageDue(m)
		}
	}
}

// hurry sends all remaining commands once, and gives the store one attempt's time to answer them. If a claim's holder
// is not done, the store keeps the claim for the rest of the grace and somewhat longer. The extra time is needed
// because the store's clock may run faster than this process's, or jump by up to the margin.
func (c *Core) hurry() {
	cg := c.closing
	if cg == nil || cg.phase != patient {
		return
	}
	cg.phase, cg.due = hurried, c.now.Add(c.cfg.Attempt)
	c.lanes.closing = max(c.lanes.closing, hurryLanes)
	c.fillLanes()
	for _, cl := range c.those(func(cl *claim) bool { return cl.state.in(windingDown | leaving) }) {
		if cl.state == leaving {
			if cl.command == 0 && cl.doubted == 0 { // a claim in doubt waits for a heartbeat
				c.fire(cl, again, args{})
			}
			continue
		}
		left := cl.due.Sub(c.now)
		left += left/1000 + c.cfg.Margin
		notAsSaid := errClosed
		if l := cl.leave; l != nil && l.Keep > 0 {
			left, notAsSaid = max(left, l.keepUntil.Sub(c.now)), l.notAsSaid
		}
		cl.leave = &leave{Release: driver.Release{Keep: left}, keepUntil: c.now.Add(left), grace: true, notAsSaid: notAsSaid}
		c.fire(cl, hurries, args{})
	}
	for _, m := range c.inOrder() {
		if m.command == 0 {
			c.messageDue(m)
		}
	}
	cg.retryAt = c.now
}

// storeAnswered gives Close the time for another attempt, unless Close is in a hurry.
func (c *Core) storeAnswered() {
	if cg := c.closing; cg != nil && cg.phase == patient {
		cg.due = max(cg.due, c.now.Add(c.cfg.Attempt))
	}
}

// abandon gives up the release of a claim.
func (c *Core) abandon(cl *claim, why error) {
	c.noteUnreleased(cl, why)
	c.fire(cl, left, args{cause: fmt.Errorf("%w: %w: %w", ErrNotReleased, ErrClosed, why)})
}

// noteUnreleased records, for Close's error, that the store may still have the claim.
func (c *Core) noteUnreleased(cl *claim, why error) {
	if c.closing == nil {
		return
	}
	u := unreleased{claim: cl.number, key: cl.request.Key, why: why}
	switch {
	case cl.fixed() && (cl.extends > 0 || !cl.until.IsZero()): // otherwise the lease has no end yet and ends with its session
		u.end = byItself
	case cl.state == windingDown || cl.leave != nil && cl.leave.grace:
		u.end = withGrace
	}
	c.closing.notReleased = append(c.closing.notReleased, u)
}

// noteReleased records, for Close's error, that the store has released the claim after all: Close had given up its release,
// and then the claim was shown again.
func (c *Core) noteReleased(cl *claim) {
	if cg := c.closing; cg != nil {
		cg.notReleased = slices.DeleteFunc(cg.notReleased, func(u unreleased) bool { return u.claim == cl.number })
	}
}

// noteUndoable records, for Close's error, the keys whose early release a fail-over may still undo. Once the session is
// unregistered, the store frees them nevertheless.
func (c *Core) noteUndoable(cause error) {
	cg := c.closing
	for i := range c.past {
		if p := &c.past[i]; cg != nil && p.applied != (driver.OpTime{}) {
			cg.notReleased = append(cg.notReleased, unreleased{claim: p.number, key: p.key, why: cmp.Or(cg.listed, cause)})
		}
	}
}

// closeDue unregisters the session when Close has nothing else to wait for. It lets the session expire
// instead if a holder's grace may still be running or Close has run out of time.
func (c *Core) closeDue() {
	cg := c.closing
	switch {
	case cg.phase == closed:
		return
	case cg.due <= c.now:
		c.closeAnyway(c.why())
		return
	case cg.command != 0 || c.now < cg.retryAt || c.session.registering != 0 || c.session.heartbeat != 0:
		return
	}
	for _, cl := range c.claims {
		if cl.state.in(windingDown | leaving) {
			return
		}
	}
	i := slices.IndexFunc(cg.notReleased, func(u unreleased) bool { return u.end == withGrace })
	switch {
	case c.session.id == "":
		if len(c.messages) == 0 {
			c.closeDone()
		}
	case i >= 0:
		c.closeAnyway(cg.notReleased[i].why)
	default: // no heartbeat is under way that could arrive after the Unregister
		cg.command = c.sendNow(&sent{Command: &Command{Op: Unregister, Session: c.session.id}})
	}
}

// unregistered handles the answer to an Unregister, which ends Close. An unanswered Unregister is repeated while
// there is time.
func (c *Core) unregistered(s *sent, r *Reply) {
	cg := c.closing
	cg.command = 0
	if r.Lost && c.session.id == s.Session && c.repeats(s) {
		cg.failed++
		cg.listed, cg.retryAt = r.Err, c.now.Add(c.pause(cg.failed))
		return
	}
	if c.session.id != "" {
		cg.listed = r.Err
		c.lose(ErrClosed)
	}
	if r.Err == nil { // this also freed claims whose release failed
		c.sessionEnded()
	}
}

// sessionEnded records that the store no longer has the session.
func (c *Core) sessionEnded() {
	if cg := c.closing; cg != nil {
		cg.listed = nil
		cg.notReleased = slices.DeleteFunc(cg.notReleased, func(u unreleased) bool { return u.end != byItself })
	}
}

// closeAnyway ends Close. It abandons every unanswered command and ignores later answers.
func (c *Core) closeAnyway(why error) {
	cg := c.closing
	for _, cl := range c.those(func(cl *claim) bool { return cl.state.in(windingDown | leaving) }) {
		c.abandon(cl, why)
	}
	if c.session.id != "" || c.session.registering != 0 {
		cg.listed = why
	}
	if c.session.id != "" {
		c.lose(ErrClosed)
	}
	c.session.registering, c.session.registerAt, cg.command = 0, never, 0
	clear(c.messages)
	clear(c.topics)
	c.sent = make(map[uint64]*sent)
	c.lanes = lanes{}
	c.closeDone()
}

// why returns the error to report for a store that has not answered.
func (c *Core) why() error {
	if c.failure != nil {
		return c.failure
	}
	return errNoAnswer
}

// closeDone ends Close and reports its result.
func (c *Core) closeDone() {
	cg := c.closing
	cg.phase, cg.due, cg.retryAt = closed, never, never
	var errs []error
	if len(cg.notReleased) > 0 {
		e := &NotReleasedError{err: cg.notReleased[0].why}
		for _, u := range cg.notReleased {
			e.Keys = append(e.Keys, u.key)
		}
		slices.Sort(e.Keys)
		e.Keys = slices.Compact(e.Keys)
		errs = append(errs, e)
	}
	if cg.listed != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrNotUnregistered, cg.listed))
	}
	c.do(Closed{errors.Join(errs...)})
}
