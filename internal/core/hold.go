package core

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// begin begins the first hold of a claim.
func (c *Core) begin(cl *claim, x *args) {
	a, q := cl.call, cl.queue
	cl.wait, c.listener.idle = nil, c.now
	c.looks.turns = append(c.looks.turns, cl.number)
	if cl.fixed() {
		c.at(&cl.timer, cl.number, x.ends)
	}
	if c.listener.state == ready && !c.wouldKnow(cl) && !a.Shares && cl.request.Yield {
		cl.ender = max(cl.ender, byWaiters) // this session may have missed the notice that another session waits
	}
	c.deliver(cl, a, x.term, false)
	if a.Shares {
		q.shared = cl.number
	}
	c.listen(listenAfter)
	if q.forceWaits() || cl.ender == byOthers {
		c.then(cl, revoke, args{cause: ErrRevoked}) // after the request was sent, the claim was revoked or a caller with First came
	}
	if !a.Try {
		q.turn = nil
		c.admitLater(q)
	}
}

// deliver gives a caller a hold of the claim.
func (c *Core) deliver(cl *claim, a *Call, term int64, local bool) {
	cl.call, cl.users = a, 1
	c.give(Deliver{
		To: a, Hold: a, Claim: cl.number, Request: &cl.request, Token: cl.token, Term: term,
		Until: cl.until, Granted: cl.granted, Local: local,
	})
}

// windDown ends a hold whose claim the store may still have. The claim is released when the holder is done or
// the grace is over.
func (c *Core) windDown(cl *claim, x *args) {
	cause := x.cause
	switch {
	case cause == ErrClosed:
	case cause == ErrRevoked, cause == ErrStalled, notThere(cause):
		c.dropKeep(cl, x)
	default:
		cl.ender = byHolder
	}
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Grace))
	c.do(&End{cl.call, cause, cause != ErrClosed && cause != ErrStalled && !notThere(cause)})
}

// stalled ends a hold whose holder has made no progress within its limit.
func (c *Core) stalled(cl *claim, _ *args) { c.windDown(cl, &args{cause: ErrStalled}) }

// limitProgress makes the hold end unless its holder makes progress again within the limit. Leases have no such limit,
// because they run out by themselves.
func (c *Core) limitProgress(cl *claim, x *args) {
	if x.limit > 0 {
		c.at(&cl.timer, cl.number, c.now.Add(x.limit))
	} else {
		cl.due = never
	}
}

// loseHold ends a hold whose key the store may already have granted to another session. It sends no release.
// The claim stays in c.claims for the grace, so that the session does not treat a lease as unknown and
// release it.
func (c *Core) loseHold(cl *claim, x *args) {
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Grace))
	c.do(&End{cl.call, x.cause, errors.Is(x.cause, ErrLeaseOver)})
	if cl.fixed() {
		c.settled(cl, nil)
	} else {
		cl.lostBy = LostTo(x.cause)
	}
}

// loseRelease is called when the session is lost while a hold's grace is running.
func (c *Core) loseRelease(cl *claim, x *args) {
	cl.lostBy = LostTo(x.cause)
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Grace))
}

// done is called when a holder is done.
func (c *Core) done(e *Done) {
	cl := c.claims[e.Claim]
	if cl == nil || cl.call != e.Hold || cl.users == 0 {
		return
	}
	if cl.users--; cl.users > 0 { // other readers still share the hold
		return
	}
	c.fire(cl, done, args{done: e})
}

// saysHow reports whether the holder has said how the claim is released. Such a hold is not handed off.
func (c *Core) saysHow(_ *claim, x *args) bool { return x.done.Release != nil }

// mayLeaveAsSaid is like saysHow, for a hold that winds down: a lost hold must not seal, and a revoked key must not be
// kept.
func (c *Core) mayLeaveAsSaid(cl *claim, x *args) bool {
	return cl.ender <= byWaiters && x.done.Release != nil && x.done.Release.Seal == 0
}

func (c *Core) releaseAsSaid(cl *claim, x *args) {
	cl.leave = &leave{Release: *x.done.Release, keepUntil: c.now.Add(x.done.Release.Keep)}
	c.release(cl, x)
}

// releaseDone releases a claim whose holder is done.
func (c *Core) releaseDone(cl *claim, x *args) {
	if cl.leave == nil && x.done.Early {
		cl.leave = early
	}
	c.release(cl, x)
}

// settle ends a hold whose claim was lost, or released at the end of the grace.
func (c *Core) settle(cl *claim, _ *args) { c.settled(cl, cl.lostBy) }

// settled ends the claim's hold, with err as its error, and frees the claim's slot. As with a sync.Mutex, the slot is
// not freed before the holder is done, unless the hold has Auto or is a lease.
func (c *Core) settled(cl *claim, err error) {
	if a := cl.call; a != nil {
		if c.inUse(cl, nil) {
			return
		}
		cl.call, cl.users = nil, 0
		f := Freed{Hold: a, Err: err}
		if cl.leave != nil {
			f.Passed = cl.leave.notAsSaid
		}
		c.free(f)
	}
	c.freeSlot(cl)
}

// mayReuse reports whether this process may use the claim for another hold. It may if readers can't share the claim,
// the holder has not said how to release it, the store has certainly not lost it, and there are tokens left.
func (c *Core) mayReuse(cl *claim) bool {
	room := int64(driver.TokenStep)
	if cl.request.Yield {
		room = driver.TokenRoom
	}
	handOffs := cl.token - cl.request.Token
	return cl.leave == nil && cl.doubted == 0 && handOffs+1 < room && !cl.shares()
}

// nextFits reports whether the claim can be handed off to the next caller in this process, without other processes
// getting their turn first.
func (c *Core) nextFits(cl *claim, _ *args) bool {
	return c.nextLike(cl) && c.mayReuse(cl) &&
		(c.now.Sub(cl.granted) < c.cfg.HandOff || c.cfg.Linger > 0 && c.mayKeep(cl, c.cfg.HandOff))
}

func (c *Core) handOffToNext(cl *claim, _ *args) {
	q := cl.queue
	a := q.calls[0]
	q.calls = q.calls[1:]
	c.free(Freed{Hold: cl.call})
	c.handOff(cl, &args{call: a})
}

// fitsCaller reports whether the lingering claim can be handed off to the caller.
func (c *Core) fitsCaller(cl *claim, x *args) bool { return c.like(x.call, cl) && cl.doubted == 0 }

// handOff begins the claim's next hold, with the next token.
func (c *Core) handOff(cl *claim, x *args) {
	cl.due = never
	cl.token++
	c.deliver(cl, x.call, 0, true)
}

// mayLinger reports whether nobody waits for the claim, so that it can be kept for a while.
func (c *Core) mayLinger(cl *claim, _ *args) bool {
	return cl.request.Yield && len(cl.queue.calls) == 0 && c.mayReuse(cl) && c.mayKeep(cl, max(c.cfg.HandOff, c.cfg.Linger))
}

func (c *Core) linger(cl *claim, _ *args) {
	c.free(Freed{Hold: cl.call})
	cl.call = nil
	cl.queue.lingering = cl.number
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Linger))
}

// mayReplace reports whether replace can release the claim.
func (c *Core) mayReplace(cl *claim, _ *args) bool {
	return cl.leave == nil && c.closing == nil && cl.command == 0 && cl.request.Session == c.session.id && c.lanes.busy < c.laneLimit() && c.nextLike(cl)
}

// replace releases the claim, whose holder is done, with the command that requests the key for the next caller in this
// process. So the caller joins the store's queue at the moment when this claim leaves the store. Thus it joins ahead of
// any claim of this process that waits in the queue for a later tick.
func (c *Core) replace(cl *claim, _ *args) {
	q := cl.queue
	a := q.calls[0]
	q.calls, q.turn = q.calls[1:], a
	next := c.newClaim(q, a)
	c.takeSlot(cl) // the next claim takes the slot over
	c.forgetJoins(cl)
	c.enterLane(false, delayed{})
	c.then(next, replaces, args{before: cl})
}

// nextLike reports whether the claim could serve the next caller in this process.
func (c *Core) nextLike(cl *claim) bool {
	return len(cl.queue.calls) > 0 && c.like(cl.queue.calls[0], cl)
}

// like reports whether the claim could serve the caller.
func (c *Core) like(a *Call, cl *claim) bool {
	r := &cl.request
	return a.exclusive() && a.Kind == r.Kind && a.Weight == r.Weight && a.Limit == r.Limit && a.Tick == r.Tick &&
		a.Lease == 0 && r.Lease == 0 && !a.Auto && (cl.call == nil || !cl.call.Auto)
}

// joinable reports whether another reader may share the claim's hold.
func (c *Core) joinable(cl *claim) bool {
	return c.cfg.HandOff > 0 && cl.state == held && c.mayKeep(cl, c.cfg.HandOff) && cl.doubted == 0
}

// mayKeep reports whether the claim may be kept for another use in this process. It may be kept until d after its
// grant, and for at least notifiedTurn if the session would be notified of other waiters. Once others wait, it may not
// be kept.
func (c *Core) mayKeep(cl *claim, d time.Duration) bool {
	if cl.ender != byNobody {
		return false
	}
	if c.wouldKnow(cl) {
		d = max(d, notifiedTurn)
	}
	return c.now.Sub(cl.granted) < d
}

// wouldKnow reports whether the session would be notified if others began to wait for the claim.
func (c *Core) wouldKnow(cl *claim) bool {
	return cl.readies != 0 && cl.readies == c.listener.hears()
}

// notifiedTurn is how long a session may keep a claim if it would be notified of other waiters, even if HandOff and
// Linger are shorter. If the notice is lost, the other waiters wait that long.
const notifiedTurn = 5 * time.Second

// extended handles the answer to an Extend that the holder sent.
func (c *Core) extended(s *sent, r *Reply) {
	cl := c.claims[s.ask.Claim]
	if cl == nil || r.Lost {
		return
	}
	cl.extends--
	switch {
	case errors.Is(r.Err, driver.ErrNotHeld) && c.leaseIsOver(cl, nil): // the store's clock must have jumped
		c.fire(cl, excluded, args{cause: errLeaseOver(cl)})
	case errors.Is(r.Err, driver.ErrNotHeld) && c.watched(cl): // a deposed primary may have answered
		c.missing(cl, 0)
	case errors.Is(r.Err, driver.ErrNotHeld): // no look would find out; but if a deposed primary has answered, the store has the lease
		c.fire(cl, deleted, args{cause: fmt.Errorf("%w: %w", ErrRecordDeleted, r.Err)})
	case r.Err == nil:
		if r.Holder.Until.After(cl.until) {
			cl.until = r.Holder.Until
		}
		if ends := s.at.Add(c.cfg.Hold(cl.request.Lease)); cl.state == held && ends > cl.due {
			c.at(&cl.timer, cl.number, ends)
		}
	}
}

// windDownLease ends a lease that is over. An unanswered Extend may have set a later end, so the claim is released.
func (c *Core) windDownLease(cl *claim, _ *args) { c.windDown(cl, &args{cause: errLeaseOver(cl)}) }

// errLeaseOver returns the error of a hold whose lease ran out.
func errLeaseOver(cl *claim) error { return fmt.Errorf("%w after %v", ErrLeaseOver, cl.request.Lease) }

func (c *Core) loseLease(cl *claim, _ *args) { c.loseHold(cl, &args{cause: errLeaseOver(cl)}) }

// leaseIsOver reports whether the lease is known to be over by the store's clock, so that the next user of the key drops
// the claim. An unanswered Extend may have been executed at any time before the lease's end, and may have set a later
// end.
func (c *Core) leaseIsOver(cl *claim, _ *args) bool { return cl.endedBy(c.storeClock()) }

// endedBy is like leaseIsOver, but for a given time of the store's clock.
func (cl *claim) endedBy(now time.Time) bool {
	lease := cl.request.Lease
	if cl.until.IsZero() || int64(cl.extends) > int64(math.MaxInt64/lease) {
		return false
	}
	return now.After(cl.until.Add(time.Duration(cl.extends) * lease))
}
