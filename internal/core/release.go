package core

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// release releases a claim that this process no longer uses. If a request is under way, the release waits for the
// request's answer: a release that overtook the request would find nothing to release, and the claim would join
// afterwards.
func (c *Core) release(cl *claim, _ args) {
	cl.due = never
	if s := c.sent[cl.command]; s == nil || s.op != Acquire && s.op != Release { // the claim's command waits for a lane, or the release need not wait for it
		cl.command = 0
	}
	switch {
	case cl.command != 0:
	case !cl.mayBe && cl.unanswered == 0: // the store never had the claim
		c.then(cl, left, args{})
	case cl.outlives() && c.leaseEnded(cl):
		c.then(cl, left, args{cause: LostTo(errLeaseOver(cl))})
	default:
		cl.command = inLine
		if c.enterLane(false, delayed{number: cl.number}) {
			c.sendRelease(cl)
		}
	}
}

// leaveBy sets how to release a claim. If the claim is already being released (because its grace is over, or because
// Close keeps it for the grace), it is too late, since the store may already have executed the release.
func (c *Core) leaveBy(cl *claim, l driver.Release) {
	if cl.state == leaving {
		var before leave
		if cl.leave != nil {
			before = *cl.leave
		}
		before.passed = errTooLate
		cl.leave = &before
		return
	}
	cl.leave = &leave{Release: l, keep: c.now.Add(l.Keep), passed: ErrLost}
	if cl.asked == byOthers {
		c.dropKeep(cl, args{})
	}
}

// errTooLate is the error for a holder that called ReleaseBy when its hold was already being released.
var errTooLate = fmt.Errorf("%w: its grace was over, and it was being released", ErrLost)

func (c *Core) sendRelease(cl *claim) {
	if cl.failed == 0 { // otherwise a request may have joined after the unanswered release: see notPassed
		c.forgetVoid(cl)
	}
	var l driver.Release
	if cl.leave != nil {
		l = cl.leave.Release
		if l.Keep > 0 {
			l.Keep = max(0, cl.leave.keep.Sub(c.now))
		}
		l.Early = l.Early && cl.failed == 0 && cl.doubted == 0 && c.closing == nil
	}
	l.Claim = cl.request
	cl.command = c.sendNow(&sent{session: cl.request.Session, claim: cl.number, keeps: l.Keep > 0},
		&Command{Op: Release, Session: cl.request.Session, Edit: driver.Edit{Release: &l}})
}

// leaseEnded reports whether the lease is known to be over by the store's clock, so that the next user of the key drops
// the claim. An unanswered Extend may have been executed at any time before the lease's end, and have set a later end.
func (c *Core) leaseEnded(cl *claim) bool { return cl.endedBy(c.storeClock()) }

func (c *Core) leaseIsOver(cl *claim, _ args) bool { return c.leaseEnded(cl) }

// endedBy is like leaseEnded, but for a given time of the store's clock.
func (cl *claim) endedBy(now time.Time) bool {
	lease := cl.request.Lease
	if cl.until.IsZero() || int64(cl.extends) > int64(math.MaxInt64/lease) {
		return false
	}
	return now.After(cl.until.Add(time.Duration(cl.extends) * lease))
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
	case !r.Found && cl.token != 0 && cl.doubted == 0:
		c.fire(cl, unknown, args{})
	case !r.Found && cl.token != 0 && cl.failed == 0:
		c.fire(cl, left, args{cause: fmt.Errorf("%w: the store did not know it any more", ErrLost)})
	case s.keeps:
		c.leftAsSaid(cl, r)
		c.fire(cl, keeps, args{})
	default:
		c.leftAsSaid(cl, r)
		c.fire(cl, left, args{applied: r.Applied})
	}
}

func (c *Core) retryRelease(cl *claim, x args) {
	c.retry(cl, x)
	c.refuseTries(cl)
}

func (c *Core) releaseRefused(cl *claim, x args) {
	cl.refused = x.cause
	c.settled(cl, x.cause)
	c.retry(cl, x)
}

// releaseToFirst releases the claim, which the store still has, to the first waiter in the queue.
func (c *Core) releaseToFirst(cl *claim, x args) {
	plain := *cl.leave
	plain.passed, plain.Successor = cl.notPassed(x.cause), ""
	cl.leave = &plain
	c.release(cl, x)
}

// doubtRelease is called when the store reports that it does not have the claim, which was held. A deposed primary may
// report that too; believe it only if the answer is the same after an acknowledged heartbeat.
func (c *Core) doubtRelease(cl *claim, _ args) {
	cl.doubted = max(c.session.acks, 1)
	c.heartbeatSoon()
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.TTL))
}

// nobodyWants reports whether the claim may be kept: nobody has wanted the key since its release was sent.
func (c *Core) nobodyWants(cl *claim, _ args) bool { return cl.leave.Keep != 0 }

func (c *Core) keep(cl *claim, _ args) {
	c.settled(cl, cl.leave.endedBy())
	left := cl.leave.keep.Sub(c.now)
	c.at(&cl.timer, cl.number, c.now.Add(left+left/1000+c.cfg.Margin))
}

func (c *Core) releaseKept(cl *claim, x args) {
	c.settled(cl, cl.leave.endedBy())
	c.release(cl, x)
}

func (c *Core) holderIsDone(cl *claim, _ args) bool { return cl.users == 0 }

// mayEndKeep reports whether a kept claim can be released, because it was not kept for its holder's grace.
func (c *Core) mayEndKeep(cl *claim, _ args) bool { return cl.users == 0 && !cl.leave.grace }

func (c *Core) releasePlainly(cl *claim, x args) {
	cl.leave = nil
	c.release(cl, x)
}

// endedBy returns errClosed if the session closed before the hold's holder was done, so that the store keeps the claim
// for the rest of the grace. Otherwise it returns nil.
func (l *leave) endedBy() error {
	if l.grace {
		return errClosed
	}
	return nil
}

// leftAsSaid records that the store has released a claim as ReleaseBy requested. If an earlier release had no answer
// and the store now does not find the claim, the earlier release was executed, because claims of expired sessions are
// not released. A lease is an exception: it may have run out instead.
func (c *Core) leftAsSaid(cl *claim, r *Reply) {
	if l := cl.leave; l != nil && l.passed == ErrLost && (r.Found || !cl.fixed()) {
		done := *l
		done.passed = nil
		cl.leave = &done
	}
}

// notPassed returns why a claim was not released to its successor, given the store's answer that the successor does not
// wait. If an earlier release had no answer, it may have granted the key to the successor, which then no longer waits.
// If a copy of a request could join after that release, the claim that the store has may be the copy's, so the answer
// proves nothing.
func (cl *claim) notPassed(err error) error {
	if cl.failed > 0 && !cl.void.IsZero() {
		return errUnsure
	}
	return err
}

// errUnsure is a holder's error if it is unknown whether the successor was granted the key.
var errUnsure = fmt.Errorf("%w: it is not known whether the successor was granted the key", ErrLost)

// A pastClaim has left the store. It is remembered until no notice, reply or request about it can arrive late.
type pastClaim struct {
	number uint64
	key    string
	token  int64  // token of its grant; 0: it was never granted
	acks   uint64 // session.acks when it left
	void   int64  // claim.void in Unix nanoseconds; 0: no request can join; discarding: a Discard is under way

	applied driver.OpTime // when its release was applied, if a fail-over may still undo the release; otherwise zero
}

const (
	discarding = -1
	longAgo    = 1
)

// leaveStore ends a claim that the store no longer has. While an unanswered request, or a copy of an answered request,
// could still make the claim join again, it stays a past claim, to be discarded afterwards. Otherwise it is remembered
// for two heartbeats, so that late notices and replies about it are ignored. It is forgotten at once if nothing can be
// late, because the session does not listen and no command is under way.
func (c *Core) leaveStore(cl *claim, x args) {
	cl.refused = nil
	if x.cause == nil {
		x.cause = cl.lostBy
	}
	c.settled(cl, x.cause)
	applied := x.applied
	undoable, late := applied != driver.OpTime{}, !cl.void.IsZero() || c.listener.running || len(c.sent) > 0
	if cl.request.Session == c.session.id && (undoable || late) {
		p := pastClaim{number: cl.number, key: cl.request.Key, token: cl.request.Token, acks: c.session.acks, applied: applied}
		if !cl.void.IsZero() {
			p.void = cl.void.UnixNano()
		}
		if c.past = append(c.past, p); p.void > 0 && c.discards.due == never {
			c.discardLater()
		}
	}
}

// endUnreleased is called when the session is lost before the claim's release is answered.
func (c *Core) endUnreleased(cl *claim, x args) {
	cl.lostBy = LostTo(x.cause)
	c.settled(cl, cl.lostBy)
}

// isNew reports whether a notice or reply about the session's claim with that id and token is newer than the past claim
// with that id.
func (c *Core) isNew(id string, token int64) bool {
	n, _ := numberOf(id)
	i := slices.IndexFunc(c.past, func(p pastClaim) bool { return p.number == n })
	return i < 0 || token > c.past[i].token
}

// mayBeUndone reports whether the release of a past claim may have been undone, and no Discard has been sent for it
// yet.
func (c *Core) mayBeUndone(id string) bool {
	n, _ := numberOf(id)
	return slices.ContainsFunc(c.past, func(p pastClaim) bool {
		return p.number == n && p.applied != driver.OpTime{} && p.void != discarding && p.void != longAgo
	})
}

// forgetPast forgets past claims about which nothing can arrive late. It is called after every acknowledged
// heartbeat.
func (c *Core) forgetPast() {
	c.past = slices.DeleteFunc(c.past, func(p pastClaim) bool {
		return p.void == 0 && p.applied == driver.OpTime{} && c.session.acks >= p.acks+2
	})
}

// committed handles the store's report that its writes are committed up to at. A release applied in another term may
// have been undone, and the store may not know, so the claim is discarded.
func (c *Core) committed(at driver.OpTime) {
	undone, busy := false, c.closing != nil
	var rejoin []pastClaim
	for i := range c.past {
		switch p := &c.past[i]; {
		case p.void == discarding:
			busy = true
		case p.void == longAgo: // its Discard failed and will be sent again
		case p.applied == driver.OpTime{}:
		case p.applied.Term != at.Term:
			if p.void > 0 { // discard it again once no request can join
				rejoin = append(rejoin, pastClaim{number: p.number, key: p.key, token: p.token, acks: p.acks, void: p.void})
			}
			p.void, undone = longAgo, true
		case p.applied.Time <= at.Time:
			p.applied = driver.OpTime{}
		}
	}
	c.past = append(c.past, rejoin...)
	if undone && !busy {
		c.discards.due = c.now
	}
}

// void reports whether a request with that notAfter can no longer join, even if the store's clock has stepped by up
// to the margin.
func (c *Core) void(notAfter time.Time) bool {
	return c.storeClock().After(notAfter.Add(c.cfg.Margin))
}

// forgetVoid clears cl.void if none of the claim's requests can still join.
func (c *Core) forgetVoid(cl *claim) {
	if !cl.void.IsZero() && c.void(cl.void) {
		cl.void = time.Time{}
	}
}

// discards schedules the Discards of past claims that a copy of a request could make join again. A claim is due once no
// such copy can join. One command discards up to maxDiscards claims that are due. So a session sends at most one
// Discard within the time of two attempts, plus one for each further maxDiscards claims.
type discards struct {
	due    Instant // when to send a Discard; never: nothing to discard, or one is under way
	failed int     // consecutive Discards that were refused or not answered
}

// maxDiscards is the most claims that one command discards.
const maxDiscards = 1000

// discardLater schedules the next Discard. It waits one Attempt longer than the first claim requires, so that one
// command can discard later claims, too. If a fail-over may have undone the release of a claim, the Discard
// is due now.
func (c *Core) discardLater() {
	due := never
	for i := range c.past {
		switch p := &c.past[i]; {
		case p.void == discarding || c.closing != nil:
			c.discards.due = never
			return
		case p.void == longAgo:
			due = c.now
		case p.void > 0 && due == never:
			due = c.now.Add(max(0, time.Unix(0, p.void).Sub(c.storeClock())+c.cfg.Margin) + c.cfg.Attempt)
		}
	}
	c.discards.due = due
}

// discardsDue sends the Discard if it is due.
func (c *Core) discardsDue() {
	if c.discards.due > c.now {
		return
	}
	var claims []driver.Claim
	for i := range c.past {
		p := &c.past[i]
		if len(claims) == maxDiscards {
			break
		}
		if p.void > 0 && c.void(time.Unix(0, p.void)) {
			p.void = discarding
			claims = append(claims, driver.Claim{Key: p.key, ID: c.claimID(p.number), Session: c.session.id})
		}
	}
	if len(claims) == 0 { // the store's clock went back
		c.discardLater()
		return
	}
	c.discards.due = never
	c.send(&Command{Op: Discard, Session: c.session.id, Claims: claims}, 0)
}

// discarded handles the answer to a Discard.
func (c *Core) discarded(s *sent, r *Reply) {
	if s.session != c.session.id {
		return
	}
	if r.Err != nil { // no answer, or refused: a missing privilege may be granted later
		c.discardAgain()
		return
	}
	n := 0
	for i := range c.past {
		if p := &c.past[i]; p.void == discarding {
			p.void, p.applied = 0, driver.OpTime{}
			n++
		}
	}
	c.discards.failed = 0
	c.discardLater()
	if n == maxDiscards && c.closing == nil { // more may be due
		c.discards.due = c.now
	}
}

// discardAgain schedules another Discard, after a pause, for the claims of a failed Discard. It puts them behind the
// other past claims, so that claims that can't be discarded don't block the rest.
func (c *Core) discardAgain() {
	var failed []pastClaim
	c.past = slices.DeleteFunc(c.past, func(p pastClaim) bool {
		if p.void != discarding {
			return false
		}
		p.void = longAgo
		failed = append(failed, p)
		return true
	})
	c.past = append(c.past, failed...)
	c.discards.due = c.now.Add(c.cfg.pause(c.discards.failed))
	c.discards.failed++
}
