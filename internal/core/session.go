package core

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A session is the registration under one id.
type session struct {
	id     string    // "": none
	sent   Instant   // before the send of the last acknowledged heartbeat
	due    Instant   // when the next heartbeat is due; never: one is under way
	failed int       // heartbeats, or registrations, that failed in a row
	acks   uint64    // heartbeats that were acknowledged
	clock  time.Time // the store's, in the last reply that had it
	at     Instant   // when that reply came

	registering   uint64  // the command that registers; 0: none
	registerAt    Instant // when to try again; 0: not waiting for that
	unregistering bool
}

// deadline returns when the session is lost unless a heartbeat is acknowledged before.
func (c *Core) deadline() Instant { return c.session.sent.Add(c.cfg.hold(c.cfg.TTL)) }

// storeClock returns a time that the store's clock has surely reached.
func (c *Core) storeClock() time.Time { return c.clockAt(c.now) }

// clockAt is storeClock at another time than that of the last Step.
func (c *Core) clockAt(now Instant) time.Time { return c.session.clock.Add(now.Sub(c.session.at)) }

// sawClock records the store's clock from a reply that has just come.
func (c *Core) sawClock(now time.Time) { c.session.clock, c.session.at = now, c.now }

// register registers the session unless it is live or about to be.
func (c *Core) register() {
	s := &c.session
	if s.id != "" || s.registering != 0 || s.registerAt > 0 {
		return
	}
	s.registering = c.send(Command{Op: Register}, 0)
}

func (c *Core) registered(s sent, r Reply) {
	c.session.registering = 0
	if r.Lost || r.Err != nil {
		c.session.registerAt = c.now.Add(c.cfg.pause(c.session.failed))
		c.session.failed++
		return
	}
	acks := c.session.acks
	c.session = session{id: r.Session, sent: s.at, acks: acks + 1}
	c.sawClock(r.Now)
	c.session.due = c.now.Add(c.cfg.jitter(c.cfg.Heartbeat))
	if c.now >= c.deadline() { // the reply came too late
		c.lose()
		return
	}
	c.turns()
}

// sessionDue sends the heartbeat or the registration that is due.
func (c *Core) sessionDue() {
	s := &c.session
	if s.registerAt > 0 && s.registerAt <= c.now {
		s.registerAt = 0
		c.turns()
	}
	if s.id != "" && s.due <= c.now && !s.unregistering {
		s.due = never
		c.send(Command{Op: Heartbeat, Session: s.id}, 0)
	}
}

func (c *Core) heartbeatAnswered(s sent, r Reply) {
	ss := &c.session
	switch {
	case s.session != ss.id: // of a session that was lost
		return
	case errors.Is(r.Err, driver.ErrSessionExpired):
		c.lose()
		return
	case r.Lost || r.Err != nil:
		ss.due = c.now.Add(c.cfg.pause(ss.failed))
		ss.failed++
		return
	}
	ss.sent, ss.failed = s.at, 0
	ss.acks++
	c.sawClock(r.Now)
	ss.due = max(c.now, s.at.Add(c.cfg.jitter(c.cfg.Heartbeat)))
	c.forgetOthers()
	for _, v := range r.Revoked {
		c.revoked(Revoked{v.Claim, v.Key})
	}
	for _, cl := range c.inOrder() {
		if cl.state == leaving && cl.doubted > 0 && cl.doubted < ss.acks && cl.command == 0 {
			c.move(cl, timer)
		}
	}
}

// lose ends the session. Nothing is sent under its id again.
func (c *Core) lose() {
	acks := c.session.acks
	c.session = session{acks: acks}
	for _, cl := range c.inOrder() {
		c.move(cl, sessionEnd)
	}
	c.turns()
}
