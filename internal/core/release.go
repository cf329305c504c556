package core

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// release releases a claim that nobody here uses any more, or must not use. A release that overtook a
// request would release nothing, and the claim would join after it; so it waits for that.
func (c *Core) release(cl *claim) {
	if cl.state != leaving {
		cl.state, cl.failed, cl.doubted, c.listener.idle = leaving, 0, 0, c.now
		if q := c.queues[cl.request.Key]; q != nil && q.lingering == cl.number {
			q.lingering = 0
		}
	}
	cl.due = never
	if s := c.sent[cl.command]; s == nil || s.op != Acquire && s.op != Release { // in line, or nothing that it must wait for
		cl.command = 0
	}
	switch {
	case cl.command != 0:
	case !cl.mayBe && cl.unanswered == 0: // the store never had it
		c.leftStore(cl)
	case cl.outlives() && c.leaseEnded(cl):
		c.settled(cl, LostTo(errLeaseOver(cl)))
		c.leftStore(cl)
	default:
		cl.command = inLine
		if c.enterLane(false, delayed{number: cl.number}) {
			c.sendRelease(cl)
		}
	}
}

// leaveBy says how a claim is to be released. If its grace is over it is being released already, and the store may have
// that release; or Close keeps it for the grace. Neither is changed any more.
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
		cl.dropKeep()
	}
}

// errTooLate is what a holder learns that said how to release its hold when that was being released.
var errTooLate = fmt.Errorf("%w: its grace was over, and it was being released", ErrLost)

func (c *Core) sendRelease(cl *claim) {
	if cl.failed == 0 { // else a request may have joined after the release that had no answer: see notPassed
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

// leaseEnded reports whether the lease is known to be over by the store's clock: whoever uses the key next
// drops it. Each Extend that had no answer may have been made at any time before the end, and have set a later one.
func (c *Core) leaseEnded(cl *claim) bool { return cl.endedBy(c.storeClock()) }

// endedBy is leaseEnded at a time of the store's clock.
func (cl *claim) endedBy(now time.Time) bool {
	lease := cl.request.Lease
	if cl.until.IsZero() || int64(cl.extends) > int64(math.MaxInt64/lease) {
		return false
	}
	return now.After(cl.until.Add(time.Duration(cl.extends) * lease))
}

// releaseAnswered takes the reply to a release. While the store refuses it, it is tried again as long as
// the session lives: a right that was revoked by mistake may be granted again.
func (c *Core) releaseAnswered(cl *claim, s *sent, r *Reply) {
	if cl == nil || cl.state != leaving {
		return
	}
	switch {
	case errors.Is(r.Err, driver.ErrNotWaiting):
		// The claim still holds, and its holder is done all the same, so the first in the queue is next.
		plain := *cl.leave
		plain.passed, plain.Successor = cl.notPassed(r.Err), ""
		cl.leave = &plain
		c.release(cl)
	case r.Err != nil && c.closing != nil && !(r.Lost && c.repeats(s)):
		c.abandon(cl, r.Err)
	case r.Lost:
		c.retry(cl)
		c.refuseTries(cl)
	case r.Err != nil:
		cl.refused = r.Err
		c.settled(cl, r.Err)
		c.retry(cl)
	case !r.Found && cl.token != 0 && cl.doubted == 0:
		// The store says that it does not have a claim that was held. A deposed primary may say so, so
		// believe it only if it is repeated after an acknowledged heartbeat.
		cl.doubted = max(c.session.acks, 1)
		c.heartbeatSoon()
		c.at(&cl.timer, cl.number, c.now.Add(c.cfg.TTL))
	case !r.Found && cl.token != 0 && cl.failed == 0:
		c.settled(cl, fmt.Errorf("%w: the store did not know it any more", ErrLost))
		c.leftStore(cl)
	case s.keeps:
		c.leftAsSaid(cl, r)
		c.settled(cl, cl.leave.endedBy())
		if cl.leave.Keep == 0 { // somebody has asked for the key since
			c.release(cl)
			return
		}
		cl.state = kept
		left := cl.leave.keep.Sub(c.now)
		c.at(&cl.timer, cl.number, c.now.Add(left+left/1000+c.cfg.Margin))
	default:
		c.leftAsSaid(cl, r)
		c.leftStoreAt(cl, r.Applied)
	}
}

// endedBy returns why a hold that the store keeps was not released yet: its session closed before its holder was done.
func (l *leave) endedBy() error {
	if l.grace {
		return errClosed
	}
	return nil
}

// leftAsSaid records that a release was done as ReleaseBy said it. If the store does not find the claim after a
// release without an answer, that one has done it: a claim whose session has expired is not released any more. But a
// lease may have come to its end instead, so of a lease nothing is known.
func (c *Core) leftAsSaid(cl *claim, r *Reply) {
	if l := cl.leave; l != nil && l.passed == ErrLost && (r.Found || !cl.fixed()) {
		done := *l
		done.passed = nil
		cl.leave = &done
	}
}

// notPassed returns why a claim that holds was not released to its successor, given the store's word that the
// successor does not wait. If a release before had no answer, and a copy of a request could join after it, the claim
// may hold anew: then that release has granted the key to the successor, which does not wait for that reason.
func (cl *claim) notPassed(err error) error {
	if cl.failed > 0 && !cl.void.IsZero() {
		return errUnsure
	}
	return err
}

// errUnsure is what a holder learns if nobody can know whether its successor was granted the key.
var errUnsure = fmt.Errorf("%w: it is not known whether the successor was granted the key", ErrLost)

// A past claim has left the store. It is remembered until nothing of it can come late.
type past struct {
	number uint64
	key    string
	token  int64  // of its grant; 0: it had none
	acks   uint64 // the acknowledged heartbeats when it left
	void   int64  // as in claim, as time.Time.UnixNano; 0: no request can join; discarding: a Discard is under way

	applied driver.OpTime // of its release, which a fail-over may still undo; zero: none can
}

const (
	discarding = -1
	longAgo    = 1
)

// leftStore ends a claim that the store does not have any more. A request that was never answered, or a copy
// of one that was, may still make it join again, until none can any more: then it is discarded. A notice or a
// reply that comes late within two heartbeats means nothing; nothing comes late if the session does not listen
// and no command is under way.
func (c *Core) leftStore(cl *claim) { c.leftStoreAt(cl, driver.OpTime{}) }

// leftStoreAt is leftStore for a claim whose release may not be committed yet.
func (c *Core) leftStoreAt(cl *claim, applied driver.OpTime) {
	cl.refused = nil
	c.settled(cl, cl.lostBy)
	undoable, late := applied != driver.OpTime{}, !cl.void.IsZero() || c.listener.running || len(c.sent) > 0
	if cl.request.Session == c.session.id && (undoable || late) {
		p := past{number: cl.number, key: cl.request.Key, token: cl.request.Token, acks: c.session.acks, applied: applied}
		if !cl.void.IsZero() {
			p.void = cl.void.UnixNano()
		}
		if c.past = append(c.past, p); p.void > 0 && c.discards.due == never {
			c.discardLater()
		}
	}
	c.forgetUnused(cl)
}

// isNew reports whether a claim of this session that a notice or a reply names, with the token of its grant,
// is not a past one as it was when it left.
func (c *Core) isNew(id string, token int64) bool {
	n, _ := numberOf(id)
	i := slices.IndexFunc(c.past, func(p past) bool { return p.number == n })
	return i < 0 || token > c.past[i].token
}

// mayBeUndone reports whether the release of a past claim may have been undone, and nobody has looked.
func (c *Core) mayBeUndone(id string) bool {
	n, _ := numberOf(id)
	return slices.ContainsFunc(c.past, func(p past) bool {
		return p.number == n && p.applied != driver.OpTime{} && p.void != discarding && p.void != longAgo
	})
}

// forgetPast forgets the past claims of which nothing can come late. It is called with every acknowledged
// heartbeat.
func (c *Core) forgetPast() {
	c.past = slices.DeleteFunc(c.past, func(p past) bool {
		return p.void == 0 && p.applied == driver.OpTime{} && c.session.acks >= p.acks+2
	})
}

// committed takes how far the store's writes are committed. A release of another term may have been undone, and
// the store may not be able to say: its claim is discarded.
func (c *Core) committed(at driver.OpTime) {
	undone, busy := false, c.closing != nil
	var rejoin []past
	for i := range c.past {
		switch p := &c.past[i]; {
		case p.void == discarding:
			busy = true
		case p.void == longAgo: // its Discard failed, and is sent again
		case p.applied == driver.OpTime{}:
		case p.applied.Term != at.Term:
			if p.void > 0 { // once more when no request can join any more
				rejoin = append(rejoin, past{number: p.number, key: p.key, token: p.token, acks: p.acks, void: p.void})
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

// forgetUnused forgets a claim, unless its holder is not done.
func (c *Core) forgetUnused(cl *claim) {
	if cl.users > 0 || cl.slot > 0 {
		cl.state = lost
		return
	}
	delete(c.claims, cl.number)
}

// void reports whether a request with that notAfter can't join any more, wherever within the margin the
// store's clock has stepped.
func (c *Core) void(notAfter time.Time) bool {
	return c.storeClock().After(notAfter.Add(c.cfg.Margin))
}

// forgetVoid forgets the claim's requests if none of them can join any more.
func (c *Core) forgetVoid(cl *claim) {
	if !cl.void.IsZero() && c.void(cl.void) {
		cl.void = time.Time{}
	}
}

// discards is about the past claims that a copy of a request could make join again. When no request can any
// more, they are discarded, as many as are due, with one command for up to maxDiscards. So this costs a session
// at most one command in the time of two attempts and one more for each maxDiscards claims.
type discards struct {
	due    Instant // when to discard; never: nothing to discard, or a Discard is under way
	failed int     // Discards that had no answer or were refused, in a row
}

// maxDiscards is the most claims that one command discards.
const maxDiscards = 1000

// discardLater sets the time of the next Discard: one attempt's time longer than the first claim needs, so
// that later ones share the command; or now, for claims whose releases were undone meanwhile.
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

// discardsDue sends the Discard that is due.
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

// discarded takes the answer to a Discard.
func (c *Core) discarded(s *sent, r *Reply) {
	if s.session != c.session.id {
		return
	}
	if r.Err != nil { // no answer, or refused: a right that is missing now may be granted again
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

// discardAgain has the claims of a Discard that failed discarded again after a pause, behind the others: some
// that can't be discarded must not keep the others from it.
func (c *Core) discardAgain() {
	var failed []past
	c.past = slices.DeleteFunc(c.past, func(p past) bool {
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
