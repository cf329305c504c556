package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Want describes what a caller wants to hold.
type Want struct {
	Key           string
	Kind          driver.Kind
	Weight, Limit int64
	Lease         time.Duration
	Shares        bool // readers of this process may share the hold
	First         bool // goes ahead of all waiters, and holders are asked to give up the key

	auto  bool // its slot is freed even if its holder does nothing: see Session.Hold
	try   bool // do not wait for others
	back  bool // it had the turn and gave it up for a caller with First
	began time.Time
	ctx   context.Context // of the call, for the Granted hook
}

// Whole returns a Want for all of key, as kind.
func Whole(key string, kind driver.Kind) Want {
	return Want{Key: key, Kind: kind, Weight: 1, Limit: 1}
}

// errOver means that the claim can no longer be granted: its session was lost, its own lease
// ended before the grant was known, or it was revoked. The remedy is to request with a new claim.
var errOver = errors.New("dsync: the claim was lost while it was requested")

// errAside means that a caller in this process wants the key by force. That caller's claim must
// be first in the store's queue, and this process has one claim there at a time.
var errAside = errors.New("dsync: stepped aside")

// errLate means that the request reached the store after its deadline there, notAfter, so it
// did not count.
var errLate = errors.New("dsync: the request came too late to count")

// Acquire waits for w's turn in this process, and then for the store to grant the key. It keeps
// trying through failures of the store and losses of the session. The error is ctx's, with the
// store's last error added if there was one, ErrClosed, or one that trying again cannot fix. If
// there is an error, nothing is held.
func (s *Session) Acquire(ctx context.Context, w Want) (*Hold, error) {
	if ctx.Err() != nil {
		return nil, waitError(ctx, nil)
	}
	w.began, w.ctx = time.Now(), ctx
	for {
		h, c, err := s.enter(ctx, &w)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, waitError(ctx, nil)
		case err != nil || h != nil:
			return h, err
		}
		h, err = s.acquire(ctx, &w, c)
		if err == nil {
			return h, nil
		}
		s.leaveTurn(&w, err)
		if !errors.Is(err, errAside) {
			return nil, err
		}
		w.back = true
	}
}

// acquire requests w, which has the turn, until it is granted. It uses the claim c; if c is nil
// or its session is lost, it makes a new claim.
func (s *Session) acquire(ctx context.Context, w *Want, c *claim) (h *Hold, err error) {
	var last error // of the store
	retry := s.backoff()
	mismatched := false
	for {
		err = nil
		if c == nil {
			c, err = s.newClaim(ctx, w)
			mismatched = false
		}
		if err == nil {
			var st *driver.State
			h, st, err = c.attempt(ctx)
			switch {
			case h != nil:
				return h, nil
			case err == nil:
				if err = c.waitInQueue(ctx, st); err == nil {
					retry.reset()
				}
			case errors.Is(err, driver.ErrMismatch) && !mismatched:
				err = c.expireMismatched(ctx, err)
				mismatched = err == nil
			}
		}
		switch {
		case err == nil:
			continue
		case ctx.Err() == nil && !final(err):
			last = err
			if err = s.retryLater(ctx, c, retry.next()); err == nil {
				continue
			}
		}
		if c != nil {
			c.abandon()
			c = nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, waitError(ctx, last)
		case !errors.Is(err, errOver):
			return nil, err
		}
	}
}

// retryLater waits for d before a request is repeated. If there is a claim, the wait also ends
// when something happens to it.
func (s *Session) retryLater(ctx context.Context, c *claim, d time.Duration) error {
	if c == nil {
		return s.wait(ctx, d)
	}
	_, err := c.wait(ctx, d)
	return err
}

// TryAcquire acquires w if the key is free, in this process and in the store; otherwise the
// error is a *HeldError. If sessions in the way may have lapsed, it expires them and requests
// again, as long as it finds more of them. Otherwise a program that only tries would never get
// the key after its holder crashed.
func (s *Session) TryAcquire(ctx context.Context, w Want) (*Hold, error) {
	if ctx.Err() != nil {
		return nil, waitError(ctx, nil)
	}
	w.began, w.ctx, w.try = time.Now(), ctx, true
	h, holder, ok, err := s.tryEnter(ctx, &w)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, waitError(ctx, nil)
	case err != nil || h != nil:
		return h, err
	case !ok:
		return nil, s.heldHere(w.Key, holder)
	}
	for {
		c, err := s.newClaim(ctx, &w)
		if err == nil {
			if h, err = c.tryOnce(ctx); err == nil {
				return h, nil
			}
			c.abandon()
		}
		if !errors.Is(err, errOver) {
			s.leaveTurn(&w, err)
			return nil, err
		}
	}
}

// tryOnce requests the claim without waiting in the queue, until the answer is certain.
func (c *claim) tryOnce(ctx context.Context) (*Hold, error) {
	s := c.s
	late, mismatched := false, false
	for {
		h, st, err := c.attempt(ctx)
		switch {
		case h != nil:
			return h, nil
		case errors.Is(err, errLate) && !late:
			late = true // try once more: the store's clock is known from the reply
			continue
		case errors.Is(err, driver.ErrMismatch) && !mismatched:
			mismatched = true
			if err := c.expireMismatched(ctx, err); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		if err := s.expireLapsed(ctx, c.ahead); err != nil {
			return nil, err
		}
		if !c.newlyExpired() {
			return nil, s.heldError(ctx, st)
		}
	}
}

// Hold waits for key and holds it as kind. If the hold ends before its holder is done, its slot
// in this process becomes free when the grace is over, even if the holder does nothing. Errors
// are [ErrKey] and those of [Session.Acquire].
func (s *Session) Hold(ctx context.Context, key string, kind driver.Kind) (*Hold, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	w := Whole(key, kind)
	w.auto = true
	h, err := s.Acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("dsync: %s %q: %w", kind, key, err)
	}
	return h, nil
}

// TryHold holds key as Hold does, if that is possible without waiting. Errors are [ErrKey] and
// those of [Session.TryAcquire].
func (s *Session) TryHold(ctx context.Context, key string, kind driver.Kind) (*Hold, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	w := Whole(key, kind)
	w.auto = true
	h, err := s.TryAcquire(ctx, w)
	if err != nil {
		return nil, TryError("hold", key, err)
	}
	return h, nil
}

// newClaim returns a claim for w, which has the turn. It registers the session if necessary.
func (s *Session) newClaim(ctx context.Context, w *Want) (*claim, error) {
	s.mu.Lock()
	q := s.queues[w.Key]
	sealed := q.sealed
	s.mu.Unlock()
	if sealed != nil {
		return nil, sealed // without the store, which may be unreachable
	}
	sl, err := s.registered(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends() {
		return nil, ErrClosed
	}
	return sl.newClaim(q, w), nil
}

// An acquireAttempt is one Acquire command for a claim.
type acquireAttempt struct {
	sent     instant
	notAfter time.Time     // by the store's clock: after that the attempt does not count
	moment   uint64        // see recentClaims
	first    bool          // the claim's first attempt
	done     chan struct{} // closed when the attempt was answered or failed
}

// An acquireReply is the result of an acquireAttempt.
type acquireReply struct {
	state *driver.State
	err   error
}

// attempt makes one attempt to acquire. The attempt names those sessions in the way, by the last
// reply, that are known to have expired. attempt returns the hold if the claim was granted,
// by this attempt or otherwise, and else the state of the key.
func (c *claim) attempt(ctx context.Context) (h *Hold, st *driver.State, err error) {
	s := c.s
	var lanes []chan struct{}
	sent := c.requested
	if c.requested = false; !sent {
		// A notice may have granted the claim. Then it must not wait for a lane, behind the
		// requests for other keys.
		if !c.over() {
			lanes, err = c.enterLanes(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	h, st, err = c.outcome()
	switch {
	case sent || h != nil || err != nil:
	case c.lease.expired():
		err = errOver
	case !c.try && !c.request.First && c.queue.forceWaits():
		err = errAside
	default:
		entered := lanes
		c.send(nil, func(error) { leaveLanes(entered) })
		lanes = nil
	}
	s.mu.Unlock()
	leaveLanes(lanes) // if nothing was sent
	for h == nil && st == nil && err == nil {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		s.mu.Lock()
		h, st, err = c.outcome()
		s.mu.Unlock()
	}
	if errors.Is(err, errUndated) {
		h, err = c.date(ctx)
	}
	return h, st, err
}

// outcome returns the result that the requester waits for: the hold if the claim was granted,
// the state in the reply, or the error if neither will come. If there is no result yet, all
// three are nil. s.mu must be held.
func (c *claim) outcome() (h *Hold, st *driver.State, err error) {
	switch ended := c.ended(); {
	case c.grant != nil && c.fixed() && c.grant.until.IsZero():
		return nil, nil, errUndated
	case c.grant != nil:
		h, err = c.begin()
		return h, nil, err
	case ended != nil:
		return nil, nil, ended
	case c.reply != nil:
		r := c.reply
		c.reply = nil
		return nil, r.state, r.err
	}
	return nil, nil, nil
}

// errUndated means that the claim was granted for a lease of its own, which has no end yet.
var errUndated = errors.New("dsync: the lease is not dated")

// date begins the hold of a claim with a lease of its own. It extends the lease, which sets its
// first end, and counts it from the send of that Extend. Until then the claim lives with its
// session. If the grant set the end, a grant that nobody learned of would close its key for the
// whole lease, long after the session has expired.
func (c *claim) date(ctx context.Context) (*Hold, error) {
	s := c.s
	retry := s.backoff()
	for {
		sent := instantNow()
		o, err := c.extend(ctx)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			c.grant.since, c.grant.until, c.grant.sent = o.Since, o.Until, sent
			return c.begin()
		}
		switch {
		case errors.Is(err, driver.ErrNotHeld):
			return nil, errOver
		case ctx.Err() != nil || final(err):
			return nil, err
		}
		if _, err := c.wait(ctx, retry.next()); err != nil {
			return nil, err
		}
	}
}

// send sends an attempt in the background. If old is not nil, the attempt also releases that
// claim. When it was answered or has failed, done is called with the error. s.mu must be held.
func (c *claim) send(old *claim, done func(error)) {
	s, sl := c.s, c.lease
	a := &acquireAttempt{
		sent: instantNow(), moment: sl.recent.requestSent(), notAfter: sl.storeClock().Add(s.attemptTime()),
		first: c.attempts == 0, done: make(chan struct{}),
	}
	expired, joined := s.pickExpired(c.ahead), c.joined
	c.attempts++
	c.inflight, c.reply, c.again, c.namedExpired = a, nil, false, expired
	c.listener = 0
	if sl.listener.ready {
		c.listener = sl.listener.number
	}
	s.workers.do(func() {
		r := attempt(s, "Acquire", func(ctx context.Context) (*driver.State, error) {
			e := driver.Edit{Join: &driver.Join{Claim: c.request, Wait: !c.try, Expired: expired, NotAfter: a.notAfter, Repeated: !a.first}}
			if old != nil {
				e.Leave = &driver.Leave{Claim: old.withGrant()}
			}
			edited, err := s.store.Edit(ctx, e)
			// There may be notices with an error: old may have been released in a step of its own.
			st, notices := &edited.State, edited.Notices
			if st.Position > 0 && joined || c.try && !holds(st, c.request.ID) {
				notices = unchanged(notices)
			}
			s.notify(notices)
			return st, err
		})
		s.mu.Lock()
		c.answered(a, r.v, r.err)
		s.mu.Unlock()
		done(r.err)
	})
}

// answered records the result of an attempt, whether or not the requester still waits for it.
// s.mu must be held.
func (c *claim) answered(a *acquireAttempt, st *driver.State, err error) {
	sl := c.lease
	sl.recent.inflight--
	c.inflight = nil
	close(a.done)
	if err == nil {
		sl.sawClock(st.Now)
	}
	if err == nil || isAnswer(err) {
		c.answers++
	}
	if (err != nil || !st.Final) && a.notAfter.After(c.requestsVoid) {
		c.requestsVoid = a.notAfter
	}
	if c.state != pending || c.grant != nil || sl.cause != nil {
		return
	}
	if err == nil {
		err = c.read(a, st)
	}
	c.reply = &acquireReply{st, err}
	c.wakeUp()
}

// read records the state with which the store answered an attempt. s.mu must be held.
func (c *claim) read(a *acquireAttempt, st *driver.State) error {
	sl := c.lease
	c.position, c.joined = st.Position, st.Position > 0
	for i := range st.Holders {
		o := &st.Holders[i]
		if o.Claim == c.request.ID {
			crowded := st.Waiting > 0
			c.grantBy(&grant{token: o.Token, term: st.Term, since: o.Since, othersWait: crowded, alone: a.first && !crowded})
		} else if o.Until.IsZero() {
			sl.releaseUnknown(st.Key, o.Session, o.Claim, a.moment)
		}
	}
	for _, w := range st.WaitersAhead {
		sl.releaseUnknown(st.Key, w.Session, w.Claim, a.moment)
	}
	if c.grant != nil {
		return nil
	}
	c.ahead = sessionsIn(st, sl.id)
	switch {
	case st.Sealed:
		return &SealedError{st.Value}
	case st.Position == 0 && (!c.try || fits(&c.request, st)):
		return errLate
	}
	return nil
}

// enterLanes waits until an attempt may be sent, and returns the lanes that it has entered. A repeated
// attempt needs a lane for polls first, and then a general one. enterLanes returns early if the claim
// has an outcome.
func (c *claim) enterLanes(ctx context.Context) (entered []chan struct{}, err error) {
	s := c.s
	lanes, n := []chan struct{}{s.pollLanes, s.lanes}, 0
	if c.attempts == 0 {
		lanes = lanes[1:]
	}
	for n < len(lanes) {
		select {
		case lanes[n] <- struct{}{}:
			n++
		case <-ctx.Done():
			leaveLanes(lanes[:n])
			return nil, ctx.Err()
		case <-c.wake:
			if c.over() {
				return lanes[:n], nil
			}
		}
	}
	return lanes, nil
}

// over reports whether the claim needs no further attempt: it was granted, or no longer can be.
func (c *claim) over() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.grant != nil || c.ended() != nil
}

func leaveLanes(entered []chan struct{}) {
	for _, l := range entered {
		<-l
	}
}

// newlyExpired reports whether a session in the way is known to have expired and was not named
// by the last attempt.
func (c *claim) newlyExpired() bool {
	for _, id := range c.s.expiredAmong(c.ahead) {
		if !slices.Contains(c.namedExpired, id) {
			return true
		}
	}
	return false
}

// expireMismatched is called when others use the key as another kind, or with another limit. It
// expires those of their sessions that have lapsed, and makes the next attempt name them. If
// none of the sessions has expired it returns the mismatch.
func (c *claim) expireMismatched(ctx context.Context, mismatch error) error {
	s := c.s
	st, err := s.Load(ctx, c.request.Key)
	if err != nil {
		return err
	}
	ids := sessionsIn(&st, c.lease.id)
	if err := s.expireLapsed(ctx, ids); err != nil {
		return err
	}
	if len(s.expiredAmong(ids)) == 0 {
		return mismatch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ahead = ids
	return nil
}

// waitInQueue waits in the queue until there is reason to request again: a notice for the claim,
// a listener that has become ready, the end of a holder's fixed lease, the expiry of a session
// ahead, or the next poll.
func (c *claim) waitInQueue(ctx context.Context, st *driver.State) error {
	s, sl := c.s, c.lease
	s.mu.Lock()
	sl.listenFor(c)
	s.mu.Unlock()
	if c.asked != nil {
		if err := sl.revokeHolders(ctx, st, c.asked); err != nil {
			return err
		}
	}
	if c.newlyExpired() {
		return nil
	}
	if err := s.readUnknown(ctx, c.ahead); err != nil {
		return err
	}
	began := instantNow()
	s.mu.Lock()
	d := sl.pollTime(st.Position)
	if c.asked != nil {
		d = min(d, 5*time.Second) // another forced claim may be granted first; its session must be asked too
	}
	for _, o := range st.Holders {
		if !o.Until.IsZero() {
			d = min(d, max(0, o.Until.Sub(sl.storeClock()))+s.stagger(st.Position))
		}
	}
	s.mu.Unlock()
	for stagger := s.stagger(st.Position); ; {
		left := d - began.elapsed()
		if left <= 0 {
			return nil
		}
		lapse := s.untilLapse(c.ahead, left) + stagger
		again, err := c.wait(ctx, min(left, lapse))
		if again || err != nil || left < lapse {
			return err
		}
		if err := s.expireLapsed(ctx, c.ahead); err != nil || c.newlyExpired() {
			return err
		}
	}
}

// pollTime returns how long the waiter at that position waits for a notice before it requests
// again. If the listener is ready the default is about a TTL. A notice is lost if its sender
// crashes before it sends it, and after a crash others wait for a TTL anyway. s.mu must be held.
func (sl *sessionLease) pollTime(position int) time.Duration {
	d := sl.s.opt.PollInterval
	switch {
	case d > 0:
	case sl.listener.ready:
		return jitter(min(max(sl.s.opt.TTL, 5*time.Second), 30*time.Second), 0.2)
	default:
		d = 250 * time.Millisecond
	}
	return jitter(d*time.Duration(min(max(position, 1), 4)), 0.2)
}

// wait waits for at most d and reports whether there is reason to request again. Everything that
// ends the wait, except ctx, comes through one channel: each further channel in the select would
// cost every waiter about a hundred bytes.
func (c *claim) wait(ctx context.Context, d time.Duration) (again bool, err error) {
	if again, err := c.shouldRequest(); again || err != nil {
		return again, err
	}
	t := time.AfterFunc(d, c.wakeUp)
	defer t.Stop()
	select {
	case <-c.wake:
		return c.shouldRequest()
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// shouldRequest reports whether there is a reason to request again that it has not reported yet.
// An error says why the requester must give up instead.
func (c *claim) shouldRequest() (again bool, err error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.ended(); err != nil {
		return false, err
	}
	again, c.again = c.again, false
	return again, nil
}

// stagger returns how much later than the first in the queue the waiter at that position checks
// whether sessions ahead have expired. The delay and its jitter grow with the position, so that
// a crash does not make a thousand waiters send commands at once.
func (s *Session) stagger(position int) time.Duration {
	back := time.Duration(min(max(position-1, 0), 50))
	step := s.opt.TTL / 100
	return back*step + time.Duration(rand.Int64N(int64(back*step)+1))
}

// persist calls f until it succeeds. After a failure of the store it waits before the next call;
// after errOver, which says that the session was lost, it does not. The error is ctx's, with the
// store's last error added if there was one, ErrClosed, or one that trying again cannot fix.
func (s *Session) persist(ctx context.Context, f func() error) error {
	retry := s.backoff()
	var last error
	for {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return waitError(ctx, last)
		case errors.Is(err, errOver):
			continue
		case final(err):
			return err
		}
		last = err
		if err := s.wait(ctx, retry.next()); errors.Is(err, ErrClosed) {
			return err
		}
	}
}

// final reports whether err ends a wait. Other errors are failures of the store, after which
// trying again may help.
func final(err error) bool {
	return isAnswer(err) || errors.Is(err, ErrClosed) || errors.Is(err, errOver) || errors.Is(err, errAside)
}

// waitError returns why ctx ended, with the store's last error if there is one: a caller that
// waited for an unreachable store should see that it was unreachable.
func waitError(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil {
		err = fmt.Errorf("%w (the store's last error: %w)", err, last)
	}
	return err
}

// holds reports whether the claim holds.
func holds(st *driver.State, claim string) bool {
	_, ok := st.Holder(claim)
	return ok
}

// fits reports whether c could be granted at once: there is room for it, and nobody waits.
func fits(c *driver.Claim, st *driver.State) bool {
	if st.Waiting > 0 {
		return false
	}
	free := st.Limit // counted down: the sum of the weights can overflow
	for _, h := range st.Holders {
		free -= h.Weight
	}
	return len(st.Holders) == 0 || c.Weight <= free
}

// A SealedError is the answer to a request for a sealed key.
type SealedError struct{ Value []byte }

func (e *SealedError) Error() string { return "dsync: the key is sealed" }

// Result returns a copy of Value, which is not nil even if Value is.
func (e *SealedError) Result() []byte { return append([]byte{}, e.Value...) }

// heldError returns the error of a try that found the key held or waited for, in state st.
func (s *Session) heldError(ctx context.Context, st *driver.State) *driver.HeldError {
	e := &driver.HeldError{Key: st.Key}
	switch {
	case len(st.Holders) > 0:
		h := st.Holders[0]
		e.Session, e.Since, e.Until = h.Session, h.Since, h.Until
	case len(st.WaitersAhead) > 0:
		e.Session = st.WaitersAhead[0].Session
	}
	// The session of a fixed lease was not read before, because it need not be alive.
	m := s.memberOf(ctx, e.Session)
	e.Host, e.PID = m.Host, m.PID
	return e
}

// heldHere returns the error of a try for a key that this process holds or waits for.
func (s *Session) heldHere(key string, h *Hold) *driver.HeldError {
	e := &driver.HeldError{Key: key, Here: true, Host: s.opt.Host, PID: os.Getpid()}
	if h != nil {
		s.mu.Lock()
		e.Session, e.Since, e.Until = h.c.request.Session, h.c.grant.since, h.c.grant.until
		s.mu.Unlock()
	}
	return e
}

// TryError adds to err what was tried. It returns a *driver.HeldError as it is, since that names
// the key itself.
func TryError(what, key string, err error) error {
	if errors.Is(err, driver.ErrHeld) {
		return err
	}
	return fmt.Errorf("dsync: try to %s %q: %w", what, key, err)
}
