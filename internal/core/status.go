package core

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Listening reports whether a listener is ready, and whether the store can't notify.
func (c *Core) Listening() (receives, unsupported bool) {
	return c.listener.state == ready, c.listener.state == unable
}

// Member returns the session's record if it has been read.
func (c *Core) Member(id string) (driver.Member, bool) {
	if m := c.others[id].member; m != nil {
		return *m, true
	}
	return driver.Member{}, false
}

// Lapses returns the earliest time, by the store's clock, at which another process can expire the session, according to
// the store's last answer. If that time is unknown or has passed, Lapses returns the zero time.
func (c *Core) Lapses(id string) time.Time {
	if o, known := c.others[id]; known && o.standing != expired && o.lapses > c.now {
		return o.until
	}
	return time.Time{}
}

// HostFiles returns, by session id, the host files of other sessions, except sessions known to have died or expired.
func (c *Core) HostFiles() map[string]string {
	files := make(map[string]string)
	for id, o := range c.others {
		if o.standing < died && o.member != nil && o.member.HostFile != "" {
			files[id] = o.member.HostFile
		}
	}
	return files
}

// Session returns the id under which the session is registered, or "".
func (c *Core) Session() string { return c.session.id }

// Renewed returns when the last acknowledged heartbeat or registration was sent, for this session id or the previous
// one. It is 0 if there was none.
func (c *Core) Renewed() Instant { return c.session.sent }

// A Held describes, for display, a claim that is held or lingers.
type Held struct {
	Call    *Call // the holder's call; nil if the claim lingers
	Claim   *driver.Claim
	Token   int64
	Granted Instant
	Until   time.Time
	Ends    Instant // for a lease: when it ends
	Users   int     // 0 if it lingers
}

// Claims calls f for each claim that is held or lingers, in random order.
func (c *Core) Claims(f func(Held)) {
	for _, cl := range c.claims {
		if cl.state.in(held | lingering) {
			f(Held{cl.call, &cl.request, cl.token, cl.granted, cl.until, cl.due, cl.users})
		}
	}
}

// Waits calls f for each caller that waits for a key. The keys come in random order. The callers for one key come in
// FIFO order, beginning with the caller that has the turn. position is the caller's position in the store's queue, or
// 0; ahead is how many callers of this process are ahead of it.
func (c *Core) Waits(f func(a *Call, position, ahead int)) {
	for _, q := range c.queues {
		n := 0
		if a := q.turn; a != nil {
			position := 0
			for _, number := range q.claims {
				if cl := c.claims[number]; cl.call == a && cl.wait != nil {
					position = cl.wait.position
				}
			}
			f(a, position, 0)
			n++
		}
		for _, a := range q.calls {
			f(a, 0, n)
			n++
		}
	}
}

// Refused returns how many claims the store refuses to release. It also returns the claim among them with the
// alphabetically first key, and why the store refuses to release that claim.
func (c *Core) Refused() (first *driver.Claim, n int, err error) {
	for _, cl := range c.claims {
		if cl.refused == nil {
			continue
		}
		if n++; first == nil || cl.request.Key < first.Key {
			first, err = &cl.request, cl.refused
		}
	}
	return first, n, err
}

// Lives reports whether any claim ends with the session.
func (c *Core) Lives() bool {
	for _, cl := range c.claims {
		if cl.state != lost && !cl.outlives() {
			return true
		}
	}
	return false
}

// Empty reports whether there are no claims.
func (c *Core) Empty() bool { return len(c.claims) == 0 }

// Failure returns why the last command that callers waited for had no answer, or nil if it had one.
func (c *Core) Failure() error { return c.failure }

// Swept returns the progress of sweeping when the session last checked.
func (c *Core) Swept() driver.SweepState { return c.sweeper.last }
