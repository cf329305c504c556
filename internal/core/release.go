package core

import (
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// release releases a claim that this process no longer uses. If a request is under way, the release waits for the
// request's answer: a release that overtook the request would find nothing to release, and the claim would join
// afterwards.
func (c *Core) release(cl *claim, _ *args) {
	cl.due = never
	if s := c.sent[cl.command]; s == nil || s.Op != Acquire && s.Op != Release { // the claim's command waits for a lane, or the release need not wait for it
		cl.command = 0
	}
	switch {
	case cl.command != 0:
	case cl.stored == absent:
		c.then(cl, left, args{})
	case cl.outlives() && c.leaseIsOver(cl, nil):
		c.then(cl, left, args{cause: LostTo(errLeaseOver(cl))})
	default:
		cl.command = inLine
		if c.enterLane(false, delayed{number: cl.number}) {
			c.sendRelease(cl)
		}
	}
}

// leaveBy sets how to release a claim. It is too late if the claim is already being released, because its grace is over
// or because Close keeps it for the grace: the store may already have executed that release.
func (c *Core) leaveBy(cl *claim, l driver.Release) {
	if cl.state == leaving {
		var before leave
		if cl.leave != nil {
			before = *cl.leave
		}
		before.notAsSaid = errTooLate
		cl.leave = &before
		return
	}
	cl.leave = &leave{Release: l, keepUntil: c.now.Add(l.Keep), notAsSaid: ErrLost}
	if cl.ender == byOthers {
		c.dropKeep(cl, nil)
	}
}

func (c *Core) sendRelease(cl *claim) {
	if cl.failed == 0 { // after a release without an answer, the claim is discarded in any case
		c.forgetJoins(cl)
	}
	var l driver.Release
	if cl.leave != nil {
		l = cl.leave.Release
		if l.Keep > 0 {
			l.Keep = max(0, cl.leave.keepUntil.Sub(c.now))
		}
		l.Early = l.Early && cl.failed == 0 && cl.doubted == 0 && c.closing == nil
	}
	l.Claim = cl.request
	cl.command = c.sendNow(&sent{claim: cl.number, Command: &Command{Op: Release, Session: cl.request.Session, Edit: driver.Edit{Release: &l}}})
}

// releaseAnswered handles the reply to a release. A refused release is repeated as long as the session lives: the
// database user may get back a privilege that was revoked by mistake.
func (c *Core) releaseAnswered(cl *claim, s *sent, r *Reply) {
	if cl == nil || cl.state != leaving {
		return
	}
	switch {
	case errors.Is(r.Err, driver.ErrNotWaiting):
		c.fire(cl, unwaited, args{cause: r.Err})
	case r.Err != nil && c.closing != nil && !(r.Lost && c.repeats(s)):
		c.abandon(cl, r.Err)
	case r.Lost:
		c.fire(cl, unanswered, args{})
	case r.Err != nil:
		c.fire(cl, refused, args{cause: r.Err})
	case !r.Found && cl.stored == present && cl.doubted == 0:
		c.fire(cl, unknown, args{})
	case !r.Found && cl.token != 0 && cl.failed == 0:
		c.fire(cl, left, args{cause: fmt.Errorf("%w: the store did not know it any more", ErrLost)})
	case s.Edit.Release.Keep > 0:
		c.leftAsSaid(cl, r)
		c.fire(cl, keeps, args{})
	default:
		c.leftAsSaid(cl, r)
		c.fire(cl, left, args{applied: r.Applied})
	}
}

func (c *Core) retryRelease(cl *claim, x *args) {
	c.retry(cl, x)
	c.refuseTries(cl)
}

func (c *Core) releaseRefused(cl *claim, x *args) {
	cl.refused = x.cause
	c.settled(cl, x.cause)
	c.retry(cl, x)
}

// releaseToFirst releases the claim, which the store still has, to the first waiter in the queue.
func (c *Core) releaseToFirst(cl *claim, x *args) {
	plain := *cl.leave
	plain.notAsSaid, plain.Successor = cl.notPassed(x.cause), ""
	cl.leave = &plain
	c.release(cl, x)
}

// doubtRelease is called when the store reports that it does not have the claim, which an answer or a notice has shown. A
// deposed primary may report that too, so the answer is believed only if it is the same after an acknowledged heartbeat.
func (c *Core) doubtRelease(cl *claim, _ *args) {
	c.doubt(cl)
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.TTL))
}

// nobodyWants reports whether the claim may be kept: nobody has wanted the key since its release was sent.
func (c *Core) nobodyWants(cl *claim, _ *args) bool { return cl.leave.Keep != 0 }

func (c *Core) keep(cl *claim, _ *args) {
	c.settled(cl, cl.leave.endedBy())
	left := cl.leave.keepUntil.Sub(c.now)
	c.at(&cl.timer, cl.number, c.now.Add(left+left/1000+c.cfg.Margin))
}

func (c *Core) releaseKept(cl *claim, x *args) {
	c.settled(cl, cl.leave.endedBy())
	c.release(cl, x)
}

func (c *Core) holderIsDone(cl *claim, _ *args) bool { return cl.users == 0 }

// mayEndKeep reports whether a kept claim can be released. It can if it was not kept for its holder's grace.
func (c *Core) mayEndKeep(cl *claim, _ *args) bool { return cl.users == 0 && !cl.leave.grace }

func (c *Core) releasePlainly(cl *claim, x *args) {
	cl.leave = nil
	c.release(cl, x)
}

// endedBy returns errClosed if the session closed before the holder was done. In that case, the store keeps the claim
// for the rest of the grace. Otherwise endedBy returns nil.
func (l *leave) endedBy() error {
	if l.grace {
		return errClosed
	}
	return nil
}

// leftAsSaid records that the store has released a claim as ReleaseBy requested. Suppose that an earlier release had no
// answer and that the store now does not find the claim. Then the earlier release was executed, because claims of
// expired sessions are not released. A lease is an exception: it may have run out instead.
func (c *Core) leftAsSaid(cl *claim, r *Reply) {
	if l := cl.leave; l != nil && l.notAsSaid == ErrLost && (r.Found || !cl.fixed()) {
		done := *l
		done.notAsSaid = nil
		cl.leave = &done
	}
}

// notPassed returns why a claim was not released to its successor, given the store's answer that the successor does not
// wait. After an earlier release without an answer, that proves nothing: it may have granted the key to the successor,
// and the claim that the store still shows may have come from a copy of its request, or a deposed primary has answered.
func (cl *claim) notPassed(err error) error {
	if cl.failed > 0 {
		return errUnsure
	}
	return err
}

// endUnreleased is called when the session is lost before the claim's release is answered.
func (c *Core) endUnreleased(cl *claim, x *args) {
	cl.lostBy = LostTo(x.cause)
	c.settled(cl, cl.lostBy)
}
