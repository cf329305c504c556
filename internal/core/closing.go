package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// closing is what Close has done so far, and what it has to give up.
//
// Close has a bound that does not depend on the store. It waits for holders no longer than their grace. What it
// sends it sends again until there is an answer, as long as the store answers anything within the time of one
// attempt; and from a [Hurry] on it sends everything once, all at a time, and waits for one attempt. Then it gives
// up, and says what the store may go on holding.
type closing struct {
	phase       closePhase
	due         Instant      // when Close gives up on the store; never: it is done
	command     uint64       // the Unregister under way, or 0
	failed      int          // how many Unregisters have had no answer
	again       Instant      // when the next one is due after that
	notReleased []unreleased // what the store may go on holding, in the order in which that became known
	listed      error        // why the session may stay registered; nil: it does not
}

type closePhase int

const (
	patient closePhase = iota // the ctx of Close has not ended
	hurried
	closed
)

// hurryLanes is how many times as many commands may be under way after a Hurry: there is no time to send them one
// after the other. A thousand that wait in a driver for a connection take some ten megabytes.
const hurryLanes = 32

// An unreleased claim is one that the store may go on holding after Close.
type unreleased struct {
	key string
	end endOf
	why error
}

// endOf says when the store lets go of a claim that was not released.
type endOf int

const (
	withSession endOf = iota // when its session is unregistered, or expires
	withGrace                // the same, but its holder's grace may be running, so the session must not be unregistered
	byItself                 // when its lease is over
)

// errNoAnswer is why something was not done of which the store has said nothing.
var errNoAnswer = fmt.Errorf("the store did not answer in time: %w", context.DeadlineExceeded)

// A NotReleasedError says which keys Close could not release, as far as it knows. It matches [ErrNotReleased].
type NotReleasedError struct {
	Keys []string // sorted, each once
	Err  error    // why the first of them was not released
}

func (e *NotReleasedError) Error() string {
	const shown = 3
	names := make([]string, 0, shown)
	for _, key := range e.Keys[:min(shown, len(e.Keys))] {
		names = append(names, fmt.Sprintf("%q", key))
	}
	list := strings.Join(names, ", ")
	if more := len(e.Keys) - len(names); more > 0 {
		list = fmt.Sprintf("%s and %d more", list, more)
	}
	return fmt.Sprintf("%v: %s: %v", ErrNotReleased, list, e.Err)
}

// Is reports whether target is [ErrNotReleased].
func (e *NotReleasedError) Is(target error) bool { return target == ErrNotReleased }

func (e *NotReleasedError) Unwrap() error { return e.Err }

// unregistering reports whether the session is unregistered, or is about to be.
func (c *Core) unregistering() bool {
	return c.closing != nil && (c.closing.command != 0 || c.closing.failed > 0)
}

// repeats reports whether a command that had no answer is sent again: after a Hurry each is sent once.
func (c *Core) repeats(s *sent) bool {
	cg := c.closing
	return cg == nil || cg.phase == patient || cg.phase == hurried && s.at < cg.due.Add(-c.cfg.Attempt)
}

// pause returns how long to wait before what has failed so often is sent again.
func (c *Core) pause(failed int) time.Duration {
	if c.closing != nil && c.closing.phase == hurried {
		return 0
	}
	return c.cfg.pause(failed)
}

// close gives up all that is held and waited for.
func (c *Core) close() {
	if c.closing != nil {
		return
	}
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
		c.next(q, key)
	}
	for _, cl := range c.those(func(*claim) bool { return true }) {
		switch {
		case cl.state <= dating:
			c.refuse(cl, ErrClosed)
		case cl.state == held && cl.fixed(): // it ends by itself
			c.loseHold(cl, ErrClosed)
		case cl.state == held:
			c.windDown(cl, ErrClosed)
		case cl.state == lingering:
			c.release(cl)
		}
	}
	for _, m := range c.inOrder() {
		if m.command == 0 && m.began == never {
			c.messageDue(m)
		}
	}
}

var errClosed = LostTo(ErrClosed)

// hurry sends what is left to send, once, and gives the store one attempt's time to answer it all. The claims whose
// holders are not done it leaves in the store for the rest of their grace. The store counts that by its own clock,
// which may run faster or jump by up to the margin.
func (c *Core) hurry() {
	cg := c.closing
	if cg == nil || cg.phase != patient {
		return
	}
	cg.phase, cg.due = hurried, c.now.Add(c.cfg.Attempt)
	c.fillLanes()
	for _, cl := range c.those(func(cl *claim) bool { return cl.state == windingDown || cl.state == leaving }) {
		if cl.state == leaving {
			if cl.command == 0 && cl.doubted == 0 { // one that is doubted waits for a heartbeat
				c.release(cl)
			}
			continue
		}
		left := cl.due.Sub(c.now)
		left += left/1000 + c.cfg.Margin
		passed := errClosed
		if l := cl.leave; l != nil && l.Keep > 0 {
			left, passed = max(left, l.keep.Sub(c.now)), l.passed
		}
		cl.leave = &leave{Release: driver.Release{Keep: left}, keep: c.now.Add(left), grace: true, passed: passed}
		c.release(cl)
	}
	for _, m := range c.inOrder() {
		if m.command == 0 {
			c.messageDue(m)
		}
	}
	cg.again = c.now
}

// storeAnswered gives the store another attempt's time, unless there is no more.
func (c *Core) storeAnswered() {
	if cg := c.closing; cg != nil && cg.phase == patient {
		cg.due = max(cg.due, c.now.Add(c.cfg.Attempt))
	}
}

// abandon gives up the release of a claim.
func (c *Core) abandon(cl *claim, why error) {
	c.noteUnreleased(cl, why)
	c.settled(cl, fmt.Errorf("%w: %w: %w", ErrNotReleased, ErrClosed, why))
	c.leftStore(cl)
}

// noteUnreleased remembers, for Close, that the store may go on holding the claim.
func (c *Core) noteUnreleased(cl *claim, why error) {
	if c.closing == nil {
		return
	}
	u := unreleased{key: cl.request.Key, why: why}
	switch {
	case cl.fixed() && (cl.extends > 0 || !cl.until.IsZero()): // else it has no end yet
		u.end = byItself
	case cl.state == windingDown || cl.leave != nil && cl.leave.grace:
		u.end = withGrace
	}
	c.closing.notReleased = append(c.closing.notReleased, u)
}

// closeDue unregisters the session when Close has nothing else to wait for. If a holder's grace may be running, or
// there is no time for it, the session is left to expire.
func (c *Core) closeDue() {
	cg := c.closing
	switch {
	case cg.phase == closed:
		return
	case cg.due <= c.now:
		c.closeAnyway(c.why())
		return
	case cg.command != 0 || c.now < cg.again || c.session.registering != 0 || c.session.beating != 0:
		return
	}
	for _, cl := range c.claims {
		if cl.state == windingDown || cl.state == leaving {
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
	default: // a heartbeat under way could have arrived after it
		if cg.failed == 0 {
			c.storeAnswered()
		}
		cg.command = c.sendNow(&sent{session: c.session.id}, &Command{Op: Unregister, Session: c.session.id})
	}
}

// unregistered takes the answer to an Unregister, which ends Close. It frees what ends with the session. An
// Unregister without an answer is repeated while there is time.
func (c *Core) unregistered(s *sent, r *Reply) {
	cg := c.closing
	cg.command = 0
	if r.Lost && c.session.id == s.session && c.repeats(s) {
		cg.failed++
		cg.listed, cg.again = r.Err, c.now.Add(c.pause(cg.failed))
		return
	}
	if c.session.id != "" {
		cg.listed = r.Err
		c.lose(ErrClosed)
	}
	if r.Err == nil { // what was being released still, such as a claim that nobody knew, has ended too
		c.sessionEnded()
	}
}

// sessionEnded is called when the session is over in the store, too.
func (c *Core) sessionEnded() {
	if cg := c.closing; cg != nil {
		cg.listed = nil
		cg.notReleased = slices.DeleteFunc(cg.notReleased, func(u unreleased) bool { return u.end != byItself })
	}
}

// closeAnyway gives up whatever has had no answer, and ignores what comes later.
func (c *Core) closeAnyway(why error) {
	cg := c.closing
	for _, cl := range c.those(func(cl *claim) bool { return cl.state == windingDown || cl.state == leaving }) {
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
	clear(c.changes)
	c.sent = make(map[uint64]*sent)
	c.lanes = lanes{}
	c.closeDone()
}

// why returns why the store has not answered.
func (c *Core) why() error {
	if c.failure != nil {
		return c.failure
	}
	return errNoAnswer
}

// closeDone says that Close is done, and what is not.
func (c *Core) closeDone() {
	cg := c.closing
	cg.phase, cg.due, cg.again = closed, never, never
	var errs []error
	if len(cg.notReleased) > 0 {
		e := &NotReleasedError{Err: cg.notReleased[0].why}
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
