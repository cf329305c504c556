package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// join requests the claim as soon as a lane is free.
func (c *Core) join(cl *claim, _ *args) {
	if cl.command != 0 {
		return
	}
	cl.due, cl.command = never, inLine
	poll := cl.requests > 0
	if c.enterLane(poll, delayed{number: cl.number}) {
		c.sendJoin(cl, poll, nil)
	}
}

// sendJoin sends a request to join. The request names the sessions ahead that have expired. If old is not nil, the same
// command releases old.
func (c *Core) sendJoin(cl *claim, poll bool, old *claim) {
	cl.wait.named, cl.wait.woken = c.expiredAmong(cl.wait.ahead), false
	cl.requests++
	cl.readies = c.listener.hears()
	if c.breaks(cl, nil) {
		c.sendBreak(cl, poll)
		return
	}
	e := driver.Edit{Acquire: &driver.Acquire{
		Claim: cl.request, Wait: !cl.call.Try, Expired: cl.wait.named, NotAfter: c.storeClock().Add(c.cfg.Attempt), Repeated: cl.requests > 1,
	}}
	if old != nil {
		e.Release = &driver.Release{Claim: old.request}
	}
	cl.command = c.sendNow(&sent{claim: cl.number, poll: poll, Command: &Command{Op: Acquire, Session: cl.request.Session, Edit: e}})
	if old != nil {
		old.command = cl.command
	}
}

// joinInPlace requests the claim with a command that also releases the claim before it. replace has already taken a
// lane for the command.
func (c *Core) joinInPlace(cl *claim, x *args) { c.sendJoin(cl, false, x.before) }

// joinAnswered handles the reply to a request to join.
func (c *Core) joinAnswered(cl *claim, s *sent, r *Reply) {
	if leaves := s.Edit.Release; leaves != nil {
		if old := c.byID(leaves.Claim.ID); old != nil && old.command == r.Command {
			old.command = 0
			if r.Err == nil && r.Found { // otherwise a deposed primary may not know of the claim
				c.fire(old, left, args{})
			} else {
				old.failed++
				c.fire(old, again, args{})
			}
		}
	}
	switch {
	case cl == nil:
		return
	case c.breaks(cl, nil):
		c.breakAnswered(cl, r)
		return
	case r.Lost:
		cl.stored = max(cl.stored, unsure)
	}
	if notAfter := s.Edit.Acquire.NotAfter; (r.Err != nil || !r.State.Final) && notAfter.After(cl.joinsUntil) {
		cl.joinsUntil = notAfter
	}
	st := &r.State
	h, holds := st.Holder(cl.request.ID)
	if r.Err == nil {
		c.sawClock(st.Now)
		c.unknown(st, cl)
		joined := cl.stored == present
		switch {
		case holds || st.Position > 0:
			cl.stored = present
		case cl.state.in(ungiven): // later, the answer may be from before the grant
			cl.stored = absent
		}
		if st.Position > 0 && joined || cl.call != nil && cl.call.Try && !holds {
			r.Notices = unchanged(r.Notices)
		}
	}
	switch {
	case cl.state == leaving: // the release has waited for this answer
		c.fire(cl, again, args{})
	case cl.state != joining: // a notice has already moved the claim on
	case holds:
		crowded := st.Waiting > 0
		c.granted(cl, grant{h.Token, st.Term, crowded, cl.requests == 1 && !crowded, h.Since})
	default:
		c.notGranted(cl, r)
	}
}

// notGranted handles a reply that doesn't grant the claim.
func (c *Core) notGranted(cl *claim, r *Reply) {
	w, st, try := cl.wait, &r.State, cl.call.Try
	switch {
	case cl.queue.forceWaits() && !cl.request.First && !try:
		c.fire(cl, revoke, args{})
	case r.Lost:
		c.fire(cl, unanswered, args{cause: r.Err})
	case errors.Is(r.Err, driver.ErrMismatch):
		w.refusal = r.Err
		c.fire(cl, mismatched, args{})
	case r.Err != nil:
		c.fire(cl, refused, args{cause: r.Err})
	case st.Over(cl.request.Tick):
		c.fire(cl, refused, args{cause: &SealedError{st.Sealed, st.Value}})
	case st.Position > 0:
		cl.failed = 0
		c.ahead(w, st)
		c.fire(cl, queued, args{})
	case try && !fits(&cl.request, st):
		c.ahead(w, st)
		w.refusal = HeldError(st)
		c.fire(cl, blocked, args{})
	case try && cl.failed == 0: // the request came too late; now the store's clock is known, so try once more
		cl.failed++
		c.fire(cl, again, args{})
	case try:
		c.fire(cl, refused, args{cause: ErrLate})
	default:
		c.failure = ErrLate
		c.fire(cl, unanswered, args{})
	}
}

// fits reports whether the store could grant the claim at once, because there is room for it and nobody waits.
func fits(r *driver.Claim, st *driver.State) bool {
	if st.Waiting > 0 {
		return false
	}
	free := st.Limit // subtract: a sum of weights could overflow
	for i := range st.Holders {
		free -= st.Holders[i].Weight
	}
	return len(st.Holders) == 0 || r.Weight <= free
}

// missedWake reports whether the claim should request again, because a notice to do so came, or may have been missed,
// while the request was under way.
func (c *Core) missedWake(cl *claim, _ *args) bool {
	return cl.wait.woken || c.listener.state == ready && cl.readies != c.listener.readies
}

func (c *Core) noteWake(cl *claim, _ *args) { cl.wait.woken = true }

// retry sets the timer for the next request or release.
func (c *Core) retry(cl *claim, _ *args) {
	c.at(&cl.timer, cl.number, c.now.Add(c.pause(cl.failed)))
	cl.failed++
}

func (c *Core) onlyTries(cl *claim, _ *args) bool { return cl.call.Try }

// refuse gives the claim's caller an error instead of a hold.
func (c *Core) refuse(cl *claim, x *args) {
	a := cl.call
	c.deny(a, x.cause)
	if sealed := (*SealedError)(nil); errors.As(x.cause, &sealed) {
		if !cl.queue.over(sealed.Tick) {
			cl.queue.sealed = sealed
		}
	}
	c.leaveQueue(cl)
}

// leaveQueue gives up a claim whose caller no longer waits. The next caller gets the turn at once.
func (c *Core) leaveQueue(cl *claim) {
	if q := cl.queue; q.turn == cl.call {
		q.turn = nil
	}
	cl.call, cl.wait = nil, nil
	c.release(cl, nil)
	c.freeSlot(cl)
}

// requestAnew releases a claim that its caller can't use, and then requests another for the caller.
func (c *Core) requestAnew(cl *claim, _ *args) {
	a := cl.call
	cl.call, cl.wait = nil, nil
	c.takeSlot(cl)
	c.release(cl, nil)
	c.tasks = append(c.tasks, task{call: a})
}

// readmit handles a claim that was lost with its session before it was held: its caller requests another claim under
// the next session id.
func (c *Core) readmit(cl *claim, _ *args) {
	cl.queue.admitted = append(cl.queue.admitted, cl.call)
	c.takeSlot(cl)
}

// readmitAndRelease is like readmit, but also releases the claim. An unanswered Extend may have set the end of the
// claim's lease. If the claim were not released, the store would keep it until that end, and even the claim's own
// caller would have to wait.
func (c *Core) readmitAndRelease(cl *claim, x *args) {
	c.readmit(cl, x)
	cl.call, cl.wait = nil, nil
	c.release(cl, x)
}

// A grant describes how the store granted a claim.
type grant struct {
	token, term int64
	crowded     bool
	alone       bool // the first request was granted in its reply, and no other claim waited
	since       time.Time
}

// granted handles a grant reported by a reply or a notice. Granting a lease does not set the lease's end; the first
// Extend does, and until then the lease ends with its session. If the grant set the end, a grant that no process learns
// of would block the key for the whole lease, even after the session has expired.
func (c *Core) granted(cl *claim, g grant) {
	cl.request.Token, cl.request.NoneWaiting = g.token, g.alone
	cl.token, cl.since, cl.granted = g.token, g.since, c.now
	cl.stored, cl.failed = present, 0
	if g.crowded {
		cl.ender = max(cl.ender, byWaiters)
	}
	if cl.command == inLine {
		cl.command = 0
	}
	before := c.earlierTick(cl)
	if before != nil {
		c.fire(before, deleted, args{cause: fmt.Errorf("%w: the store has granted a later tick", ErrRecordDeleted)})
	}
	c.fire(cl, granted, args{term: g.term, before: before})
}

// earlierTick returns the claim of a holder in this process that has not finished an earlier tick, or nil. The store
// may still grant a later tick: it may have lost that claim, or the claim may have been released at the end of its
// grace.
func (c *Core) earlierTick(cl *claim) *claim {
	if cl.request.Kind != driver.KindPeriodic {
		return nil
	}
	for _, n := range cl.queue.claims {
		if o := c.claims[n]; o.users > 0 {
			return o
		}
	}
	return nil
}

// earlierTickRuns reports whether the granted claim's caller must wait in this process for an earlier tick.
func (c *Core) earlierTickRuns(_ *claim, x *args) bool { return x.before != nil }

// isForced reports whether the claim's caller wants the key by force.
func (c *Core) isForced(cl *claim, _ *args) bool { return cl.request.First }

// learnGrant makes a revoked claim request again: it must have been granted, because only a granted claim is revoked.
// The claim keeps its position ahead of all waiters. If its caller requested another claim instead, two callers with
// First could take the key from each other without end.
func (c *Core) learnGrant(cl *claim, _ *args) {
	if cl.ender != byOthers {
		cl.ender = byOthers
		c.then(cl, wake, args{})
	}
}

// load reads the state of a key that is in use as another kind, to learn which sessions use it.
func (c *Core) load(cl *claim, _ *args) {
	cl.command = inLine
	if c.enterLane(false, delayed{number: cl.number}) {
		cl.command = c.sendNow(&sent{claim: cl.number, Command: &Command{Op: Load, Key: cl.request.Key}})
	}
}

func (c *Core) loaded(cl *claim, r *Reply) {
	switch {
	case cl != nil && c.breaks(cl, nil):
		c.breakAnswered(cl, r)
	case cl == nil || cl.state != checking:
	case r.Err != nil:
		c.fire(cl, unanswered, args{cause: r.Err})
	default:
		cl.wait.ahead = SessionsIn(&r.State, c.session.id)
		c.check(cl, nil)
		c.work()
	}
}

// extend makes the store set the first end of a lease.
func (c *Core) extend(cl *claim, _ *args) {
	if cl.command != 0 { // a request to join is still under way
		c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Retry))
		return
	}
	cl.due, cl.command = never, inLine
	if c.enterLane(false, delayed{number: cl.number}) {
		var cmd Command
		c.extending(&cmd, cl)
		cl.command = c.sendNow(&sent{claim: cl.number, Command: &cmd})
	}
}

// extendAnswered handles the answer to a lease's first Extend. If the Extend succeeded, the hold begins,
// and its time is counted from when the Extend was sent.
func (c *Core) extendAnswered(cl *claim, s *sent, r *Reply) {
	if cl == nil || cl.state != dating {
		return
	}
	if !r.Lost {
		cl.extends--
	}
	switch ends := s.at.Add(c.cfg.Hold(cl.request.Lease)); {
	case r.Lost:
		c.fire(cl, unanswered, args{cause: r.Err})
	case errors.Is(r.Err, driver.ErrNotHeld), r.Err == nil && c.now >= ends:
		c.fire(cl, leaseOver, args{})
	case r.Err != nil:
		c.fire(cl, refused, args{cause: r.Err})
	default:
		cl.since, cl.until = r.Holder.Since, r.Holder.Until
		c.fire(cl, extended, args{ends: ends})
	}
}

func (c *Core) extendUnanswered(cl *claim, _ *args) bool { return cl.extends > 0 }
