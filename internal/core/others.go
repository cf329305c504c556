package core

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// other is what is known about another session.
type other struct {
	lapses  Instant        // no other process can expire it before then
	until   time.Time      // the time lapses by the store's clock, in whole milliseconds; zero: lapses is a guess
	member  *driver.Member // its record as last read; nil: never read whole
	lapsed  bool           // the last reading showed it as lapsed, expired or missing, and no Expire has contradicted the reading
	died    bool           // its process has ended; lapses is one margin later
	expired bool           // it has expired, which is final
	asked   bool           // a Read or Expire of it is under way
	failed  int            // consecutive failed Reads and Expires of it
}

const (
	// MaxRead is the most sessions that one command reads: see [driver.SessionQuery].
	MaxRead = 1000

	// maxWhole is the most sessions whose whole records are read to learn whether they have lapsed. A mutex's holder
	// and up to 8 waiters ahead fit, and whole records also show who they are. For the thousands of holders that a
	// semaphore can have, whole records would take megabytes.
	maxWhole = 16
)

// Member returns the session's record if it has been read.
func (c *Core) Member(id string) (driver.Member, bool) {
	if m := c.others[id].member; m != nil {
		return *m, true
	}
	return driver.Member{}, false
}

// Lapses returns the time, by the store's clock, before which no other process can expire the session, according to the
// store's last answer. If that time is unknown or has passed, Lapses returns the zero time.
func (c *Core) Lapses(id string) time.Time {
	if o, known := c.others[id]; known && !o.expired && o.lapses > c.now {
		return o.until
	}
	return time.Time{}
}

// SessionsIn returns the ids of the sessions ahead of self: the sessions of the holders and of the nearest waiters
// ahead. It omits leases, because they do not end with a session.
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

// waits starts the wait of a claim that the store has queued.
func (c *Core) waits(cl *claim, _ args) {
	w := cl.wait
	w.stagger = c.stagger(w.position)
	w.poll = c.now.Add(c.cfg.jitter(c.PollTime(w.position), 5))
	if w.asked != nil { // if another forced claim is granted first, its session must be asked to give up the key, too
		w.poll = min(w.poll, c.now.Add(5*time.Second))
	}
	for _, until := range w.until {
		w.poll = min(w.poll, c.now.Add(max(0, until.Sub(c.storeClock()))+w.stagger))
	}
	c.listen(0)
	c.readUnknown(w.ahead)
	c.lookAhead(cl)
}

// PollTime returns how long, without jitter, the waiter at the given position waits for a notice before it requests
// again. With a listener the default is about a TTL: notices are usually lost because their sender crashed, and after a
// crash waiters wait for a TTL anyway.
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

// stagger returns how much later than the first waiter the waiter at the given position checks the sessions ahead. The
// delay and its jitter grow with the position, so that a crash does not make a thousand waiters send commands at once.
func (c *Core) stagger(position int) time.Duration {
	d := time.Duration(min(max(position-1, 0), 50)) * c.cfg.TTL / 100
	return d + time.Duration(c.cfg.Rand(int64(d)+1))
}

// lookAhead sets the timer of a waiting claim to its next poll, or earlier, to when a session ahead may have lapsed. If
// a session ahead has expired and the last request did not name it, the claim is requested again at once.
func (c *Core) lookAhead(cl *claim) {
	w := cl.wait
	if c.newlyExpired(w) {
		c.then(cl, again, args{})
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

// beforePoll reports whether the waiting claim's timer has expired because a session ahead may have lapsed.
func (c *Core) beforePoll(cl *claim, _ args) bool { return c.now < cl.wait.poll }

// expireAhead expires the sessions ahead of a waiting claim that may have lapsed.
func (c *Core) expireAhead(cl *claim, _ args) {
	c.expireLapsed(cl)
	c.lookAhead(cl)
}

// newlyExpired reports whether any session ahead is known to have expired and was not named in the last request.
func (c *Core) newlyExpired(w *wait) bool {
	for _, id := range w.ahead {
		if c.others[id].expired && !slices.Contains(w.named, id) {
			return true
		}
	}
	return false
}

// expiredAmong returns the ids of the sessions that are known to have expired.
func (c *Core) expiredAmong(ids []string) (expired []string) {
	for _, id := range ids {
		if c.others[id].expired {
			expired = append(expired, id)
		}
	}
	return expired
}

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
			c.isAsked(id)
		}
		c.send(&Command{Op: Read, Session: c.session.id, Sessions: some, Brief: len(ids) > maxWhole}, claim)
	}
}

// isAsked records that a Read or Expire of the session is under way.
func (c *Core) isAsked(id string) {
	o := c.others[id]
	o.asked = true
	c.others[id] = o
}

// expireLapsed sends an Expire for each session ahead of the claim that may have lapsed. If there are several, it first
// reads them: most will have sent a heartbeat meanwhile, and one Read is cheaper than an Expire for each. It reports
// whether it sent anything.
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

// readAnswered handles the answer to a Read. A reading may be stale, so a session that it shows as missing or expired
// may still be alive; only an Expire decides.
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
			o.lapses, o.lapsed = c.now.Add(min(left, m.TTL)), false // at most the TTL, because the store's clock may have gone back
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
	case r.Err != nil, o.died && r.Left > 0: // it died after this was sent
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

// askLater schedules another Read or Expire of the session after a pause, which grows with each failure.
func (c *Core) askLater(o *other) {
	o.lapses = max(o.lapses, c.now.Add(c.cfg.pause(o.failed)))
	o.failed++
}

// died records that a session's process has ended, so no holder needs its grace. Commands that the process sent may
// still arrive within the margin (that session's or this one's, whichever is longer). After the margin, the session is
// expired as if it had lapsed.
func (c *Core) died(id string) {
	o := c.others[id]
	if o.member == nil || o.died || o.expired {
		return
	}
	o.died, o.lapsed, o.until, o.lapses = true, true, time.Time{}, c.now.Add(max(c.cfg.Margin, o.member.Settings.Margin))
	c.others[id] = o
	c.learned([]string{id}, 0, nil)
}

// HostFiles returns, by session id, the host files of other sessions, except sessions known to have died or expired.
func (c *Core) HostFiles() map[string]string {
	files := make(map[string]string)
	for id, o := range c.others {
		if !o.died && !o.expired && o.member != nil && o.member.HostFile != "" {
			files[id] = o.member.HostFile
		}
	}
	return files
}

// learned resumes the claims behind the given sessions after a Read or Expire of them. err is the command's error, or
// nil.
func (c *Core) learned(ids []string, by uint64, err error) {
	behind := func(cl *claim) bool { // a claim whose Load is under way resumes when the Load is answered
		return (cl.state == waiting || cl.state == checking && cl.command == 0) &&
			slices.ContainsFunc(cl.wait.ahead, func(id string) bool { return slices.Contains(ids, id) })
	}
	for _, cl := range c.those(behind) {
		switch {
		case cl.state == checking && err != nil:
			c.then(cl, unanswered, args{cause: err})
		case cl.state == checking:
			c.check(cl, args{})
		case cl.state == waiting:
			if cl.number == by && err == nil && !c.newlyExpired(cl.wait) {
				c.expireLapsed(cl)
			}
			c.lookAhead(cl)
		}
		c.work()
	}
}

// check finds out, for a claim that the store has refused, whether a session that blocks it has expired. If so, the
// claim is requested again, naming that session, so that a program that only tries still gets the key after a crash. If
// not, the caller gets the refusal.
func (c *Core) check(cl *claim, _ args) {
	w := cl.wait
	switch {
	case c.newlyExpired(w):
		c.then(cl, again, args{})
	case c.readUnknown(w.ahead), c.expireLapsed(cl):
	case slices.ContainsFunc(w.ahead, func(id string) bool { return c.others[id].asked }):
	default:
		c.then(cl, refused, args{cause: w.refusal})
	}
}

// load reads the state of a key that is in use as another kind, to learn which sessions use it.
func (c *Core) load(cl *claim, _ args) {
	cl.command = inLine
	if c.enterLane(false, delayed{number: cl.number}) {
		cl.command = c.sendNow(&sent{session: cl.request.Session, claim: cl.number}, &Command{Op: Load, Key: cl.request.Key})
	}
}

func (c *Core) loaded(cl *claim, r *Reply) {
	switch {
	case cl == nil || cl.state != checking:
	case r.Err != nil:
		c.fire(cl, unanswered, args{cause: r.Err})
	default:
		cl.wait.ahead = SessionsIn(&r.State, c.session.id)
		c.check(cl, args{})
		c.work()
	}
}

// revokeHolders asks the holders in st to give up the key, except for those already asked.
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

// revokeAnswered handles the answer to a Revoke. If it failed, another Revoke is sent after a pause.
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
			c.work()
		}
	}
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
		return !needed[id] && !o.asked && c.now.Sub(o.lapses) > 10*c.cfg.TTL
	})
}
