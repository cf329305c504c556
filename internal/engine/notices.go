package engine

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// listenAfter is how long a session holds something before it listens for that reason alone.
// Most holds end sooner and so never cost a listener.
const listenAfter = time.Second

// A listener receives a session lease's notices. It runs when somebody waits or observes, or has
// held something for a while. There is one, however many callers need it, and it stops when
// nobody has needed it for a TTL. The session's mu guards its fields.
type listener struct {
	cancel      context.CancelFunc // nil: not running
	ready       bool
	number      int // counts how often a listener became ready
	unsupported bool
	waiters     int                               // number of claims that need it
	observers   map[string]map[chan struct{}]bool // by key
	later       *time.Timer                       // starts it if something is still held then; nil: not armed
	idle        instant                           // since when nobody needs it
}

// listenFor counts c among the claims that need the listener, once, and starts the listener.
// s.mu must be held.
func (sl *sessionLease) listenFor(c *claim) {
	l := &sl.listener
	if !c.listens {
		c.listens = true
		l.waiters++
	}
	sl.startListening(0)
}

// stopListening removes the claim from those that need the listener. s.mu must be held.
func (c *claim) stopListening() {
	if c.listens {
		c.listens = false
		c.lease.listener.waiters--
		c.lease.listener.idle = instantNow()
	}
}

// observe returns a channel that gets a value when key may have changed. It reopens the listener
// with the key, unless the key is observed already.
func (sl *sessionLease) observe(key string) (changed chan struct{}) {
	const gather = 5 * time.Millisecond // one reopening serves all keys that are added within this time
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	changed = make(chan struct{}, 1)
	l := &sl.listener
	if l.observers == nil {
		l.observers = make(map[string]map[chan struct{}]bool)
	}
	if l.observers[key] == nil {
		l.observers[key] = make(map[chan struct{}]bool)
		l.stop()
	}
	l.observers[key][changed] = true
	sl.startListening(gather)
	return changed
}

// unobserve ends what observe began.
func (sl *sessionLease) unobserve(key string, changed chan struct{}) {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	l := &sl.listener
	delete(l.observers[key], changed)
	if len(l.observers[key]) == 0 {
		delete(l.observers, key) // the listener receives its changes until it is reopened
	}
	l.idle = instantNow()
}

// startListening starts the listener after the given time, unless it is running. s.mu must be
// held.
func (sl *sessionLease) startListening(after time.Duration) {
	s, l := sl.s, &sl.listener
	if l.cancel != nil || l.unsupported || sl.cause != nil || s.finished {
		return
	}
	l.idle = instantNow()
	ctx, cancel := context.WithCancel(s.base)
	l.cancel = cancel
	s.workers.wg.Go(func() {
		if after == 0 || s.wait(ctx, after) == nil {
			sl.listen(ctx)
		}
	})
}

// listenLater starts the listener after listenAfter if something is held then, so that
// [Session.Break] in another process can notify this one. s.mu must be held.
func (sl *sessionLease) listenLater() {
	l := &sl.listener
	if l.later == nil && l.cancel == nil && !l.unsupported && sl.cause == nil && !sl.s.finished {
		l.later = time.AfterFunc(listenAfter, sl.listenNow)
	}
}

func (sl *sessionLease) listenNow() {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	sl.listener.later = nil
	if sl.holdsAny() {
		sl.startListening(0)
	}
}

// holdsAny reports whether anything is held. s.mu must be held.
func (sl *sessionLease) holdsAny() bool {
	for _, c := range sl.s.claims {
		if c.lease == sl && c.state == granted && c.hold != nil {
			return true
		}
	}
	return false
}

// tickListener stops a listener that nobody has needed for a TTL, and starts one for what is
// held. It is called with every acknowledged heartbeat. s.mu must be held.
func (sl *sessionLease) tickListener() {
	l := &sl.listener
	switch {
	case sl.holdsAny():
		l.idle = instantNow()
		sl.listenLater()
	case l.waiters > 0 || len(l.observers) > 0 || sl.s.opt.AlwaysListen:
		l.idle = instantNow()
	case l.cancel != nil && l.idle.elapsed() > sl.s.opt.TTL:
		l.stop()
	}
}

// stop stops the listener. s.mu must be held.
func (l *listener) stop() {
	if l.later != nil {
		l.later.Stop()
		l.later = nil
	}
	if l.cancel != nil {
		l.cancel()
		l.cancel, l.ready = nil, false
	}
}

// listen listens until ctx ends. If the listener fails it opens a new one. That one receives only
// what is sent from then on, so when it is ready every waiter requests again.
func (sl *sessionLease) listen(ctx context.Context) {
	s, l := sl.s, &sl.listener
	retry := s.backoff()
	for {
		s.mu.Lock()
		keys := slices.Collect(maps.Keys(l.observers))
		s.mu.Unlock()
		opened := instantNow()
		err := s.store.Listen(ctx, sl.id, keys, func(n driver.Notice) {
			s.mu.Lock()
			if ctx.Err() == nil {
				sl.handle(n)
			}
			s.mu.Unlock()
			runtime.Gosched() // let the woken waiter run before this goroutine asks the store for more notices
		})
		s.mu.Lock()
		if ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		l.ready = false
		if errors.Is(err, errors.ErrUnsupported) {
			l.unsupported = true
			l.stop()
			s.mu.Unlock()
			s.info("dsync: the store can't notify; waiters poll", "why", err)
			return
		}
		s.mu.Unlock()
		s.storeError("Listen", err)
		if opened.elapsed() > retry.cap {
			retry.reset() // only if it has lived for a while: each new listener makes every waiter request again
		}
		if s.wait(ctx, retry.next()) != nil {
			return
		}
	}
}

// handle handles a notice. s.mu must be held.
func (sl *sessionLease) handle(n driver.Notice) {
	if sl.cause != nil {
		return
	}
	c := sl.s.claims[n.Claim]
	switch n.Type {
	case driver.NoticeReady:
		sl.listenerReady()
	case driver.NoticeChange:
		sl.changed(n.Key)
	case driver.NoticeRevoke:
		sl.revoke(driver.Revocation{Key: n.Key, Claim: n.Claim})
	case driver.NoticeYield:
		if c != nil {
			c.noteOthersWait()
		}
	case driver.NoticeWake:
		if c != nil && c.state == pending {
			c.requestAgain()
		}
	case driver.NoticeGrant:
		switch {
		case c == nil:
			if !sl.recent.past(n.Claim, n.Token) && !sl.recent.wasKept(n.Claim) {
				sl.orphan(driver.Claim{Key: n.Key, ID: n.Claim, Session: sl.id})
			}
		default:
			c.grantBy(&grant{token: n.Token, term: n.Term, othersWait: n.Crowded})
		}
	}
}

// listenerReady is called when the listener receives everything that is sent from now on. What
// was sent before may have been missed, so everybody checks again. s.mu must be held.
func (sl *sessionLease) listenerReady() {
	sl.listener.ready = true
	sl.listener.number++
	for _, c := range sl.s.claims {
		switch {
		case c.lease != sl:
		case c.state == pending:
			c.requestAgain()
		case c.lingers(), c.live():
			sl.heartbeatNow()
			if !c.shares {
				c.noteOthersWait() // others may have come without a notice
			}
		}
	}
	for key := range sl.listener.observers {
		sl.changed(key)
	}
}

// noteOthersWait records that others may wait for the claim, if it can yield. s.mu must be held.
func (c *claim) noteOthersWait() {
	if c.request.Yield {
		c.othersWait = true
		c.stopLingering()
	}
}

// heartbeatNow makes the session send a heartbeat now. The reply lists its revocations. s.mu must
// be held.
func (sl *sessionLease) heartbeatNow() {
	select {
	case sl.heartbeatDue <- struct{}{}:
	default:
	}
}

// changed wakes the observers of key. s.mu must be held.
func (sl *sessionLease) changed(key string) {
	for c := range sl.listener.observers[key] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// notify sends the notices that a command returned, in the background. Close waits for it. If a
// notice is lost, its recipient learns of the event at its next poll.
func (s *Session) notify(notices []driver.Notice) {
	if len(notices) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.finishing(func() { s.sendNotices(notices) })
	}
}

// sendNotices sends the notices. This session handles its own at once, and notices of changes are
// merged by notifyChange.
func (s *Session) sendNotices(notices []driver.Notice) {
	if len(notices) == 0 {
		return
	}
	s.mu.Lock()
	notices = slices.DeleteFunc(notices, func(n driver.Notice) bool {
		sl := s.lease
		switch {
		case sl != nil && n.Session == sl.id:
			sl.handle(n)
		case n.Type == driver.NoticeChange:
			s.notifyChange(n)
		default:
			return false
		}
		return true
	})
	s.mu.Unlock()
	if len(notices) > 0 {
		s.send(notices)
	}
}

// finishing calls f, which releases a claim or sends notices, on a goroutine. While Close gives up
// the holds it waits for these goroutines, so that it does not cut off what they send. A late
// notice can still cause one after that. s.mu must be held.
func (s *Session) finishing(f func()) {
	if s.holdsGivenUp {
		s.workers.do(f)
		return
	}
	s.releases.Add(1)
	s.workers.do(func() {
		defer s.releases.Done()
		f()
	})
}

// notifyTime is how long sending a notice is tried: longer than an election takes with MongoDB's
// default settings, about twelve seconds. A grant just before an election is then learned right
// after it. Later a notice is of little use, since waiters poll.
const notifyTime = 15 * time.Second

// send sends the notices, and tries again for notifyTime. Like repeated attempts to acquire, repeated
// attempts to notify need a lane for polls first: during an outage they must not occupy the lanes that
// releases need after it. Once Close has begun, nothing is tried again.
func (s *Session) send(notices []driver.Notice) {
	notify := func() error {
		return command(s, "Notify", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.store.Notify(ctx, notices)
		}).err
	}
	began, retry := instantNow(), s.backoff()
	err := notify()
	for err != nil && !isAnswer(err) && began.elapsed() < notifyTime {
		if s.wait(s.base, retry.next()) != nil {
			return
		}
		select {
		case s.pollLanes <- struct{}{}:
		case <-s.closing:
			return
		}
		err = notify()
		<-s.pollLanes
	}
}

// unchanged returns the notices to send after a command that changed nothing for its own claim.
// It drops notices of changes, unless the command granted other claims.
func unchanged(notices []driver.Notice) []driver.Notice {
	if slices.ContainsFunc(notices, func(n driver.Notice) bool { return n.Type == driver.NoticeGrant }) {
		return notices
	}
	return slices.DeleteFunc(notices, func(n driver.Notice) bool { return n.Type == driver.NoticeChange })
}

// changeGap is the shortest time between two notices of changes of one key from one session.
const changeGap = 20 * time.Millisecond

// notifyChange sends a notice that a key has changed. One notice covers all changes of the key
// until it is sent. s.mu must be held.
func (s *Session) notifyChange(n driver.Notice) {
	again, under := s.changes[n.Key]
	switch {
	case s.finished || again:
	case under:
		s.changes[n.Key] = true
	default:
		s.changes[n.Key] = false
		s.finishing(func() {
			for more := true; more; {
				s.send([]driver.Notice{n})
				_ = s.wait(s.base, changeGap)
				s.mu.Lock()
				if more = s.changes[n.Key]; more {
					s.changes[n.Key] = false
				} else {
					delete(s.changes, n.Key)
				}
				s.mu.Unlock()
			}
		})
	}
}
