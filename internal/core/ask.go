package core

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// ask sends a caller's command as soon as a lane is free. An Extend whose lease has ended meanwhile is not sent: it could
// keep the key held.
func (c *Core) ask(a *Ask) {
	cl := c.claims[a.Claim]
	if a.Op == Extend && (cl == nil || cl.state != held) {
		c.do(Answer{a, &Reply{Err: driver.ErrNotHeld}})
		return
	}
	if !c.enterLane(false, delayed{ask: a}) {
		return
	}
	cmd := a.Command
	if a.Op == Extend {
		c.extending(&cmd, cl)
	}
	c.sendNow(&sent{Command: &cmd, ask: a})
}

// extending makes cmd, which is about to be sent, an Extend of the claim.
func (c *Core) extending(cmd *Command, cl *claim) {
	cl.extends++
	cmd.Op, cmd.Session = Extend, cl.request.Session
	cmd.Edit.Extend = &driver.Extend{Claim: cl.request, Seq: int64(c.last.send) + 1}
}

// asked handles the answer to a caller's command. [Core.reply] has compared a State in it with what is held.
func (c *Core) asked(s *sent, r *Reply) {
	switch s.Op {
	case Keys:
		for i := range r.States {
			c.seen(&r.States[i], s.at)
		}
	case Read:
		for i := range r.Members {
			c.met(&r.Members[i])
		}
	case Publish:
		if errors.Is(r.Err, driver.ErrNotHeld) {
			c.missing(c.claims[s.ask.Claim], 0)
		}
	case Extend:
		c.extended(s, r)
	}
	c.do(Answer{s.ask, r})
}
