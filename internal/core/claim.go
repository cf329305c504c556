package core

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A claim is the session's request for part or all of a key, in the form in which the store records it. The table of
// a claim's states is in the package documentation.
type claim struct {
	timer
	number  uint64
	request driver.Claim
	state   state

	call    *Call  // the caller that waits for the claim or holds it; nil if there is none
	users   int    // number of holders that are not done; readers can share a hold
	slot    int64  // slots that the claim occupies in this process's queue (see share); 0 once they are freed
	command uint64 // the command under way for the claim, or inLine; 0 if none
	failed  int    // number of consecutive requests or releases that failed

	requests   int       // number of requests to join that were sent
	unanswered int       // number of requests to join that have no answer
	mayBe      bool      // a reply or a notice has shown that the store has the claim
	void       time.Time // the time, by the store's clock, until which a request or a copy of it can join; zero if none can
	wait       *wait     // nil once the grant is known

	token      int64     // fencing token of the current hold
	granted    Instant   // when this process learned of the grant
	since      time.Time // when it was granted, by the store's clock; zero if unknown
	until      time.Time // when the lease ends, by the store's clock
	extends    int       // number of unanswered Extends; each may have moved the lease's end past until
	listener   uint64    // listener.times when the last request was sent; 0 if the listener was not ready then
	othersWait bool      // other sessions wait for the key, or may do so
	asked      asked     // who wants the claim to end

	leave   *leave // how to release the claim; nil means without options
	refused error  // why the store refuses the release
	lostBy  error  // why no release was sent, or may not have arrived; nil if it was released or has not ended yet
	doubted uint64 // session.acks when the store first reported the claim missing; 0 if the claim is not in doubt
}

// asked is who wants a claim to end. A claim that anybody wants to end is not kept in the store after its
// release, unless the holder called ReleaseBy and nobody else wants the key.
type asked int

const (
	byNobody asked = iota
	byHolder       // the holder has resigned
	byOthers       // another process wants the key, the holder has stalled, or the store has lost the claim
)

// A wait holds what is known about the queue ahead of a claim.
type wait struct {
	poll     Instant             // when to request again at the latest
	position int                 // in the store's queue, as of the last reply; 0 if not queued
	stagger  time.Duration       // how long to wait after a session ahead has lapsed (see stagger)
	ahead    []string            // sessions that block the claim, as of the last reply
	named    []string            // sessions that the last request named as expired
	again    bool                // a wake came while a request was under way: send another when it is answered
	refusal  error               // the error for the caller unless a session ahead has expired
	asked    map[string]revoking // with First: the Revokes sent, by the revoked claim's ID
	until    []time.Time         // ends of the leases that block the claim
}

// A revoking tracks the Revokes that a waiter sends for one claim.
type revoking struct {
	again  bool // the last Revoke failed, so another is due
	failed int  // consecutive failed Revokes
}

// A leave describes how to release a claim. To change a claim's leave, replace it: many claims may share the
// leave early.
type leave struct {
	driver.Release         // without Claim
	keep           Instant // when the Keep ends
	grace          bool    // the Keep covers the holder's grace, so a Revoke doesn't end it
	passed         error   // with ReleaseBy: why the claim has not been released as requested; nil if it has been
}

// early makes the holder's Release wait only for the store's answer, not for a majority. All Cores of the process
// share it.
var early = &leave{Release: driver.Release{Early: true}}

// A grant describes how the store granted a claim.
type grant struct {
	token, term int64
	crowded     bool
	alone       bool // the first request was granted in its reply, and no other claim waited
	since       time.Time
}

// inLine is the command number of a claim or message that waits for a lane.
const inLine = ^uint64(0)

// dropKeep cancels the Keep of ReleaseBy or ReleaseAfter, because the claim was revoked. If a release under way keeps the
// claim, another release follows.
func (c *Core) dropKeep(cl *claim, _ args) {
	if cl.state == windingDown {
		cl.asked = byOthers
	}
	if l := cl.leave; l != nil && l.Keep > 0 {
		plain := *l
		plain.Keep = 0
		cl.leave = &plain
	}
}

func (cl *claim) fixed() bool { return cl.request.Lease > 0 }

func (c *Core) isLease(cl *claim, _ args) bool { return cl.fixed() }

func (c *Core) onlyTries(cl *claim, _ args) bool { return cl.call.Try }

// isForced reports whether the claim's caller wants the key by force.
func (c *Core) isForced(cl *claim, _ args) bool { return cl.request.First }

func (c *Core) extendUnanswered(cl *claim, _ args) bool { return cl.extends > 0 }

// inUse reports whether the claim keeps its slot because its holder is not done: see settled.
func (c *Core) inUse(cl *claim, _ args) bool { return cl.users > 0 && !cl.call.Auto && !cl.fixed() }

func (c *Core) unused(cl *claim, x args) bool { return !c.inUse(cl, x) }

// shares reports whether readers of this process may share the claim.
func (cl *claim) shares() bool {
	return cl.request.Kind == driver.KindRWMutex && cl.request.Weight < cl.request.Limit
}

// outlives reports whether the claim survives the loss of its session. A granted lease does once its end is
// set. In the state dating, an unanswered Extend may already have set the end; readmitAndRelease handles that case.
func (cl *claim) outlives() bool { return cl.fixed() && cl.token != 0 && cl.state != dating }

// newClaim makes a claim for an admitted caller. The caller's slots are already counted in q.used, and a
// caller that needs the turn has it.
func (c *Core) newClaim(q *queue, a *Call) *claim {
	c.last.claim++
	lingers := c.cfg.Linger > 0 && a.exclusive() && a.Lease == 0 && !a.Auto
	cl := &claim{
		timer: timer{never, never}, number: c.last.claim, state: gone, call: a, slot: q.share(a.Weight), wait: &wait{},
		request: driver.Claim{
			Key: a.Key, ID: c.claimID(c.last.claim), Session: c.session.id,
			Kind: a.Kind, Weight: a.Weight, Limit: a.Limit, Tick: a.Tick, Lease: a.Lease,
			Yield: lingers || a.Shares, First: a.First, Value: a.Value,
		},
	}
	if a.First {
		cl.wait.asked = make(map[string]revoking)
	}
	c.claims[cl.number] = cl
	q.claims = append(q.claims, cl.number)
	if lingers || a.Shares && q.readersWaited {
		c.listen(0)
	}
	return cl
}

// join requests the claim as soon as a lane is free.
func (c *Core) join(cl *claim, _ args) {
	if cl.command != 0 {
		return
	}
	cl.due, cl.command = never, inLine
	poll := cl.requests > 0
	if c.enterLane(poll, delayed{number: cl.number}) {
		c.sendJoin(cl, poll, nil)
	}
}

// joinInPlace requests the claim with the command that releases the claim before it, for which replace has taken a lane.
func (c *Core) joinInPlace(cl *claim, x args) { c.sendJoin(cl, false, x.before) }

// missedWake reports whether a notice that the claim should request again came, or may have been missed, while the
// request was under way.
func (c *Core) missedWake(cl *claim, _ args) bool {
	return cl.wait.again || c.listener.ready && cl.listener != c.listener.times
}

func (c *Core) joinAgain(cl *claim, x args) {
	cl.wait.again = false
	c.join(cl, x)
}

func (c *Core) noteWake(cl *claim, _ args) { cl.wait.again = true }

// sendJoin sends a request to join, which names the sessions ahead that have expired. If old is not nil, the same
// command releases old.
func (c *Core) sendJoin(cl *claim, poll bool, old *claim) {
	cl.wait.named = c.expiredAmong(cl.wait.ahead)
	cl.requests++
	cl.unanswered++
	cl.listener = 0
	if c.listener.ready {
		cl.listener = c.listener.times
	}
	s := &sent{session: cl.request.Session, claim: cl.number, poll: poll, voidAt: c.storeClock().Add(c.cfg.Attempt)}
	e := driver.Edit{Acquire: &driver.Acquire{
		Claim: cl.request, Wait: !cl.call.Try, Expired: cl.wait.named, NotAfter: s.voidAt, Repeated: cl.requests > 1,
	}}
	if old != nil {
		e.Release = &driver.Release{Claim: old.request}
		s.leaves = old.number
	}
	cl.command = c.sendNow(s, &Command{Op: Acquire, Session: s.session, Edit: e})
	if old != nil {
		old.command = cl.command
	}
}

// joinAnswered handles the reply to a request to join.
func (c *Core) joinAnswered(cl *claim, s *sent, r *Reply) {
	if old := c.claims[s.leaves]; old != nil && old.command == r.Command {
		old.command = 0
		if r.Err == nil {
			c.fire(old, left, args{})
		} else {
			old.failed++
			c.fire(old, again, args{})
		}
	}
	if cl == nil {
		return
	}
	if !r.Lost {
		cl.unanswered--
	}
	if (r.Err != nil || !r.State.Final) && s.voidAt.After(cl.void) {
		cl.void = s.voidAt
	}
	st := &r.State
	h, holds := st.Holder(cl.request.ID)
	if r.Err == nil {
		c.sawClock(st.Now)
		c.unknown(st, cl)
		joined := cl.mayBe
		cl.mayBe = holds || st.Position > 0 || joined && cl.state > dating
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
	case c.queues[cl.request.Key].forceWaits() && !cl.request.First && !try:
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

// ahead records the sessions and leases that block the claim.
func (c *Core) ahead(w *wait, st *driver.State) {
	w.position, w.ahead, w.until = st.Position, SessionsIn(st, c.session.id), nil
	for i := range st.Holders {
		if u := st.Holders[i].Until; !u.IsZero() {
			w.until = append(w.until, u)
		}
	}
	if w.asked != nil {
		c.revokeHolders(w, st)
	}
}

// retry sets the timer for the next request or release.
func (c *Core) retry(cl *claim, _ args) {
	c.at(&cl.timer, cl.number, c.now.Add(c.pause(cl.failed)))
	cl.failed++
}

// refuse gives the claim's caller an error instead of a hold.
func (c *Core) refuse(cl *claim, x args) {
	a := cl.call
	c.deny(a, x.cause)
	if sealed := (*SealedError)(nil); errors.As(x.cause, &sealed) {
		if q := c.queues[a.Key]; q != nil && !q.over(sealed.Tick) {
			q.sealed = sealed
		}
	}
	c.leaveQueue(cl)
}

// granted handles a grant reported by a reply or a notice. Granting a lease does not set the lease's end; the
// first Extend does, and until then the lease ends with its session. Otherwise a grant that no process learns
// of would block the key for the whole lease, even after the session has expired.
func (c *Core) granted(cl *claim, g grant) {
	cl.request.Token, cl.request.NoneWaiting = g.token, g.alone
	cl.token, cl.since, cl.granted = g.token, g.since, c.now
	cl.mayBe, cl.failed = true, 0
	cl.othersWait = cl.othersWait || g.crowded
	if cl.command == inLine {
		cl.command = 0
	}
	c.endEarlierTick(cl)
	c.fire(cl, granted, args{term: g.term})
}

// learnGrant makes a revoked claim request again, because only a granted claim is revoked. The claim keeps its position
// ahead of all waiters. If its caller requested another claim instead, two callers with First could take the key from
// each other without end.
func (c *Core) learnGrant(cl *claim, _ args) {
	if cl.asked != byOthers {
		cl.asked = byOthers
		c.then(cl, wake, args{})
	}
}

// extend makes the store set the first end of a lease.
func (c *Core) extend(cl *claim, _ args) {
	if cl.command != 0 { // a request to join is still under way
		c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Retry))
		return
	}
	cl.due, cl.command = never, inLine
	if c.enterLane(false, delayed{number: cl.number}) {
		cl.extends++
		cl.command = c.sendNow(&sent{session: cl.request.Session, claim: cl.number},
			&Command{Op: Extend, Session: cl.request.Session, Edit: driver.Edit{Extend: &driver.Extend{Claim: cl.request}}})
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

// extended handles the answer to an Extend that the holder sent.
func (c *Core) extended(e Extended) {
	cl := c.claims[e.Claim]
	if cl == nil {
		return
	}
	cl.extends--
	switch {
	case errors.Is(e.Err, driver.ErrNotHeld) && c.leaseEnded(cl): // the store's clock must have jumped
		c.fire(cl, excluded, args{cause: errLeaseOver(cl)})
	case errors.Is(e.Err, driver.ErrNotHeld):
		c.fire(cl, excluded, args{cause: fmt.Errorf("%w: %w", ErrRecordDeleted, e.Err)})
	case e.Err != nil:
	case !e.Until.Before(cl.until):
		cl.until = e.Until
		if cl.state == held {
			c.at(&cl.timer, cl.number, e.Sent.Add(c.cfg.Hold(cl.request.Lease)))
		}
	}
}

// errLeaseOver returns the error of a hold whose lease ran out.
func errLeaseOver(cl *claim) error { return fmt.Errorf("%w after %v", ErrLeaseOver, cl.request.Lease) }

// begin begins the first hold of a claim.
func (c *Core) begin(cl *claim, x args) {
	a, q := cl.call, c.queues[cl.request.Key]
	cl.wait, c.listener.idle = nil, c.now
	if cl.fixed() {
		c.at(&cl.timer, cl.number, x.ends)
	}
	if c.listener.ready && !c.wouldKnow(cl) && !a.Shares && cl.request.Yield {
		cl.othersWait = true // this session may have missed the notice that another session waits
	}
	c.deliver(cl, a, x.term, false)
	if a.Shares {
		q.shared = cl.number
	}
	if !c.listener.running {
		c.listen(listenAfter)
	}
	if q.forceWaits() || cl.asked == byOthers {
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
func (c *Core) windDown(cl *claim, x args) {
	cause := x.cause
	switch {
	case cause == ErrClosed:
	case cause == ErrRevoked, cause == ErrStalled, notThere(cause):
		cl.asked = byOthers
	default:
		cl.asked = byHolder
	}
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Grace))
	c.do(&End{cl.call, cause, cause != ErrClosed && cause != ErrStalled && !notThere(cause)})
}

// windDownUnkept is like windDown, but the store need not keep the claim after its release.
func (c *Core) windDownUnkept(cl *claim, x args) {
	c.dropKeep(cl, x)
	c.windDown(cl, x)
}

// stalled ends a hold whose holder has made no progress within its limit.
func (c *Core) stalled(cl *claim, _ args) { c.windDown(cl, args{cause: ErrStalled}) }

// windDownLease ends a lease that is over. An unanswered Extend may have set a later end, so the claim is released.
func (c *Core) windDownLease(cl *claim, _ args) { c.windDown(cl, args{cause: errLeaseOver(cl)}) }

func (c *Core) loseLease(cl *claim, _ args) { c.loseHold(cl, args{cause: errLeaseOver(cl)}) }

// notThere reports whether cause means that the store no longer has the claim.
func notThere(cause error) bool {
	return errors.Is(cause, ErrRecordDeleted) || errors.Is(cause, ErrNotRenewed)
}

// limitProgress makes the hold end unless its holder makes progress again within the limit. Leases have no such limit,
// because they run out by themselves.
func (c *Core) limitProgress(cl *claim, x args) {
	if x.limit > 0 {
		c.at(&cl.timer, cl.number, c.now.Add(x.limit))
	} else {
		cl.due = never
	}
}

// loseHold ends a hold whose key the store may already have granted to another session. It sends no release.
// The claim stays in c.claims for the grace, so that the session does not treat a lease as unknown and
// release it.
func (c *Core) loseHold(cl *claim, x args) {
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Grace))
	c.do(&End{cl.call, x.cause, errors.Is(x.cause, ErrLeaseOver)})
	if cl.fixed() {
		c.settled(cl, nil)
	} else {
		cl.lostBy = LostTo(x.cause)
	}
}

// loseRelease is called when the session is lost while a hold's grace is running.
func (c *Core) loseRelease(cl *claim, x args) {
	cl.lostBy = LostTo(x.cause)
	c.at(&cl.timer, cl.number, c.now.Add(c.cfg.Grace))
}

// byID returns the claim with this ID, or nil.
func (c *Core) byID(id string) *claim {
	n, _ := numberOf(id)
	if cl := c.claims[n]; cl != nil && cl.request.ID == id {
		return cl
	}
	return nil
}

// claimID returns the ID of the session's claim with this number.
func (c *Core) claimID(n uint64) string { return c.session.id + "." + strconv.FormatUint(n, 10) }

// numberOf returns the number and the session in a claim's ID.
func numberOf(id string) (n uint64, session string) {
	session, number, _ := strings.Cut(id, ".")
	n, _ = strconv.ParseUint(number, 10, 63)
	return n, session
}

// Knows reports whether this Core has a claim with this ID.
func (c *Core) Knows(claim string) bool { return c.byID(claim) != nil }

// unknown releases this session's claims that are in st but unknown to this process. A duplicated request
// that arrives late can create such a claim, even after the claim was released.
func (c *Core) unknown(st *driver.State, about *claim) {
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Session == about.request.Session && h.Claim != about.request.ID && h.Until.IsZero() {
			c.unknownClaim(st.Key, h.Claim, h.Token)
		}
	}
	for i := range st.WaitersAhead {
		if w := &st.WaitersAhead[i]; w.Session == about.request.Session {
			c.unknownClaim(st.Key, w.Claim, 0)
		}
	}
}

func (c *Core) unknownClaim(key, id string, token int64) {
	switch {
	case c.byID(id) != nil:
	case c.isNew(id, token):
		c.orphan(key, id)
	case c.mayBeUndone(id):
		c.heartbeatSoon() // its reply says whether the release was undone (see committed)
	}
}

// orphan releases a claim of this session that is unknown to this process. A copy of the claim's request may
// still be under way.
func (c *Core) orphan(key, id string) {
	n, session := numberOf(id)
	if n == 0 || session != c.session.id || c.claims[n] != nil {
		return
	}
	c.past = slices.DeleteFunc(c.past, func(p pastClaim) bool { return p.number == n })
	cl := &claim{
		timer: timer{never, never}, number: n, state: gone, mayBe: true, void: c.storeClock().Add(c.cfg.Attempt),
		request: driver.Claim{Key: key, ID: id, Session: session},
	}
	c.claims[n] = cl
	c.fire(cl, appeared, args{})
}

func (c *Core) releaseOrphan(cl *claim, x args) {
	c.do(Orphan{cl.request.ID, cl.request.Key})
	c.release(cl, x)
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

// HeldError returns the error for a call that found the key held, or free but with waiters.
func HeldError(st *driver.State) *driver.HeldError {
	e := &driver.HeldError{Key: st.Key}
	switch {
	case len(st.Holders) > 0:
		h := st.Holders[0]
		e.Session, e.Since, e.Until = h.Session, h.Since, h.Until
	case len(st.WaitersAhead) > 0:
		e.Session = st.WaitersAhead[0].Session
	}
	return e
}
