package core

import (
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// other is what is known about another session.
type other struct {
	lapses   Instant        // no other process can expire it before then
	until    time.Time      // the same time by the store's clock, in whole milliseconds; zero: lapses is a guess
	member   *driver.Member // its record as last read; nil: never read whole
	standing standing
	underWay bool // a Read or Expire of it is under way
	failed   int  // consecutive failed Reads and Expires of it
}

// standing is what has been learned of a session, the most certain last.
type standing int

const (
	alive   standing = iota // or it is not known
	lapsed                  // the last reading showed it as lapsed, expired or missing, and no Expire has contradicted that
	died                    // its process has ended; lapses is one margin after that
	expired                 // it has expired, which is final
)

const (
	// MaxRead is the most sessions that one command reads: see [driver.SessionQuery].
	MaxRead = 1000

	// maxWhole is the most sessions whose whole records are read to learn whether they have lapsed. It is enough for a
	// mutex's holder and up to 8 waiters ahead, and whole records also show who they are. For the thousands of holders
	// that a semaphore can have, whole records would take megabytes.
	maxWhole = 16
)

// readUnknown reads the sessions that the Core knows nothing about, and reports whether there are any.
func (c *Core) readUnknown(ids []string) bool {
	var unknown []string
	for _, id := range ids {
		if _, known := c.others[id]; !known {
			unknown = append(unknown, id)
		}
	}
	c.read(unknown, 0)
	return len(unknown) > 0
}

// read reads the sessions. claim is the claim that needs to know whether they have lapsed, or 0.
func (c *Core) read(ids []string, claim uint64) {
	for some := range slices.Chunk(ids, MaxRead) {
		for _, id := range some {
			c.markUnderWay(id)
		}
		c.send(&Command{Op: Read, Session: c.session.id, Sessions: driver.SessionQuery{IDs: some, Liveness: len(ids) > maxWhole}}, claim)
	}
}

// markUnderWay records that a Read or Expire of the session is under way.
func (c *Core) markUnderWay(id string) {
	o := c.others[id]
	o.underWay = true
	c.others[id] = o
}

// readAnswered handles the answer to a Read. A reading may be stale, so a session may still be alive although the
// reading shows it as missing or expired; only an Expire decides.
func (c *Core) readAnswered(s *sent, r *Reply) {
	for _, id := range s.Sessions.IDs {
		o := c.others[id]
		o.underWay = false
		if r.Err != nil {
			c.askLater(&o)
		} else if o.standing < died {
			o.lapses, o.until, o.standing = c.now, time.Time{}, alive
			if s.claim != 0 {
				o.standing = lapsed
			}
		}
		c.others[id] = o
	}
	for i := range r.Members {
		m := &r.Members[i]
		o, known := c.met(m)
		if !known {
			continue
		}
		if left := m.LastHeartbeat.Add(m.TTL).Sub(r.Now); !m.Expired && o.standing < died && left > 0 {
			o.lapses, o.standing = c.now.Add(min(left, m.TTL)), alive // at most the TTL, because the store's clock may have gone back
			o.failed = 0
			o.until = m.LastHeartbeat.Add(m.TTL)
		}
		c.others[m.ID] = o
	}
	c.learned(s.Sessions.IDs, s.claim, r.Err)
}

// met records what is shown of another session, unless m has only what says whether the session is alive.
func (c *Core) met(m *driver.Member) (o other, known bool) {
	if o, known = c.others[m.ID]; known && (m.Host != "" || m.PID != 0 || m.Name != "" || m.HostFile != "") {
		o.member = m
		c.others[m.ID] = o
	}
	return o, known
}

func (c *Core) expiryAnswered(s *sent, r *Reply) {
	o := c.others[s.Session]
	o.underWay = false
	switch {
	case r.Err != nil:
		c.askLater(&o)
	case o.standing == died && !s.Died && r.Left > 0: // it died after this was sent, so another Expire follows
	case r.Left <= 0:
		o.standing = expired
		c.do(Expired{s.Session})
	default:
		o.lapses, o.standing, o.failed = c.now.Add(r.Left), alive, 0
		o.until = c.storeClock().Add(r.Left).Round(time.Millisecond)
	}
	c.others[s.Session] = o
	c.learned([]string{s.Session}, s.claim, r.Err)
}

// askLater schedules another Read or Expire of the session after a pause, which grows with each failure.
func (c *Core) askLater(o *other) {
	o.lapses = max(o.lapses, c.now.Add(c.cfg.pause(o.failed)))
	o.failed++
}

// died records that a session's process has ended. Its holders no longer need their grace, but commands that the
// process sent may still arrive within the margin (that session's or this one's, whichever is longer). After the
// margin, the session is expired as if it had lapsed.
func (c *Core) died(id string) {
	o := c.others[id]
	if o.member == nil || o.standing >= died {
		return
	}
	o.standing, o.until, o.lapses = died, time.Time{}, c.now.Add(max(c.cfg.Margin, o.member.Settings.Margin))
	c.others[id] = o
	c.learned([]string{id}, 0, nil)
}

// forgetOthers forgets sessions that no claim waits behind and that could have lapsed long ago. It is called after
// every acknowledged heartbeat. A forgotten session is read again when needed.
func (c *Core) forgetOthers() {
	if len(c.others) == 0 { // the search below is slow if the session holds thousands of claims
		return
	}
	needed := make(map[string]bool)
	for _, cl := range c.claims {
		if cl.wait != nil {
			for _, id := range cl.wait.ahead {
				needed[id] = true
			}
		}
	}
	maps.DeleteFunc(c.others, func(id string, o other) bool {
		return !needed[id] && !o.underWay && c.now.Sub(o.lapses) > 10*c.cfg.TTL
	})
}
