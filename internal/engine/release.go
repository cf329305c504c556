package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Unlock ends the hold: Lost closes, and then the claim is handed off in this process or
// released. For a shared hold that happens when the last of its holders unlocks. After a loss
// nothing is released. The release runs in the background; the caller must call Wait or Finish.
func (h *Hold) Unlock(o driver.Leave) Releasing {
	c, s := h.c, h.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	goesOn := h.check(now)
	if h.sharers > 1 {
		h.sharers--
		return Releasing{err: h.cause}
	}
	h.sharers = 0
	if goesOn {
		h.reportRelease(now)
	}
	h.become(done)
	if goesOn && !special(o) {
		if c.reuse(now) {
			return Releasing{}
		}
		if answered := c.replace(); answered != nil {
			return Releasing{c: c, answered: answered}
		}
	}
	switch {
	case c.state != granted:
		c.freeSlot()
		if c.state == gone { // else runRelease calls it, when the store has answered
			c.signalReleased()
		}
		return Releasing{err: h.cause}
	case !goesOn && (o.Seal || h.voluntary):
		o = driver.Leave{} // a lost hold must not seal, and a revoked key must not be kept
	}
	c.kept = o.Keep > 0
	return Releasing{c, c.release(o), h.cause}
}

// A Releasing is the result of an Unlock.
type Releasing struct {
	c        *claim
	answered <-chan error // gets the store's answer; nil: no release was sent
	err      error        // why the hold had ended before; nil: it had not
}

// Wait waits for the store's answer, but not longer than ctx, and frees the claim's slot. The
// error is ErrLost if the hold had ended before, ctx's error, or the store's.
func (r Releasing) Wait(ctx context.Context) (err error) {
	if r.answered == nil {
		return r.err
	}
	select {
	case err = <-r.answered:
	case <-ctx.Done():
		select {
		case err = <-r.answered: // while the caller waited for another release
		default:
			err = fmt.Errorf("the release goes on in the background: %w", ctx.Err())
		}
	}
	r.c.s.mu.Lock()
	r.c.freeSlot()
	r.c.s.mu.Unlock()
	return cmp.Or(r.err, err)
}

// Finish waits like Wait, for at most a third of the TTL, and logs the error. With
// [Options].AsyncUnlock it does so in the background. A Mutex's Unlock uses it.
func (r Releasing) Finish(s *Session, key string) { r.finish(s, key, time.Now().Add(s.opt.TTL/3)) }

// FinishAll is Finish for several releases. The third of a TTL is for all of them together.
func FinishAll(s *Session, key string, all []Releasing) {
	deadline := time.Now().Add(s.opt.TTL / 3)
	for _, r := range all {
		r.finish(s, key, deadline)
	}
}

func (r Releasing) finish(s *Session, key string, deadline time.Time) {
	if r.answered == nil || !s.opt.AsyncUnlock || !s.spawn(func() { r.waitAndLog(s, key, deadline) }) {
		r.waitAndLog(s, key, deadline)
	}
}

func (r Releasing) waitAndLog(s *Session, key string, deadline time.Time) {
	if r.answered == nil && r.err == nil {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if err := r.Wait(ctx); err != nil {
		s.Warn("dsync: Unlock", "key", key, "err", err)
	}
}

// special reports whether o is anything but a plain release.
func special(o driver.Leave) bool { return o.Keep > 0 || o.Seal }

// release removes the claim from the store, on a goroutine of its own. It returns a channel that
// gets the outcome; nobody has to receive it. s.mu must be held.
func (c *claim) release(o driver.Leave) <-chan error {
	s := c.s
	c.become(releasing)
	o.Successor = c.successor
	answered := make(chan error, 1)
	if s.finished {
		answered <- ErrClosed
		c.signalReleased()
		return answered
	}
	s.finishing(func() { c.runRelease(o, answered) })
	return answered
}

// releaseWith sends the first attempt of next, which also releases the claim, and calls leave when
// it was answered or has failed. If it fails, the claim is released by itself. It returns a channel
// that gets the outcome; nobody has to receive it. The session must not be closing. s.mu must be
// held.
func (c *claim) releaseWith(next *claim, leave func()) <-chan error {
	s := c.s
	c.become(releasing)
	c.requestsAreVoid()
	answered := make(chan error, 1)
	s.releases.Add(1)
	next.requested = true
	next.send(c, func(err error) {
		leave()
		defer s.releases.Done()
		if err != nil {
			c.mayBeReleased = true
			c.runRelease(driver.Leave{}, answered)
			return
		}
		answered <- nil
		c.forget(driver.Leave{})
	})
	return answered
}

// runRelease sends releases until the store has answered.
func (c *claim) runRelease(o driver.Leave, answered chan<- error) {
	s := c.s
	began := instantNow()
	s.mu.Lock()
	inflight := c.inflight
	s.mu.Unlock()
	if inflight != nil {
		<-inflight.done
	}
	if o.Keep > 0 {
		o.Keep = max(0, o.Keep-began.elapsed()) // Keep counts from the call
	}
	s.mu.Lock()
	c.requestsAreVoid()
	s.mu.Unlock()
	notices, _ := c.sendRelease(o, answered)
	s.mu.Lock()
	if c.hold == nil || c.hold.state == done {
		c.freeSlot()
	}
	c.signalReleased()
	s.mu.Unlock()
	s.sendNotices(notices) // on this goroutine: a new one would start later
	c.forget(o)
}

// sendRelease sends releases until one is answered or the session is lost, or, if the session is
// closing, until one fails. It sends the outcome to answered, if that is not nil. If the store
// refuses, answered gets the refusal at once, but sendRelease keeps trying as long as the session
// lives: a right that was revoked by mistake may be granted again. The caller must send the
// notices.
func (c *claim) sendRelease(o driver.Leave, answered chan<- error) (notices []driver.Notice, err error) {
	s, sl := c.s, c.lease
	say := func(err error) {
		if answered != nil {
			answered <- err
			answered = nil
		}
	}
	absent, unknown, refused := false, c.mayBeReleased, false
	defer func() {
		if refused {
			c.setRefused(nil)
		}
		if err == nil && o.Successor != "" && !special(o) { // a claim that is kept has no successor
			c.succeeds(nil)
		}
		say(err)
	}()
	retry := s.backoff()
	if err := c.whyNotRelease(); err != nil {
		return nil, err
	}
	o.Claim = c.withGrant()
	for {
		a := command(s, "Release", func(ctx context.Context) (found bool, err error) {
			leave := o
			edited, err := s.store.Edit(ctx, driver.Edit{Leave: &leave})
			notices = edited.Notices
			return edited.Left, err
		})
		switch {
		case a.err == nil && (a.v || c.token == 0):
			return notices, nil
		case a.err == nil && absent && unknown:
			return nil, nil // a release that was not answered has removed it
		case a.err == nil && absent:
			return nil, fmt.Errorf("%w: the store did not know it any more", ErrLost)
		case a.err == nil:
			// The store says that it does not have a claim that was held. A deposed
			// primary may say so, so believe it only if it is repeated after an
			// acknowledged heartbeat, which is sent now.
			absent = true
			if err := c.waitReleasing(sl.heartbeatSoon(), sl.s.opt.TTL); err != nil {
				return nil, err
			}
		case errors.Is(a.err, driver.ErrNotWaiting):
			// The successor has left the queue. The holder is done all the same, so the first
			// in the queue is next.
			c.succeeds(a.err)
			o.Successor = ""
		case isAnswer(a.err):
			s.storeError("Release", a.err)
			refused = true
			c.setRefused(a.err)
			say(a.err)
			if err := c.waitReleasing(nil, retry.next()); err != nil {
				return nil, errors.Join(err, a.err)
			}
		default:
			unknown = true
			if err := c.waitReleasing(nil, retry.next()); err != nil {
				return nil, errors.Join(err, a.err)
			}
		}
	}
}

// withGrant returns the request with what the grant adds to it, for Leave and Extend.
func (c *claim) withGrant() driver.Claim {
	request := c.request
	if c.grant != nil {
		request.Token, request.NoneWaiting = c.grant.token, c.grant.alone
	}
	return request
}

// setRefused records why the store refuses to release the claim; nil: it does not refuse.
func (c *claim) setRefused(err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.refused = err
}

// whyNotRelease returns why a release would be useless, or nil. A lost session is left to expire
// with everything it held. A fixed lease does not need its session once it is granted, but may be
// over.
func (c *claim) whyNotRelease() error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !c.fixed() || c.grant == nil:
		if c.lease.expired() {
			return fmt.Errorf("%w: %w", ErrLost, c.lease.cause)
		}
	case c.grant.sent.t.IsZero(): // its beginning is not known here, so neither is its end
	case c.fixedLeft() <= 0:
		return fmt.Errorf("%w: its lease of %v is over", ErrLost, c.request.Lease)
	}
	return nil
}

// waitReleasing waits until ready is closed or d has passed. The error says why a further release would
// be useless.
func (c *claim) waitReleasing(ready <-chan struct{}, d time.Duration) error {
	over := c.lease.over
	if c.fixed() {
		over = nil // whyNotRelease looks in time
	}
	if err := c.s.waitFor(context.Background(), ready, over, d); errors.Is(err, ErrClosed) {
		return err
	}
	return c.whyNotRelease()
}

// forget ends a claim that was released with o.
func (c *claim) forget(o driver.Leave) {
	s, sl := c.s, c.lease
	s.mu.Lock()
	defer s.mu.Unlock()
	c.become(gone)
	if o.Keep > 0 {
		sl.recent.keep(c.request.ID, o.Keep+o.Keep/1000+s.opt.Margin)
	}
	token := c.token
	if c.grant != nil {
		token = max(token, c.grant.token)
	}
	sl.recent.note(c.request.ID, token, sl.listener.cancel != nil)
	if c.kept && c.revoked {
		sl.orphan(c.request)
	}
}

// recentClaims remembers recently released claims for one to two heartbeats, so that late notices
// and replies about them are ignored. The session's mu guards it.
type recentClaims struct {
	recent, older map[string]recentClaim // since the last heartbeat, and since the one before it
	kept          map[string]keptClaim   // claims left in the store until a fixed time, by id
	inflight      int                    // requests to join that are under way
	moment        uint64                 // counts sends of requests to join and ends of claims, to order them
}

// A recentClaim describes a claim that was released.
type recentClaim struct {
	token  int64
	moment uint64
}

// A keptClaim describes a claim that was left in the store for d from since.
type keptClaim struct {
	since instant
	d     time.Duration
}

// requestSent counts a request to join, and returns the moment of its send.
func (e *recentClaims) requestSent() uint64 {
	e.inflight++
	e.moment++
	return e.moment
}

// note records that a claim was released. It need not if the session does not listen and no
// request is under way, because then nothing can come late.
func (e *recentClaims) note(claim string, token int64, listens bool) {
	if !listens && e.inflight == 0 {
		return
	}
	if e.recent == nil {
		e.recent = make(map[string]recentClaim)
	}
	e.moment++
	e.recent[claim] = recentClaim{token, e.moment}
}

// past reports whether a grant of the claim with this token is already released.
func (e *recentClaims) past(claim string, token int64) bool {
	return max(e.recent[claim].token, e.older[claim].token) >= token
}

// since reports whether the claim was released after moment.
func (e *recentClaims) since(moment uint64, claim string) bool {
	return max(e.recent[claim].moment, e.older[claim].moment) > moment
}

// keep records that the claim was left in the store for another d. A notice of its grant may come
// at any time until then. Without this record, that notice would have the claim released.
func (e *recentClaims) keep(claim string, d time.Duration) {
	if e.kept == nil {
		e.kept = make(map[string]keptClaim)
	}
	e.kept[claim] = keptClaim{instantNow(), d}
}

// wasKept reports whether the claim was left in the store on purpose.
func (e *recentClaims) wasKept(claim string) bool {
	_, ok := e.kept[claim]
	return ok
}

// tick forgets old claims. It is called with every acknowledged heartbeat.
func (e *recentClaims) tick() {
	e.recent, e.older = nil, e.recent
	maps.DeleteFunc(e.kept, func(_ string, k keptClaim) bool { return k.since.elapsed() > k.d })
}

// releaseUnknown releases a claim that appears in the reply to a request sent at moment, if it
// belongs to this session lease, nobody here knows it, and it was not released after moment.
// s.mu must be held.
func (sl *sessionLease) releaseUnknown(key, session, claim string, moment uint64) {
	if session == sl.id && sl.s.claims[claim] == nil && !sl.recent.since(moment, claim) {
		sl.orphan(driver.Claim{Key: key, ID: claim, Session: session})
	}
}

// orphan releases a claim of this session lease that nobody here knows. A request that arrived
// twice can leave such a claim, and a third copy may still come. s.mu must be held.
func (sl *sessionLease) orphan(request driver.Claim) {
	s := sl.s
	c := &claim{s: s, lease: sl, request: request, requestsVoid: sl.storeClock().Add(s.attemptTime())}
	s.claims[request.ID] = c
	s.info("dsync: releasing a claim that nobody here knows", "claim", request.ID, "key", request.Key)
	c.release(driver.Leave{})
}
