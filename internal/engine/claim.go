package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A claim is this session's request for part or all of a key, as recorded in the store:
//
//	pending ──► granted ──► releasing ──► gone
//	   │           └──────────────────────► gone   lost: its session's lease is over, or its own
//	   ├──────────────────► releasing              given up, and the store may have it
//	   └──────────────────────────────────► gone   given up, and the store can't have it
//
// [claim.become] makes these transitions. A granted claim is used by one [Hold] after another;
// between two of them it lingers. The session's mu guards all fields except those that are set
// when the claim is made.
type claim struct {
	// Set when the claim is made:
	s       *Session
	lease   *sessionLease
	request driver.Claim
	began   time.Time       // when the caller made its request
	ctx     context.Context // the caller's, for the Granted hook; nil once its hold has begun
	try     bool            // the caller does not wait for others
	auto    bool            // its slot in the queue is freed even if its holder does nothing: see Session.Hold
	shares  bool            // readers of this process may share it
	wake    chan struct{}   // capacity 1: wakes the requester, which then checks the fields below

	state claimState
	queue *queue // the queue in which the claim has a slot; nil if it has none, or none any more

	// While the claim is pending:
	attempts     int             // number of attempts sent
	answers      int             // number of those that the store has answered
	requested    bool            // another caller's Unlock has sent the first attempt; the requester must not
	inflight     *acquireAttempt // the attempt that is not answered yet
	reply        *acquireReply   // to the last attempt; nil if there is none, or the requester has read it
	again        bool            // since the last attempt was sent, something called for another
	joined       bool            // the store has the claim, by the last reply or a notice
	position     int             // in the store's queue, by the last reply; 0: not in it
	ahead        []string        // sessions that stand in the way, by the last reply
	namedExpired []string        // sessions that the last attempt named as expired
	listens      bool            // counted in listener.waiters
	asked        map[string]bool // claims whose sessions were asked to give up the key; nil: do not ask any
	requestsVoid time.Time       // by the store's clock, when attempts, or copies of them, can no longer join; zero: none can

	// Once the grant is known:
	grant      *grant
	hold       *Hold // the hold that uses the claim, or used it last; nil while it lingers
	token      int64 // of the last hold
	lastToken  int64 // the greatest token that a hand-off may use
	handOffs   int
	listener   int  // number of the listener that was ready when the last attempt was sent; 0: none
	othersWait bool // others wait or may wait: by the grant or, for a claim that can yield, a later notice
	timer      *time.Timer

	mayBeReleased bool   // an attempt of another claim was to release this one and failed
	successor     string // the id of the claim that the key is to be released to; "": the first in the queue
	succession    error  // why that claim was not granted the key, or not yet; nil: it was

	revoked  bool          // revoked before the grant was known, or during the release
	kept     bool          // the holder is done and left the claim in the store until a fixed time
	refused  error         // why the store refuses the release at present
	released chan struct{} // closed when the claim is released and its slot free; nil unless auto, or a try waits for that
}

type claimState int

const (
	pending claimState = iota
	granted
	releasing
	gone
)

// A grant records how a claim was granted.
type grant struct {
	token      int64
	term       int64
	othersWait bool      // others were waiting at the time
	alone      bool      // the reply to the first attempt granted it, and nobody was waiting
	since      time.Time // by the store's clock; zero if unknown
	until      time.Time // end of a fixed lease; zero until it has one
	sent       instant   // before the send of the Extend whose reply had until
	start      time.Time // when the first hold began here
}

// newClaim returns a new claim for a caller that has its turn in q. The caller must finish
// with [claim.begin] or [claim.abandon].
func (sl *sessionLease) newClaim(q *queue, w *Want) *claim {
	s := sl.s
	s.requesters.Add(1)
	lingers := s.opt.Linger > 0 && w.exclusive() && w.Lease == 0 && !w.auto
	c := &claim{
		s: s, lease: sl, queue: q, began: w.began, ctx: w.ctx, try: w.try, auto: w.auto, shares: w.Shares,
		request: driver.Claim{
			Key: w.Key, ID: sl.claimID(), Session: sl.id,
			Kind: w.Kind, Weight: w.Weight, Limit: w.Limit, Lease: w.Lease,
			Yield: lingers || w.Shares, First: w.First,
		},
		wake: make(chan struct{}, 1),
	}
	if w.First {
		c.asked = make(map[string]bool)
	}
	if w.auto {
		c.released = make(chan struct{})
	}
	s.claims[c.request.ID] = c
	if lingers || w.Shares && q.readersWaited {
		sl.listenFor(c)
	}
	return c
}

// become moves the claim to another state. All transitions go through it, and only forward.
// s.mu must be held.
func (c *claim) become(to claimState) {
	if to <= c.state {
		panic(fmt.Sprintf("dsync: claim in state %d cannot move to state %d", c.state, to))
	}
	from := c.state
	c.state = to
	if c.timer != nil {
		c.timer.Stop()
	}
	if to != granted || !c.request.Yield {
		c.stopListening()
	}
	switch {
	case to == granted && c.fixed():
		c.timer = time.AfterFunc(c.fixedLeft(), c.expire)
	case to == gone && from == granted && c.fixed():
		// The store still has the claim. Remember it for its holder's grace; otherwise a
		// notice or reply that names it would have it released as an orphan.
		c.timer = time.AfterFunc(c.s.opt.Grace, func() {
			c.s.mu.Lock()
			defer c.s.mu.Unlock()
			delete(c.s.claims, c.request.ID)
		})
	case to == gone:
		delete(c.s.claims, c.request.ID)
	}
	if to == gone {
		c.lease.discardLater(c)
	}
}

// fixed reports whether the claim has a lease of its own, which does not end with its
// session's.
func (c *claim) fixed() bool { return c.request.Lease > 0 }

// outlives reports whether the claim survives the loss of its session's lease. s.mu must be
// held.
func (c *claim) outlives() bool { return c.fixed() && c.state != pending }

// lingers reports whether the claim is granted but unused, kept for the next caller in this
// process. s.mu must be held.
func (c *claim) lingers() bool { return c.state == granted && c.hold == nil }

// ended returns why a pending claim can no longer be granted: errOver if its session was lost,
// ErrClosed if the session is closing. It is nil otherwise. s.mu must be held.
func (c *claim) ended() error {
	switch {
	case c.s.ends():
		return ErrClosed
	case c.lease.cause != nil:
		return errOver
	}
	return nil
}

// live reports whether a live hold uses the claim. s.mu must be held.
func (c *claim) live() bool { return c.hold != nil && c.hold.state == live }

// grantBy records the claim's grant, whether a reply or a notice brought it, and wakes the
// requester, which begins the hold. s.mu must be held.
func (c *claim) grantBy(g *grant) {
	if c.state == pending && c.grant == nil {
		c.grant, c.joined = g, true
		c.requestAgain()
	}
}

// requestAgain makes the requester send another attempt, or discover why it should not. s.mu
// must be held.
func (c *claim) requestAgain() {
	c.again = true
	c.wakeUp()
}

// wakeUp makes the requester check the claim's state again.
func (c *claim) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// begin begins the first hold of a granted claim. The error is errOver if the claim was revoked
// or its time is already over. A caller that has the turn passes it on to the next. s.mu must be
// held.
func (c *claim) begin() (*Hold, error) {
	s, q, g := c.s, c.queue, c.grant
	if c.revoked || c.lease.expired() || c.fixed() && c.fixedLeft() <= 0 {
		return nil, errOver
	}
	c.become(granted)
	// If the listener became ready after the send, others may have come without a notice.
	missed := c.lease.listener.ready && !c.notifiedOfOthers() && c.request.Yield && !c.shares
	c.othersWait = c.othersWait || g.othersWait || missed
	c.ahead, c.namedExpired = nil, nil
	g.start = time.Now()
	c.lastToken = g.token + driver.TokenStep - 1
	if c.request.Yield {
		c.lastToken = g.token + driver.TokenRoom - 1
	}
	h := c.newHold(c.ctx, c.began, g.token, false)
	c.ctx = nil // a hold can outlive its caller's request by far
	if c.shares {
		h.sharers, q.shared = 1, h
	}
	c.lease.listenLater()
	if q.forceWaits() {
		h.windDown(ErrRevoked, true) // the caller of ForceLock came after the request was sent
	}
	if !c.try {
		q.requested()
	}
	s.requesters.Done()
	return h, nil
}

// abandon gives up a claim that was not granted, or not in time. It releases the claim if the
// store may have it: a reply or a notice said so, or an attempt failed or is under way. The
// caller keeps the slot in the queue.
func (c *claim) abandon() {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	c.queue = nil
	if c.joined || c.answers < c.attempts {
		c.release(driver.Leave{})
	} else {
		c.become(gone)
	}
	s.requesters.Done()
}

// lose ends a pending or granted claim. After that nothing may be sent for it. s.mu must be
// held.
func (c *claim) lose(cause error) {
	switch c.state {
	case pending:
		c.requestAgain() // the requester gives it up
	case granted:
		if c.hold != nil {
			c.hold.windDown(cause, false)
		}
		if c.hold == nil || c.fixed() {
			c.freeSlot()
		}
		c.become(gone)
	}
}

// fixedLeft returns what remains of the claim's own lease by the local clock. s.mu must be
// held.
func (c *claim) fixedLeft() time.Duration {
	return holdTime(c.request.Lease, c.s.opt.Margin, c.s.opt.Grace) - c.grant.sent.elapsed()
}

// expire is called by the timer of a claim with a lease of its own.
func (c *claim) expire() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.state == granted && !c.checkExpiry() {
		c.timer.Reset(c.fixedLeft()) // it was extended
	}
}

// checkExpiry ends the claim if its own lease is over by the local clock, and reports
// whether it is. s.mu must be held.
func (c *claim) checkExpiry() bool {
	if c.fixedLeft() > 0 {
		return false
	}
	c.lose(fmt.Errorf("its lease of %v is over", c.request.Lease))
	return true
}

// freeSlot frees the claim's slot in the queue. s.mu must be held.
func (c *claim) freeSlot() {
	q := c.queue
	if q == nil {
		return
	}
	c.queue = nil
	if h := c.hold; h != nil && q.holder == h {
		q.holder = nil
	}
	if q.shared != nil && q.shared.c == c {
		q.shared = nil
	}
	if q.lingering == c {
		q.lingering = nil
	}
	q.leave(c.request.Weight)
}

// signalReleased closes c.released, if it exists and is open. s.mu must be held.
func (c *claim) signalReleased() {
	if c.released == nil {
		return
	}
	select {
	case <-c.released:
	default:
		close(c.released)
	}
}
