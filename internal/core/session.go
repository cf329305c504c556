package core

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A session is a registration under one id.
type session struct {
	id     string  // "": not registered
	sent   Instant // when the last acknowledged heartbeat was sent; the deadline counts from it
	failed int     // consecutive failed heartbeats or registrations
	why    error   // why the last heartbeat or registration failed; nil: it succeeded
	acks   uint64  // acknowledged heartbeats in the Core's life
	acked  uint64  // the last acknowledged heartbeat or registration

	due       Instant // when the next heartbeat is due
	heartbeat uint64  // the heartbeat under way; 0: none
	lastBeat  struct {
		at    Instant   // when the last acknowledged heartbeat was answered
		clock time.Time // the store's clock in that answer
	}

	clock time.Time // the store's clock in the last reply that reported it
	at    Instant   // when that reply came

	revoked map[driver.Revocation]bool // revocations that the store has recorded

	registering uint64  // the command that registers; 0: none
	registerAt  Instant // when to register again; never: nobody needs the session
	tried       Instant // when the last unanswered registration was sent (its error is in why); 0: none
}

// Deadline returns when the session is lost if no further heartbeat is acknowledged.
func (c *Core) Deadline() Instant { return c.session.sent.Add(c.cfg.Hold(c.cfg.TTL)) }

// needSession registers the session, unless it is registered or will be.
func (c *Core) needSession() {
	if c.session.registerAt == never {
		c.register()
	}
}

// register registers the session now, unless it is registered, registering or closing.
func (c *Core) register() {
	if s := &c.session; s.id == "" && s.registering == 0 && c.closing == nil {
		s.registerAt = never
		s.registering = c.sendNow(&sent{Command: &Command{Op: Register}})
	}
}

func (c *Core) registered(s *sent, r *Reply) {
	ss := &c.session
	ss.registering = 0
	if r.Err != nil {
		ss.registerAt = c.now.Add(c.cfg.pause(ss.failed))
		ss.failed++
		if r.Lost { // the store may have registered the id all the same
			ss.why, ss.tried = r.Err, s.at
		}
		if c.closing != nil {
			c.closing.listed = c.mayBeListed()
		}
		c.do(Registered{Err: r.Err})
		c.notRegistered(r)
		return
	}
	c.checkJump(s.at, r.Now)
	c.session = session{id: r.Session, sent: s.at, acks: ss.acks + 1, registerAt: never}
	ss.due = c.now.Add(c.cfg.jitter(c.cfg.Heartbeat, 10))
	ss.lastBeat.at, ss.lastBeat.clock = c.now, r.Now
	c.sawClock(r.Now)
	c.lanes.open = r.Lanes
	if c.closing == nil {
		c.sweepLater()
	}
	c.do(Registered{Session: r.Session})
	if c.now >= c.Deadline() { // the reply came too late
		c.checkDeadline()
		return
	}
	switch {
	case c.closing != nil:
	case c.cfg.AlwaysListen:
		c.listen(0)
	case len(c.listener.keys) > 0:
		c.listen(gather)
	}
	if len(c.listener.keys) > 0 {
		c.announce()
	}
	c.acknowledged(r.Command)
	c.beginAdmitted()
}

// mayBeListed returns the error of an unanswered registration if, because of that registration, the store may list a
// session whose id the Core does not know.
func (c *Core) mayBeListed() error {
	if s := &c.session; s.tried > 0 && c.now < s.tried.Add(c.cfg.Attempt+c.cfg.TTL) {
		return s.why
	}
	return nil
}

// sessionDue sends the heartbeat or registration that is due.
func (c *Core) sessionDue() {
	s := &c.session
	if s.registerAt <= c.now {
		s.registerAt = never
		c.beginAdmitted()
	}
	if s.id != "" && s.due <= c.now && s.heartbeat == 0 && !c.unregistering() {
		s.due = never
		given := c.revocationsDone()
		s.heartbeat = c.sendNow(&sent{Command: &Command{Op: Heartbeat, Session: s.id, Revoked: given}})
	}
}

// heartbeatSoon makes the session send a heartbeat now, or once the current heartbeat is answered.
func (c *Core) heartbeatSoon() { c.session.due = min(c.session.due, c.now) }

func (c *Core) heartbeatAnswered(s *sent, r *Reply) {
	ss := &c.session
	if s.Session != ss.id { // the heartbeat was sent for a session that has been lost
		return
	}
	ss.heartbeat = 0
	took := c.now.Sub(s.at)
	switch {
	case errors.Is(r.Err, driver.ErrSessionExpired):
		c.lose(r.Err)
		c.sessionEnded()
		return
	case r.Err != nil:
		ss.due = c.now.Add(c.cfg.pause(ss.failed))
		ss.failed++
		ss.why = r.Err
		for _, cl := range c.breaksWaiting() {
			if c.failure = r.Err; errors.Is(r.Err, driver.ErrRefused) {
				c.fire(cl, refused, args{cause: r.Err})
			}
		}
		c.do(Beat{Took: took, Left: c.Deadline().Sub(c.now), Err: r.Err})
		return
	}
	c.checkJump(s.at, r.Now)
	ss.sent, ss.failed = s.at, 0
	ss.why = nil
	ss.lastBeat.at, ss.lastBeat.clock = c.now, r.Now
	ss.acks++
	c.sawClock(r.Now)
	if ss.due == never { // no other heartbeat is scheduled
		ss.due = max(c.now, s.at.Add(c.cfg.jitter(c.cfg.Heartbeat, 10)))
	}
	c.forgetOthers()
	c.keepListening()
	for _, v := range s.Revoked {
		delete(ss.revoked, v)
	}
	for _, v := range r.Revoked {
		c.recorded(v)
	}
	c.acknowledged(r.Command)
	c.committed(r.Committed)
	c.forgetPast()
	if c.discards.failed == 0 { // otherwise the failed Discard is due after a pause
		c.discard()
	}
	c.look()
	c.do(Beat{Took: took, Left: c.Deadline().Sub(c.now)})
}

// checkJump reports a jump of the store's clock between the last acknowledged heartbeat and this one. sent is when this
// one was sent, and now is the store's time in its reply. checkJump reports only jumps that are certainly greater than
// the margin. The store read its clock at some moment between each heartbeat's send and its answer, so the true
// interval between the two readings lies between lo and hi. A registration counts as a heartbeat, because a forward
// jump may end the previous session, and then no heartbeat of that session is acknowledged. The interval from the last
// heartbeat to a registration can be long, so the limit allows for clocks that run at different rates, as [Config.Hold]
// does.
func (c *Core) checkJump(sent Instant, now time.Time) {
	const truncation = time.Millisecond
	if c.session.lastBeat.clock.IsZero() {
		return // this is the first heartbeat
	}
	d := now.Sub(c.session.lastBeat.clock)
	lo, hi := sent.Sub(c.session.lastBeat.at)-truncation, c.now.Sub(c.session.sent)+truncation
	limit := c.cfg.Margin + hi/1000
	switch {
	case d > hi+limit:
		c.do(Jumped{d - hi})
	case d < lo-limit:
		c.do(Jumped{d - lo})
	}
}

// checkDeadline ends the session if its deadline has passed, and ends holds whose lease or progress limit has run out.
func (c *Core) checkDeadline() {
	if c.session.id != "" && c.now >= c.Deadline() {
		cause := &outage{c.cfg.Hold(c.cfg.TTL), c.session.why}
		if c.closing != nil {
			c.closing.listed = cause
		}
		c.lose(cause)
	}
	for _, cl := range c.endsDue() {
		c.fire(cl, timeOver, args{})
	}
}

// endsDue returns the held claims whose lease or progress limit has run out.
func (c *Core) endsDue() (over []*claim) {
	for _, e := range c.timers {
		if cl := c.claims[e.number]; e.at <= c.now && cl != nil && cl.state == held && cl.due <= c.now && !slices.Contains(over, cl) {
			over = append(over, cl)
		}
	}
	slices.SortFunc(over, byNumber)
	return over
}

// lose ends the session. After that, only commands for leases are sent under its id.
func (c *Core) lose(cause error) {
	s := c.session
	c.session = session{acks: s.acks, sent: s.sent, lastBeat: s.lastBeat, clock: s.clock, at: s.at, due: never, registerAt: never}
	c.sweeper.due = never
	c.noteUndoable(cause)
	c.discards, c.past, c.looks = discards{due: never}, nil, looks{}
	c.stopListening()
	if m := c.messages[c.topics[topic{op: Announce}]]; m != nil {
		c.forgetMessage(m)
	}
	ending := c.those(func(cl *claim) bool { // and leases in doubt: nothing would resolve the doubt any more
		return cl.request.Session == s.id && (!cl.outlives() || cl.state == held && cl.doubted > 0)
	})
	lost := 0
	for _, cl := range ending {
		switch cl.state {
		case held:
			lost++
		case windingDown, leaving:
			c.noteUnreleased(cl, cause)
		}
		if cl.outlives() { // the store may have it, so it is released
			c.fire(cl, deleted, args{cause: fmt.Errorf("the store did not show the lease, and its session has ended: %w", cause)})
		} else {
			c.fire(cl, sessionEnd, args{cause: cause})
		}
	}
	c.do(SessionLost{s.id, lost, cause})
	c.beginAdmitted()
}

// recorded handles a revocation that is recorded in the store.
func (c *Core) recorded(v driver.Revocation) {
	s := &c.session
	if s.id == "" || s.revoked[v] {
		return
	}
	if s.revoked == nil {
		s.revoked = make(map[driver.Revocation]bool)
	}
	s.revoked[v] = true
	c.revoked(v)
}

// revoked gives up the claim, because somebody wants the key.
func (c *Core) revoked(v driver.Revocation) {
	switch cl := c.byID(v.Claim); {
	case cl == nil && c.closing != nil:
		// Close may have kept the claim in the store for the rest of its holder's grace.
	case cl == nil:
		c.unknownClaim(v.Key, v.Claim, 0)
	default:
		c.fire(cl, revoke, args{cause: ErrRevoked})
	}
}

// revocationsDone returns the revocations that are done: their claims are unknown or lost, so there is nothing to give
// up.
func (c *Core) revocationsDone() (given []driver.Revocation) {
	for _, v := range sortedRevocations(c.session.revoked) {
		if cl := c.byID(v.Claim); cl == nil || cl.state == lost {
			given = append(given, v)
		}
	}
	return given
}
