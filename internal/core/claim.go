package core

import (
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
	queue   *queue // the queue in which the claim has a slot; nil once the slot is freed
	command uint64 // the command under way for the claim, or inLine; 0 if none
	failed  int    // number of consecutive requests or releases that failed

	requests   int       // number of requests to join that were sent
	stored     stored    // whether the store has the claim, as far as this process knows
	joinsUntil time.Time // the last time, by the store's clock, at which a request or a copy of it can join; zero if none can
	wait       *wait     // nil once the grant is known

	token   int64     // fencing token of the current hold
	granted Instant   // when this process learned of the grant
	since   time.Time // when it was granted, by the store's clock; zero if unknown
	until   time.Time // when the lease ends, by the store's clock
	extends int       // number of unanswered Extends, a count because each may have set a later end of the lease: see leaseIsOver
	readies uint64    // listener.hears when the last request was sent, or when a look showed that the claim still waits
	ender   ender     // who wants the claim to end

	leave   *leave // how to release the claim; nil means without options
	refused error  // why the store refuses the release
	lostBy  error  // why no release was sent, or why the release may not have arrived; nil if it was released or has not ended yet
	doubted uint64 // >0: what the store has shown of the claim or, for a Break, will show of the key, may be stale, or its grant may have been missed: see doubt
}

// stored is what this process knows about whether the store has a claim.
type stored int

const (
	absent  stored = iota // no request was sent, or the last answer did not show the claim
	unsure                // the same, but a later request had no answer
	present               // a reply or a notice has shown the claim
)

// ender is who wants a claim to end, the most urgent last. If its holder or others want a claim to end, the store does
// not keep the claim after its release. The exception is a ReleaseBy by the holder while nobody else wants the key.
type ender int

const (
	byNobody  ender = iota
	byWaiters       // other sessions wait for the key, or may do so: when its holder is done, this process must not use the claim again
	byHolder        // the holder has resigned
	byOthers        // another process wants the key, the holder has stalled, or the store has lost the claim
)

// A leave describes how to release a claim. To change a claim's leave, replace it: many claims may share the variable
// early.
type leave struct {
	driver.Release         // without Claim
	keepUntil      Instant // when the Keep ends
	grace          bool    // the Keep covers the holder's grace, so a Revoke doesn't end it
	notAsSaid      error   // with ReleaseBy: why the claim has not been released as requested; nil if it has been
}

// early makes the holder's Release wait only for the store's answer, not for a majority. All Cores of the process
// share it.
var early = &leave{Release: driver.Release{Early: true}}

// inLine is the command number of a claim or message that waits for a lane.
const inLine = ^uint64(0)

// dropKeep cancels the Keep of ReleaseBy or ReleaseAfter when the claim must not be kept, for example because it was
// revoked. If a release under way keeps the claim, another release follows.
func (c *Core) dropKeep(cl *claim, _ *args) {
	if cl.state == windingDown {
		cl.ender = byOthers
	}
	if l := cl.leave; l != nil && l.Keep > 0 {
		plain := *l
		plain.Keep = 0
		cl.leave = &plain
	}
}

func (cl *claim) fixed() bool { return cl.request.Lease > 0 }

func (c *Core) isLease(cl *claim, _ *args) bool { return cl.fixed() }

// inUse reports whether the claim keeps its slot because its holder is not done: see settled.
func (c *Core) inUse(cl *claim, _ *args) bool { return cl.users > 0 && !cl.call.Auto && !cl.fixed() }

func (c *Core) unused(cl *claim, x *args) bool { return !c.inUse(cl, x) }

// shares reports whether readers of this process may share the claim.
func (cl *claim) shares() bool {
	return cl.request.Kind == driver.KindRWMutex && cl.request.Weight < cl.request.Limit
}

// outlives reports whether the claim survives the loss of its session. A granted lease survives once its end is set. In
// the state dating, an unanswered Extend may already have set the end; readmitAndRelease handles that case.
func (cl *claim) outlives() bool { return cl.fixed() && cl.token != 0 && cl.state != dating }

// newClaim makes a claim for an admitted caller. The caller's slots are already counted in q.used, and a
// caller that needs the turn has it.
func (c *Core) newClaim(q *queue, a *Call) *claim {
	c.last.claim++
	lingers := c.cfg.Linger > 0 && a.exclusive() && a.Lease == 0 && !a.Auto
	cl := c.addClaim(c.last.claim)
	cl.call, cl.queue, cl.wait = a, q, &wait{since: c.now}
	cl.request = driver.Claim{
		Key: a.Key, ID: c.claimID(cl.number), Session: c.session.id,
		Kind: a.Kind, Weight: a.Weight, Limit: a.Limit, Tick: a.Tick, Lease: a.Lease,
		Yield: lingers || a.Shares, First: a.First, Value: a.Value,
	}
	if a.First {
		cl.wait.revokes = make(map[string]revoking)
	}
	q.claims = append(q.claims, cl.number)
	if lingers || a.Shares && q.readersWaited {
		c.listen(0)
	}
	return cl
}

// addClaim adds a claim with that number. Its state is gone until its first transition.
func (c *Core) addClaim(number uint64) *claim {
	cl := &claim{timer: timer{never, never}, number: number, state: gone}
	c.claims[number] = cl
	return cl
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

// doubt puts the claim in doubt until a heartbeat or registration that is sent from now on has been acknowledged: one
// under way may have been executed before a fail-over, and what a deposed primary answers after that is stale. doubted
// is the lowest number that such a heartbeat or registration can have.
func (c *Core) doubt(cl *claim) {
	cl.doubted = c.last.send + 1
	c.doubted = append(c.doubted, cl.number)
	c.heartbeatSoon()
}

// acknowledged goes on with the claims that have waited for this heartbeat or registration: releases, and Breaks. The look
// that follows is for the others.
func (c *Core) acknowledged(command uint64) {
	c.session.acked = command
	for _, cl := range c.inDoubt() {
		switch {
		case cl.doubted > command:
			c.heartbeatSoon()
		case cl.state == leaving || c.breaks(cl, nil):
			c.fire(cl, again, args{})
		}
	}
}

// inDoubt returns the claims in doubt, ordered by number.
func (c *Core) inDoubt() (some []*claim) {
	slices.Sort(c.doubted)
	c.doubted = slices.DeleteFunc(slices.Compact(c.doubted), func(n uint64) bool {
		cl := c.claims[n]
		if cl == nil || cl.doubted == 0 {
			return true
		}
		some = append(some, cl)
		return false
	})
	return some
}
