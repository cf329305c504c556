package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// looks detect key records that something other than a session has deleted or changed, such as an operator, a clean-up
// job or a TTL index. The store may then grant the key to others although its holder's session is alive. So every reply
// or observation that shows a held key is compared with the hold. Also, after each acknowledged heartbeat the session
// reads some of the keys that it holds, in rotation. [Core.missing] explains when the session concludes that the store
// has really lost a claim.
//
// If many claims wait when notices may have been missed, looks also find out which of them have been granted: see
// [Core.listenerReady]. Such a claim is in doubt until a look that follows another heartbeat has read its key, because a
// deposed primary would not show the grant. The looks follow each other until the last of these keys has been read.
type looks struct {
	keys   []string // keys that the look under way reads; nil: none is under way
	at     Instant  // when that look was sent
	acked  uint64   // session.acked at that time
	failed int      // consecutive looks that failed while a claim was in doubt
	turns  []uint64 // the rotation: numbers of claims, some of which are gone; the next to be read comes first
}

// maxLook is the most keys that one look reads. MongoDB reads that many in a few milliseconds. A session that holds at
// most maxLook keys reads all of them after each heartbeat.
const maxLook = 500

// watched reports whether the store must have the claim as long as its session lives: the claim is held or lingers. A
// lease that has outlived its session is not watched; its next Extend finds out whether the store still has it.
func (c *Core) watched(cl *claim) bool {
	return cl != nil && cl.state.in(held|lingering) && cl.request.Session == c.session.id
}

// unread reports whether the claim, which is in doubt, waits, and a look that begins now can show whether it has been
// granted.
func (c *Core) unread(cl *claim) bool { return cl.state == waiting && cl.doubted <= c.session.acked }

// looksFor reports whether a look that begins now is about the claim, which is in doubt.
func (c *Core) looksFor(cl *claim) bool { return c.watched(cl) || c.unread(cl) }

// look reads some keys: first those whose claims are in doubt, then the next held ones in the rotation. It is called
// after every acknowledged heartbeat. It examines no more claims than it reads, however many the session holds.
func (c *Core) look() {
	l := &c.looks
	if l.keys != nil || c.closing != nil {
		return
	}
	seen := make(map[string]bool)
	read := func(cl *claim) {
		if key := cl.request.Key; !seen[key] {
			seen[key] = true
			l.keys = append(l.keys, key)
		}
	}
	for _, cl := range c.inDoubt() {
		if c.looksFor(cl) && len(l.keys) < maxLook {
			read(cl)
		}
	}
	if len(l.turns) > 2*len(c.claims) { // most are gone
		l.turns = slices.DeleteFunc(l.turns, func(n uint64) bool { return !c.watched(c.claims[n]) })
	}
	for i := len(l.turns); i > 0 && len(l.keys) < maxLook; i-- {
		n := l.turns[0]
		l.turns = l.turns[1:]
		if cl := c.claims[n]; c.watched(cl) {
			read(cl)
			l.turns = append(l.turns, n)
		}
	}
	if l.keys != nil {
		l.at, l.acked = c.now, c.session.acked
		c.send(&Command{Op: Keys, Session: c.session.id, Keys: driver.KeyQuery{Keys: l.keys, Session: c.session.id}}, 0)
	}
}

// looked handles the reply to a look. If the look failed, the next heartbeat starts another. While a claim is in doubt, that
// heartbeat comes after a pause: the caller of the claim should not wait for a whole heartbeat interval.
func (c *Core) looked(s *sent, r *Reply) {
	if s.Session != c.session.id {
		return
	}
	l := c.looks
	c.looks.keys = nil
	if r.Err != nil {
		if slices.ContainsFunc(c.inDoubt(), c.looksFor) {
			c.session.due = min(c.session.due, c.now.Add(c.cfg.pause(l.failed)))
			c.looks.failed++
		}
		return
	}
	c.looks.failed = 0
	again := false
	states := make(map[string]*driver.State, len(r.States))
	for i := range r.States {
		states[r.States[i].Key] = &r.States[i]
	}
	for _, key := range l.keys {
		q, st := c.queues[key], states[key]
		if q == nil {
			continue
		}
		shown := holders(st)
		for _, n := range q.claims {
			switch cl := c.claims[n]; {
			case cl.state == waiting && cl.doubted > 0 && cl.doubted <= l.acked:
				cl.doubted = 0
				if st == nil || shown[cl.request.ID] != nil { // without a record, nobody waits
					c.then(cl, wake, args{})
				} else {
					cl.readies = c.listener.hears() // a grant comes later, and so does every notice that others wait
				}
			case !c.watched(cl) || cl.granted >= l.at:
			case cl.doubted > l.acked: // the look began too early to decide
				again = again || cl.doubted <= c.session.acked
			case cl.in(shown, c.clockAt(l.at)): // an Extend may have moved the end since then
				cl.doubted = 0
			default:
				c.missing(cl, l.acked)
			}
		}
		c.work()
	}
	if again || slices.ContainsFunc(c.inDoubt(), c.unread) {
		c.look()
	}
}

// holders maps the ids of the claims that hold the key in st to what st shows of them. It is a map because a semaphore
// can have thousands of holders, and the session can have as many claims to compare with them.
func holders(st *driver.State) map[string]*driver.Holder {
	if st == nil {
		return nil
	}
	shown := make(map[string]*driver.Holder, len(st.Holders))
	for i := range st.Holders {
		shown[st.Holders[i].Claim] = &st.Holders[i]
	}
	return shown
}

// in reports whether shown has the claim with its token, and without an end before now, by the store's clock. If the
// token differs, the store dropped the claim, and the claim joined again. If the end has come, the store drops the claim
// with the next command for the key.
func (cl *claim) in(shown map[string]*driver.Holder, now time.Time) bool {
	h := shown[cl.request.ID]
	return h != nil && h.Token == cl.request.Token && !h.Ended(now)
}

// seen compares a state of a key, read by a request sent at the time since, with the claims that the session holds.
func (c *Core) seen(st *driver.State, since Instant) {
	q := c.queues[st.Key]
	if q == nil {
		return
	}
	var shown map[string]*driver.Holder
	var notShown []*claim
	for _, n := range q.claims {
		cl := c.claims[n]
		if !cl.state.in(held | lingering) {
			continue
		}
		if shown == nil {
			shown = holders(st)
		}
		if !cl.in(shown, time.Time{}) {
			notShown = append(notShown, cl)
		}
	}
	for _, cl := range notShown {
		if h := cl.excludedBy(st); h != nil {
			c.excluded(cl, h, st.Now)
		} else if cl.granted < since {
			c.missing(cl, 0)
		}
		c.work()
	}
}

// excluded ends the hold of cl because a state of the key, read at the time now by the store's clock, shows that
// another holder, h, was granted the key. It uses now, not the time of an earlier reply, because the store's clock may
// have jumped past the end of a lease. If the session has lapsed by then, perhaps nobody deleted the record: the
// process and its clock may have stood still for a time, and another process may have expired the session. The next
// heartbeat shows whether the session continues.
func (c *Core) excluded(cl *claim, h *driver.Holder, now time.Time) {
	switch {
	case cl.outlives():
		if cl.state == held && cl.endedBy(now) {
			c.then(cl, excluded, args{cause: errLeaseOver(cl)})
			return
		}
	case !now.Before(c.session.lastBeat.clock.Add(c.cfg.TTL)):
		c.heartbeatSoon()
		c.then(cl, deleted, args{cause: fmt.Errorf("%w: by the store's clock its TTL was over, and another has been granted the key, with token %d", ErrNotRenewed, h.Token)})
		return
	}
	c.then(cl, deleted, args{cause: fmt.Errorf("%w: another has been granted the key, with token %d", ErrRecordDeleted, h.Token)})
}

// excludedBy returns a holder in st that can only have been granted the key after the store lost the claim, or nil.
// Even in a stale state, a greater token was granted after the claim's token, because tokens grow.
func (cl *claim) excludedBy(st *driver.State) *driver.Holder {
	r := &cl.request
	for i := range st.Holders {
		h := &st.Holders[i]
		whole := r.Kind != driver.KindSemaphore && (r.Weight == r.Limit || h.Weight == st.Limit) // a semaphore's size may have changed
		if h.Token > cl.token && (whole || st.Kind != r.Kind) {
			return h
		}
	}
	return nil
}

// missing handles the store's answer that it does not hold the key for the claim, or a state that does not show the
// claim and was read after this process learned of its grant. A deposed primary may answer so, so at first missing only
// puts the claim in doubt. Once a later heartbeat has been acknowledged, the next look decides. acked is session.acked
// when the reading began, or 0 if this reading must not decide.
func (c *Core) missing(cl *claim, acked uint64) {
	switch {
	case !c.watched(cl):
	case cl.doubted == 0:
		c.doubt(cl)
	case cl.doubted <= acked:
		c.then(cl, deleted, args{cause: ErrRecordDeleted})
	}
}
