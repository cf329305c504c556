package core

import (
	"maps"
	"slices"
)

// other is what is known of another session.
type other struct {
	lapses  Instant // no other process can expire it before; 0: unknown
	expired bool    // for good
	asked   bool    // a Read or an Expire of it is under way
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// waitFor sets the timer of a waiting claim: the next poll, or the first time at which a session ahead
// may have lapsed. Sessions about which nothing is known are read.
func (c *Core) waitFor(cl *claim) {
	next := cl.poll
	var unknown []string
	for _, id := range cl.ahead {
		switch o := c.others[id]; {
		case o.expired, o.asked:
		case o.lapses == 0:
			unknown = append(unknown, id)
		default:
			next = min(next, max(o.lapses, c.now))
		}
	}
	cl.due = next
	if len(unknown) > 0 {
		for _, id := range unknown {
			c.others[id] = other{asked: true}
		}
		c.send(Command{Op: Read, Session: c.session.id, Sessions: unknown}, 0)
	}
	if c.newlyExpired(cl) {
		cl.due = c.now
	}
}

// newlyExpired reports whether a session ahead has expired and the last request did not name it.
func (c *Core) newlyExpired(cl *claim) bool {
	for _, id := range c.expiredAmong(cl.ahead) {
		if !slices.Contains(cl.expired, id) {
			return true
		}
	}
	return false
}

// expiredAmong returns the sessions that are known to have expired.
func (c *Core) expiredAmong(ids []string) []string {
	var expired []string
	for _, id := range ids {
		if c.others[id].expired {
			expired = append(expired, id)
		}
	}
	return expired
}

// expireLapsed expires those sessions ahead of a waiting claim that may have lapsed, and reports whether
// there are any. If one is known to have expired, the claim does not wait for the others.
func (c *Core) expireLapsed(cl *claim) (asked bool) {
	if c.newlyExpired(cl) {
		return false
	}
	for _, id := range cl.ahead {
		o := c.others[id]
		if o.expired || o.lapses == 0 || o.lapses > c.now {
			continue
		}
		asked = true
		if !o.asked {
			o.asked = true
			c.others[id] = o
			c.send(Command{Op: Expire, Session: id}, 0)
		}
	}
	return asked
}

// forgetOthers forgets the sessions that stand in nobody's way. It is called with every acknowledged
// heartbeat; what is forgotten is read again when it is needed.
func (c *Core) forgetOthers() {
	needed := make(map[string]bool)
	for _, cl := range c.claims {
		for _, id := range cl.ahead {
			needed[id] = true
		}
	}
	maps.DeleteFunc(c.others, func(id string, o other) bool { return !needed[id] && !o.asked })
}

// learned takes what a Read or an Expire has told of other sessions.
func (c *Core) learned(s sent, r Reply) {
	failed := r.Lost || r.Err != nil
	if s.op == Expire {
		o := c.others[s.session]
		o.asked = false
		switch {
		case failed:
			o.lapses = c.now.Add(c.cfg.pause(0))
		case r.Left <= 0:
			o.expired = true
		default:
			o.lapses = c.now.Add(r.Left)
		}
		c.others[s.session] = o
	} else {
		for _, id := range s.other {
			o := other{lapses: c.now} // missing: it may have expired, and Expire tells
			if failed {
				o.lapses = c.now.Add(c.cfg.pause(0))
			}
			for _, m := range r.Members {
				if m.ID == id && !m.Expired {
					o.lapses = c.now.Add(max(0, m.LastHeartbeat.Add(m.TTL).Sub(r.Now)))
				}
			}
			c.others[id] = o
		}
	}
	for _, cl := range c.inOrder() {
		if cl.state == waiting {
			c.waitFor(cl)
		}
	}
}
