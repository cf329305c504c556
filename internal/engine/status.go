package engine

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Local is what a [Session] knows of itself at one moment: see [Session.Local]. Its times are
// this host's, except LocalHold.Until.
type Local struct {
	// ID is the id under which the session is registered, or "" if it is not registered. It
	// registers when a lock is requested, and again after a loss.
	ID string

	// How the session appears to others: see [Options].
	Name, Host, App string
	PID             int

	TTL, Margin, Grace, Heartbeat time.Duration

	// Renewed is when the last acknowledged heartbeat was sent; the registration counts as
	// the first. The lease was Lease long then, and Left of it is left now. When nothing is
	// left, everything that lives with the session is lost. Zero if there is no ID.
	Renewed     time.Time
	Lease, Left time.Duration

	// Listening means that a listener is open, so the session is notified of what it waits
	// for. Polling means that the store can't notify. If both are false there was no need to
	// listen, or the listener is being opened.
	Listening, Polling bool

	Closed bool // Close has begun

	Holds []LocalHold // what this process holds, in no order
	Waits []LocalWait // what it waits for: the calls for a key in their order, keys in none
}

// A LocalHold is a key that this process holds.
type LocalHold struct {
	Key           string
	Kind          driver.Kind
	Claim         string
	Weight, Limit int64 // how much it holds, of how much; a writer of an RWMutex holds all
	Token         int64
	Term          int64     // of an election; 0 for other kinds
	Since         time.Time // when this process learned of the grant; hand-offs do not change it
	HandOffs      int       // number of hand-offs in this process since then
	Holders       int       // 1, or the number of readers that share the hold; 0: the key lingers

	// For a fixed lease: its end by the store's clock, and how long it lasts for the holder
	// by the local clock.
	Until time.Time
	Left  time.Duration

	// Lost is why the hold ended before its holder released it, or nil if it did not.
	// LostSince is when its holder was notified. A lost hold is listed until its holder is
	// done: until Unlock, Release or Resign is called, or the function of Do or of
	// leader.Election.Run returns.
	Lost      error
	LostSince time.Time
}

// A LocalWait is a call in this process that waits for a key.
type LocalWait struct {
	Key    string
	Kind   driver.Kind
	Weight int64
	Since  time.Time // when the call was made

	// Position is the call's position in the store's queue, as of the last reply; 1 is the
	// first, and 0 means that the call is not known to be there. Only one call of this
	// process at a time is in the store's queue for a key. Ahead is the number of calls
	// ahead of this one in this process.
	Position, Ahead int
}

// Local returns what the session knows of itself. It sends no command to the store. It compares
// the clock, as every method that reports on a lock does. The session can do nothing else while
// Local copies what it holds and waits for.
func (s *Session) Local() Local {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.selfAt(now)
	positions := make(map[*queue]int)
	for _, c := range s.claims {
		switch {
		case c.state == pending:
			positions[c.queue] = max(positions[c.queue], c.position) // a try has no position
		case c.lingers():
			l.Holds = append(l.Holds, c.local(0))
		case c.state == granted && c.hold.check(now):
			l.Holds = append(l.Holds, c.local(max(1, c.hold.sharers)))
		}
	}
	for h, since := range s.overdue {
		o := h.c.local(max(1, h.sharers))
		o.Lost, o.LostSince = h.cause, since
		l.Holds = append(l.Holds, o)
	}
	for _, q := range s.queues {
		l.Waits = append(l.Waits, q.local(positions[q])...)
	}
	return l
}

// selfAt returns what Local does, without Holds and Waits, for a caller that has just read the clock.
// s.mu must be held.
func (s *Session) selfAt(now time.Time) Local {
	l := Local{
		Name: s.opt.Name, Host: s.opt.Host, App: s.opt.App,
		TTL: s.opt.TTL, Margin: s.opt.Margin, Grace: s.opt.Grace, Heartbeat: s.opt.HeartbeatInterval,
		Closed: s.ends(),
	}
	if !s.opt.Anonymous {
		l.PID = os.Getpid()
	}
	if sl := s.lease; sl != nil && !sl.expiredAt(now) {
		l.ID, l.Renewed, l.Lease, l.Left = sl.id, sl.sent.t, sl.duration(), sl.leftAt(now)
		l.Listening, l.Polling = sl.listener.ready, sl.listener.unsupported
	}
	return l
}

// local describes the claim, which has the given number of holders here. s.mu must be held.
func (c *claim) local(holders int) LocalHold {
	r := &c.request
	o := LocalHold{
		Key: r.Key, Kind: r.Kind, Claim: r.ID, Weight: r.Weight, Limit: r.Limit,
		Token: c.token, Term: c.grant.term, Since: c.grant.start, HandOffs: c.handOffs, Holders: holders,
	}
	if c.fixed() {
		o.Until, o.Left = c.grant.until, c.fixedLeft()
	}
	return o
}

// local lists the callers that wait. The one with the turn is at that position in the store's
// queue. s.mu must be held.
func (q *queue) local(position int) []LocalWait {
	var all []LocalWait
	if q.turn.taken() {
		all = append(all, LocalWait{Key: q.key, Kind: q.kind, Weight: q.turn.weight, Since: q.turn.since, Position: position})
	}
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		w := &e.Value.(*entrant).w
		all = append(all, LocalWait{Key: q.key, Kind: q.kind, Weight: w.Weight, Since: w.began, Ahead: len(all)})
	}
	return all
}

// Healthy returns nil, or an error that says what is wrong with this process's use of locks:
// ErrNotRenewed, ErrOverstayed, ErrNotReleased, ErrClosed, or several of them joined.
// dsync.Session.Healthy explains them.
func (s *Session) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.lease != nil {
		s.lease.expiredAt(now)
	}
	if s.ends() {
		return errors.Join(s.overstayed(now), ErrClosed)
	}
	return errors.Join(s.overstayed(now), s.unreleased(), s.unrenewed(now))
}

// unreleased returns an error if the store refuses to release a key. s.mu must be held.
func (s *Session) unreleased() error {
	var first *claim
	n := 0
	for _, c := range s.claims {
		if c.refused == nil {
			continue
		}
		if n++; first == nil || c.request.Key < first.request.Key {
			first = c
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s %q: %w", ErrNotReleased, first.request.Kind, first.request.Key, first.refused)
	}
	return fmt.Errorf("%w: %s %q: %w, and %d more", ErrNotReleased, first.request.Kind, first.request.Key, first.refused, n-1)
}

// overstayed returns an error if a lost hold is still in use after its grace. s.mu must be held.
func (s *Session) overstayed(now time.Time) error {
	var first *Hold
	n := 0
	for h, since := range s.overdue {
		if now.Sub(since) <= s.opt.Grace {
			continue
		}
		if n++; first == nil || since.Before(s.overdue[first]) {
			first = h
		}
	}
	if n == 0 {
		return nil
	}
	err := fmt.Errorf("%w: %s %q for %v, which is more than its grace of %v (%w)", ErrOverstayed, first.c.request.Kind,
		first.c.request.Key, now.Sub(s.overdue[first]).Round(time.Millisecond), s.opt.Grace, first.cause)
	if n > 1 {
		err = fmt.Errorf("%w, and %d more", err, n-1)
	}
	return err
}

// unrenewed returns an error if the session needs a lease and could not get or renew one in time.
// s.mu must be held.
func (s *Session) unrenewed(now time.Time) error {
	late := s.opt.heartbeatTime()
	if sl := s.lease; sl != nil {
		if since := sl.sent.until(now); since > late && s.lives() {
			return fmt.Errorf("%w: no heartbeat was acknowledged for %v; everything it holds will be lost in %v", ErrNotRenewed,
				since.Round(time.Millisecond), sl.leftAt(now).Round(time.Millisecond))
		}
		return nil
	}
	var since time.Duration
	for _, q := range s.queues {
		switch {
		case !q.turn.taken():
		case s.renewed.t.IsZero():
			since = max(since, now.Sub(q.turn.since))
		default: // count from the last renewal: a new request after a loss does not start the time again
			since = s.renewed.until(now)
		}
	}
	if since > late {
		return fmt.Errorf("%w: callers wait for a lock, and the session could not register for %v", ErrNotRenewed, since.Round(time.Millisecond))
	}
	return nil
}

// lives reports whether any claim lives with the session. s.mu must be held.
func (s *Session) lives() bool {
	for _, c := range s.claims {
		if !c.outlives() {
			return true
		}
	}
	return false
}
