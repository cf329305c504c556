package core

import "slices"

// A queue has the callers of this process that want a key. One claim at a time uses the key, from its
// request to the end of its use; callers behind it wait here, in FIFO order.
type queue struct {
	calls []uint64 // that have no claim
	using uint64   // the claim's number; 0: none
}

func (c *Core) acquire(e Acquire) {
	if c.closing {
		c.fail(e.Call)
		return
	}
	c.calls[e.Call] = e.Key
	q := c.queues[e.Key]
	if q == nil {
		q = new(queue)
		c.queues[e.Key] = q
	}
	q.calls = append(q.calls, e.Call)
	c.turn(e.Key)
}

// turns gives the turn to the first caller of each key that nobody here uses.
func (c *Core) turns() {
	for _, key := range sortedKeys(c.queues) {
		c.turn(key)
	}
}

// turn requests key for its first caller, unless somebody here uses it.
func (c *Core) turn(key string) {
	q := c.queues[key]
	switch {
	case q == nil || q.using != 0:
	case len(q.calls) == 0:
		delete(c.queues, key)
	case c.session.id == "":
		c.register()
	default:
		cl := c.newClaim(key)
		cl.call, q.calls = q.calls[0], q.calls[1:]
		q.using = cl.number
		c.join(cl)
	}
}

// A use says which claim of which key a hold uses.
type use struct {
	key   string
	claim uint64
}

// free ends the use of the key by the claim, and gives the next caller here its turn: not before the
// holder is done, even if the hold was lost, as with a sync.Mutex.
func (c *Core) free(u use) {
	if q := c.queues[u.key]; q != nil && q.using == u.claim {
		q.using = 0
		c.turn(u.key)
	}
}

// freeUnlessHeld frees what the claim uses, unless its holder is not done.
func (c *Core) freeUnlessHeld(cl *claim) {
	if _, busy := c.holds[cl.hold]; !busy {
		c.free(use{cl.key, cl.number})
	}
}

// giveUp ends the wait of a caller.
func (c *Core) giveUp(call uint64) {
	key, waits := c.calls[call]
	if !waits {
		return
	}
	delete(c.calls, call)
	q := c.queues[key]
	if i := slices.Index(q.calls, call); i >= 0 {
		q.calls = slices.Delete(q.calls, i, i+1)
		c.turn(key)
		return
	}
	c.move(c.claims[q.using], givenUp)
}

// done ends a hold whose holder is done.
func (c *Core) done(hold uint64) {
	u, ok := c.holds[hold]
	delete(c.holds, hold)
	switch cl := c.claims[u.claim]; {
	case !ok:
	case cl != nil && cl.hold == hold && cl.state <= lost:
		c.move(cl, holderDone)
	default:
		c.free(u) // the claim was released when the grace was over
	}
}

// deliver gives the claim's caller the next hold of it.
func (c *Core) deliver(cl *claim, call uint64) {
	c.last.hold++
	cl.call, cl.hold = 0, c.last.hold
	delete(c.calls, call)
	c.holds[cl.hold] = use{cl.key, cl.number}
	c.out = append(c.out, Deliver{Call: call, Hold: cl.hold, Token: cl.token})
}

// fail tells a caller that it gets nothing, because the session is closing.
func (c *Core) fail(call uint64) {
	delete(c.calls, call)
	c.out = append(c.out, Deliver{Call: call, Err: ErrClosed})
}

// close gives up all that is held and waited for.
func (c *Core) close() {
	if c.closing {
		return
	}
	c.closing = true
	for _, key := range sortedKeys(c.queues) {
		q := c.queues[key]
		for _, call := range q.calls {
			c.fail(call)
		}
		q.calls = nil
		c.turn(key)
	}
	for _, cl := range c.inOrder() {
		switch cl.state {
		case joining, waiting:
			c.fail(cl.call)
			c.move(cl, givenUp)
		case held:
			c.move(cl, revoke)
		}
	}
}

// closeDue unregisters the session when Close has nothing else to wait for.
func (c *Core) closeDue() {
	if !c.closing || c.closed || c.session.registering != 0 || c.session.unregistering {
		return
	}
	for _, cl := range c.claims {
		if cl.state != left && cl.state != lost {
			return
		}
	}
	if c.session.id == "" {
		c.closed = true
		c.out = append(c.out, Closed{})
		return
	}
	for _, s := range c.sent {
		if s.op == Heartbeat { // it could arrive after the Unregister
			return
		}
	}
	c.session.unregistering = true
	c.session.due = never
	c.send(Command{Op: Unregister, Session: c.session.id}, 0)
}
