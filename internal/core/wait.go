package core

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A wait holds what is known about the queue ahead of a claim.
type wait struct {
	since    Instant             // when the wait began
	poll     Instant             // when to request again at the latest
	position int                 // in the store's queue, as of the last reply; 0 if not queued
	stagger  time.Duration       // how long to wait after a session ahead has lapsed (see stagger)
	ahead    []string            // sessions that block the claim, as of the last reply
	named    []string            // sessions that the last request named as expired
	woken    bool                // a wake came while a request was under way: send another request when that one is answered
	refusal  error               // the error for the caller unless a session ahead has expired
	revokes  map[string]revoking // with First: the Revokes sent, by the revoked claim's ID
	until    []time.Time         // ends of the leases that block the claim
}

// revoking tracks the Revokes that a waiter sends for one claim.
type revoking struct {
	due    bool // the last Revoke failed, so another is due
	failed int  // consecutive failed Revokes
}

// ahead records the sessions and leases that block the claim.
func (c *Core) ahead(w *wait, st *driver.State) {
	w.position, w.ahead, w.until = st.Position, SessionsIn(st, c.session.id), nil
	for i := range st.Holders {
		if u := st.Holders[i].Until; !u.IsZero() {
			w.until = append(w.until, u)
		}
	}
	if w.revokes != nil {
		c.revokeHolders(w, st)
	}
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
func (c *Core) waits(cl *claim, _ *args) {
	w := cl.wait
	w.stagger = c.stagger(w.position)
	w.poll = c.now.Add(c.cfg.jitter(c.PollTime(w.position), 5))
	if cl.request.First { // if another forced claim is granted first, its session must be asked to give up the key, too
		w.poll = min(w.poll, c.now.Add(5*time.Second))
	}
	for _, until := range w.until {
		w.poll = min(w.poll, c.now.Add(max(0, until.Sub(c.storeClock()))+w.stagger))
	}
	c.listen(0)
	c.readUnknown(w.ahead)
	c.lookAhead(cl)
}

// PollTime returns how long the waiter at the given position waits for a notice before it requests again. The result
// has no jitter. With a listener the default is about a TTL: notices are usually lost because their sender crashed, and
// after a crash waiters wait for a TTL anyway.
func (c *Core) PollTime(position int) time.Duration {
	d := c.cfg.Poll
	switch {
	case d > 0:
	case c.listener.state == ready:
		return min(max(c.cfg.TTL, 5*time.Second), 30*time.Second)
	default:
		d = 250 * time.Millisecond
	}
	return d * time.Duration(min(max(position, 1), 4))
}

// stagger returns a delay for the waiter at the given position: it checks the sessions ahead that much later than the
// first waiter does. The delay and its jitter grow with the position, so that a crash does not make a thousand waiters
// send commands at once.
func (c *Core) stagger(position int) time.Duration {
	d := time.Duration(min(max(position-1, 0), 50)) * c.cfg.TTL / 100
	return d + time.Duration(c.cfg.Rand(int64(d)+1))
}

// lookAhead sets the timer of a waiting claim to the next poll or, if that is earlier, to when the claim may look at a
// session ahead: a stagger after that session may have lapsed, but no earlier than a stagger after the wait began. The
// stagger does not count from now: what the waiter learns meanwhile must not postpone its look. If a session ahead has
// expired and the last request did not name it, the claim is requested again at once.
func (c *Core) lookAhead(cl *claim) {
	w := cl.wait
	if c.newlyExpired(w) {
		c.then(cl, again, args{})
		return
	}
	next := w.poll
	for _, id := range w.ahead {
		if o := c.others[id]; o.standing != expired && !o.underWay {
			next = min(next, max(max(o.lapses, w.since).Add(w.stagger), c.now))
		}
	}
	if next != cl.due {
		c.at(&cl.timer, cl.number, next)
	}
}

// beforePoll reports whether the waiting claim's timer has expired because a session ahead may have lapsed.
func (c *Core) beforePoll(cl *claim, _ *args) bool { return c.now < cl.wait.poll }

// expireAhead expires the sessions ahead of a waiting claim that may have lapsed.
func (c *Core) expireAhead(cl *claim, _ *args) {
	c.expireLapsed(cl)
	c.lookAhead(cl)
}

// newlyExpired reports whether any session ahead is known to have expired and was not named in the last request.
func (c *Core) newlyExpired(w *wait) bool {
	for _, id := range w.ahead {
		if c.others[id].standing == expired && !slices.Contains(w.named, id) {
			return true
		}
	}
	return false
}

// expiredAmong returns the ids of the sessions that are known to have expired.
func (c *Core) expiredAmong(ids []string) (some []string) {
	for _, id := range ids {
		if c.others[id].standing == expired {
			some = append(some, id)
		}
	}
	return some
}

// expireLapsed sends an Expire for each session ahead of the claim that may have lapsed. If there are several such
// sessions, it first reads them: most will have sent a heartbeat meanwhile, and one Read is cheaper than an Expire for
// each. It reports whether it sent anything.
func (c *Core) expireLapsed(cl *claim) bool {
	var due []string
	read := false
	for _, id := range cl.wait.ahead {
		if o, known := c.others[id]; known && o.standing != expired && !o.underWay && o.lapses <= c.now {
			due = append(due, id)
			read = read || o.standing == alive
		}
	}
	if len(due) > 1 && read {
		c.read(due, cl.number)
		return true
	}
	for _, id := range due {
		c.markUnderWay(id)
		c.send(&Command{Op: Expire, Session: id, Died: c.others[id].standing == died}, cl.number)
	}
	return len(due) > 0
}

// check is called for a claim that the store has refused. It finds out whether a session that blocks the claim has
// expired. If so, the next request names that session, so that a program that only tries still gets the key after a
// crash. If not, the caller gets the refusal.
func (c *Core) check(cl *claim, _ *args) {
	w := cl.wait
	switch {
	case c.newlyExpired(w):
		c.then(cl, again, args{})
	case c.readUnknown(w.ahead), c.expireLapsed(cl):
	case slices.ContainsFunc(w.ahead, func(id string) bool { return c.others[id].underWay }):
	default:
		c.then(cl, refused, args{cause: w.refusal})
	}
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
			c.check(cl, nil)
		case cl.state == waiting:
			if cl.number == by && err == nil && !c.newlyExpired(cl.wait) {
				c.expireLapsed(cl)
			}
			c.lookAhead(cl)
		}
		c.work()
	}
}

// revokeHolders asks the holders in st to give up the key, except for those already asked.
func (c *Core) revokeHolders(w *wait, st *driver.State) {
	w.revokes = maps.Clone(w.revokes)
	for i := range st.Holders {
		h := &st.Holders[i]
		before, known := w.revokes[h.Claim]
		if known && !before.due {
			continue
		}
		w.revokes[h.Claim] = revoking{failed: before.failed}
		v := driver.Revocation{Key: st.Key, Claim: h.Claim}
		if h.Session == c.session.id || c.byID(h.Claim) != nil {
			c.revoked(v)
		} else {
			c.send(&Command{Op: Revoke, Session: h.Session, Revoked: []driver.Revocation{v}}, 0)
		}
	}
}

// revokeAnswered handles the answer to a Revoke. If the Revoke had no answer, another is sent after a pause.
func (c *Core) revokeAnswered(s *sent, r *Reply) {
	if r.Err == nil || errors.Is(r.Err, driver.ErrSessionExpired) {
		return
	}
	id := s.Revoked[0].Claim
	asks := func(cl *claim) bool {
		if cl.wait == nil {
			return false
		}
		_, asks := cl.wait.revokes[id]
		return asks
	}
	for _, cl := range c.those(asks) {
		if errors.Is(r.Err, driver.ErrRefused) {
			c.fire(cl, refused, args{cause: r.Err})
			continue
		}
		w := cl.wait
		failed := w.revokes[id].failed + 1
		w.revokes = maps.Clone(w.revokes)
		w.revokes[id] = revoking{due: true, failed: failed}
		if cl.state == waiting {
			w.poll = min(w.poll, c.now.Add(c.cfg.pause(failed)))
			c.lookAhead(cl)
			c.work()
		}
	}
}
