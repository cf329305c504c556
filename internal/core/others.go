package core

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// other is what is known of another session.
type other struct {
	lapses  Instant        // no other process can expire it before
	until   time.Time      // lapses as the store's clock has it, in its milliseconds; zero: it is a guess
	member  *driver.Member // its record, when it was last read; nil: it was not, or not all of it
	lapsed  bool           // a reading has found it lapsed, expired or missing, and no Expire has denied it since
	died    bool           // its process has ended; lapses is when the margin after that is over
	expired bool           // for good
	asked   bool           // a Read or an Expire of it is under way
	failed  int            // Reads and Expires of it that failed, in a row
}

const (
	// MaxRead is the most sessions that one command reads: see [driver.SessionQuery].
	MaxRead = 1000

	// maxWhole is the most sessions whose whole records are read where only their liveness matters. A
	// mutex has one holder and up to 8 waiters ahead, and reading them whole also tells who they are.
	// For the thousands that a semaphore can have, whole records would be megabytes.
	maxWhole = 16
)

// Member returns the session's record, if it was read.
func (c *Core) Member(id string) (driver.Member, bool) {
	if m := c.others[id].member; m != nil {
		return *m, true
	}
	return driver.Member{}, false
}

// Lapses returns the time, by the store's clock, until which no other process can expire the session, as the
// store last said; zero if it has not said, or if that time has passed.
func (c *Core) Lapses(id string) time.Time {
	if o, known := c.others[id]; known && !o.expired && o.lapses > c.now {
		return o.until
	}
	return time.Time{}
}

// SessionsIn returns the ids of the sessions between self and the key: those of the holders, except
// leases, which do not end with a session, and those of the nearest waiters ahead.
func SessionsIn(st *driver.State, self string) []string {
	var ids []string
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Session != self && h.Until.IsZero() {
			ids = append(ids, h.Session)
		}
	}
	for i := range st.WaitersAhead {
		if w := &st.WaitersAhead[i]; w.Session != self {
			ids = append(ids, w.Session)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// waits begins the wait of a claim that the store has queued.
func (c *Core) waits(cl *claim) {
	w := cl.wait
	w.stagger = c.stagger(w.position)
	w.poll = c.now.Add(c.cfg.jitter(c.PollTime(w.position), 5))
	if w.asked != nil { // another forced claim may be granted first; its session must be asked too
		w.poll = min(w.poll, c.now.Add(5*time.Second))
	}
	for _, until := range w.until {
		w.poll = min(w.poll, c.now.Add(max(0, until.Sub(c.storeClock()))+w.stagger))
	}
	c.listen(0)
	c.readUnknown(w.ahead)
	c.lookAhead(cl)
}

// PollTime returns how long the waiter at that position waits for a notice before it requests again, without
// jitter. If the listener is ready the default is about a TTL: a notice is lost if its sender crashes before it
// sends it, and after a crash others wait for a TTL anyway.
func (c *Core) PollTime(position int) time.Duration {
	d := c.cfg.Poll
	switch {
	case d > 0:
	case c.listener.ready:
		return min(max(c.cfg.TTL, 5*time.Second), 30*time.Second)
	default:
		d = 250 * time.Millisecond
	}
	return d * time.Duration(min(max(position, 1), 4))
}

// stagger returns how much later than the first in the queue the waiter at that position checks whether
// sessions ahead have expired. The delay and its jitter grow with the position, so that a crash does not make
// a thousand waiters send commands at once.
func (c *Core) stagger(position int) time.Duration {
	d := time.Duration(min(max(position-1, 0), 50)) * c.cfg.TTL / 100
	return d + time.Duration(c.cfg.Rand(int64(d)+1))
}

// lookAhead sets the timer of a waiting claim: the next poll, or the first time at which a session ahead
// may have lapsed. If one has expired that the last request did not name, it requests again.
func (c *Core) lookAhead(cl *claim) {
	w := cl.wait
	if c.newlyExpired(w) {
		c.move(cl, again)
		return
	}
	next := w.poll
	for _, id := range w.ahead {
		if o := c.others[id]; !o.expired && !o.asked {
			next = min(next, max(o.lapses, c.now).Add(w.stagger))
		}
	}
	if next != cl.due {
		c.at(&cl.timer, cl.number, next)
	}
}

// newlyExpired reports whether a session in the way has expired and was not named by the last request.
func (c *Core) newlyExpired(w *wait) bool {
	for _, id := range w.ahead {
		if c.others[id].expired && !slices.Contains(w.named, id) {
			return true
		}
	}
	return false
}

// expiredAmong returns the sessions that are known to have expired.
func (c *Core) expiredAmong(ids []string) (expired []string) {
	for _, id := range ids {
		if c.others[id].expired {
			expired = append(expired, id)
		}
	}
	return expired
}

// readUnknown reads those of the sessions about which nothing is known, and reports whether there are any.
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

// read reads the sessions. A claim that reads them because they may have lapsed is named.
func (c *Core) read(ids []string, claim uint64) {
	for some := range slices.Chunk(ids, MaxRead) {
		for _, id := range some {
			c.isAsked(id)
		}
		c.send(&Command{Op: Read, Session: c.session.id, Sessions: some, Brief: len(ids) > maxWhole}, claim)
	}
}

// isAsked records that a Read or an Expire of the session is under way.
func (c *Core) isAsked(id string) {
	o := c.others[id]
	o.asked = true
	c.others[id] = o
}

// expireLapsed expires those sessions ahead of the claim that may have lapsed. If there are several, most
// have only sent a heartbeat in the meantime, and reading them all with one command is cheaper than a
// command for each. It reports whether anything was asked.
func (c *Core) expireLapsed(cl *claim) bool {
	var due []string
	read := false
	for _, id := range cl.wait.ahead {
		if o, known := c.others[id]; known && !o.expired && !o.asked && o.lapses <= c.now {
			due = append(due, id)
			read = read || !o.lapsed
		}
	}
	if len(due) > 1 && read {
		c.read(due, cl.number)
		return true
	}
	for _, id := range due {
		c.isAsked(id)
		c.send(&Command{Op: Expire, Session: id, Died: c.others[id].died}, cl.number)
	}
	return len(due) > 0
}

// readAnswered takes what a Read has told of other sessions. One that is missing or expired in the reading
// is only suspected to have expired, because the reading may be stale. Only an Expire decides.
func (c *Core) readAnswered(s *sent, r *Reply) {
	for _, id := range s.others {
		o := c.others[id]
		o.asked = false
		if r.Err != nil {
			c.askLater(&o)
		} else if !o.expired && !o.died {
			o.lapses, o.until, o.lapsed = c.now, time.Time{}, s.claim != 0
		}
		c.others[id] = o
	}
	for i := range r.Members {
		m := &r.Members[i]
		o, known := c.others[m.ID]
		if !known {
			continue
		}
		if m.Host != "" || m.PID != 0 || m.Name != "" || m.HostFile != "" {
			o.member = m
		}
		if left := m.LastHeartbeat.Add(m.TTL).Sub(r.Now); !m.Expired && !o.died && left > 0 {
			o.lapses, o.lapsed = c.now.Add(min(left, m.TTL)), false // the clock may have gone back since
			o.failed = 0
			o.until = m.LastHeartbeat.Add(m.TTL)
		}
		c.others[m.ID] = o
	}
	c.learned(s.others, s.claim, r.Err)
}

func (c *Core) expiryAnswered(s *sent, r *Reply) {
	o := c.others[s.session]
	o.asked = false
	switch {
	case r.Err != nil, o.died && r.Left > 0: // it has died since this was sent
		c.askLater(&o)
	case r.Left <= 0:
		o.expired = true
		c.do(Expired{s.session})
	default:
		o.lapses, o.lapsed, o.failed = c.now.Add(r.Left), false, 0
		o.until = c.storeClock().Add(r.Left).Round(time.Millisecond)
	}
	c.others[s.session] = o
	c.learned([]string{s.session}, s.claim, r.Err)
}

// askLater has the session asked about again after a pause, which grows while that fails.
func (c *Core) askLater(o *other) {
	o.lapses = max(o.lapses, c.now.Add(c.cfg.pause(o.failed)))
	o.failed++
}

// died takes that the process of a session has ended, so nobody is left to use its grace. What it had sent before gets
// the margin, its session's or this one's, whichever is longer. Then the session is expired as if it had lapsed.
func (c *Core) died(id string) {
	o := c.others[id]
	if o.member == nil || o.died || o.expired {
		return
	}
	o.died, o.lapsed, o.until, o.lapses = true, true, time.Time{}, c.now.Add(max(c.cfg.Margin, o.member.Settings.Margin))
	c.others[id] = o
	c.learned([]string{id}, 0, nil)
}

// HostFiles returns, by id, the HostFiles of the other sessions whose processes may still be found dead.
func (c *Core) HostFiles() map[string]string {
	files := make(map[string]string)
	for id, o := range c.others {
		if !o.died && !o.expired && o.member != nil && o.member.HostFile != "" {
			files[id] = o.member.HostFile
		}
	}
	return files
}

// learned goes on with the claims behind the sessions of which something was learned, or with err was not.
func (c *Core) learned(ids []string, by uint64, err error) {
	behind := func(cl *claim) bool { // a claim whose Load is under way goes on with what that brings
		return (cl.state == waiting || cl.state == checking && cl.command == 0) &&
			slices.ContainsFunc(cl.wait.ahead, func(id string) bool { return slices.Contains(ids, id) })
	}
	for _, cl := range c.those(behind) {
		switch {
		case cl.state == checking && err != nil:
			c.noAnswer(cl, err)
		case cl.state == checking:
			c.check(cl)
		case cl.state == waiting:
			if cl.number == by && err == nil && !c.newlyExpired(cl.wait) {
				c.expireLapsed(cl)
			}
			c.lookAhead(cl)
		}
	}
}

// check finds out whether a session in the way of a claim that was refused has expired. Then the claim
// requests again and names it; programs that only ever try must get over a crash too. Otherwise its caller
// gets the refusal.
func (c *Core) check(cl *claim) {
	w := cl.wait
	switch {
	case c.newlyExpired(w):
		c.move(cl, again)
	case c.readUnknown(w.ahead), c.expireLapsed(cl):
	case slices.ContainsFunc(w.ahead, func(id string) bool { return c.others[id].asked }):
	default:
		c.refuse(cl, w.refusal)
	}
}

// load reads the state of a key that is in use otherwise, for the sessions that use it.
func (c *Core) load(cl *claim) {
	cl.command = inLine
	if c.enterLane(false, delayed{number: cl.number}) {
		cl.command = c.sendNow(&sent{session: cl.request.Session, claim: cl.number}, &Command{Op: Load, Key: cl.request.Key})
	}
}

func (c *Core) loaded(cl *claim, r *Reply) {
	switch {
	case cl == nil || cl.state != checking:
	case r.Err != nil:
		c.noAnswer(cl, r.Err)
	default:
		cl.wait.ahead = SessionsIn(&r.State, c.session.id)
		c.check(cl)
	}
}

// revokeHolders asks the holders in st to give up the key, except those that were asked before.
func (c *Core) revokeHolders(w *wait, st *driver.State) {
	w.asked = maps.Clone(w.asked)
	for i := range st.Holders {
		h := &st.Holders[i]
		before, known := w.asked[h.Claim]
		if known && !before.again {
			continue
		}
		w.asked[h.Claim] = revoking{failed: before.failed}
		v := driver.Revocation{Key: st.Key, Claim: h.Claim}
		if h.Session == c.session.id || c.byID(h.Claim) != nil {
			c.revoked(v)
		} else {
			c.send(&Command{Op: Revoke, Session: h.Session, Revoked: []driver.Revocation{v}}, 0)
		}
	}
}

// revokeAnswered has the holder asked again if that may not have reached the store.
func (c *Core) revokeAnswered(s *sent, r *Reply) {
	if r.Err == nil || errors.Is(r.Err, driver.ErrSessionExpired) {
		return
	}
	id := s.revoked[0].Claim
	asks := func(cl *claim) bool {
		if cl.wait == nil {
			return false
		}
		_, asks := cl.wait.asked[id]
		return asks
	}
	for _, cl := range c.those(asks) {
		w := cl.wait
		failed := w.asked[id].failed + 1
		w.asked = maps.Clone(w.asked)
		w.asked[id] = revoking{again: true, failed: failed}
		if cl.state == waiting {
			w.poll = min(w.poll, c.now.Add(c.cfg.pause(failed)))
			c.lookAhead(cl)
		}
	}
}

// forgetOthers forgets the sessions that stand in nobody's way and whose time was over long ago. It is
// called with every acknowledged heartbeat; what is forgotten is read again when it is needed.
func (c *Core) forgetOthers() {
	if len(c.others) == 0 { // a session may hold thousands of claims
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
		return !needed[id] && !o.asked && c.now.Sub(o.lapses) > 10*c.cfg.TTL
	})
}
