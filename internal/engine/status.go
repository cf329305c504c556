package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A Local is what a [Session] knows about itself at one moment: see [Session.Local]. Its times are by this host's
// clock, except LocalHold.Until.
type Local struct {
	// ID is the id under which the session is registered, or "" if it is not registered. A session registers when a
	// lock is requested, and again after a loss.
	ID string

	// How the session appears to others: see dsync.Options.
	Name, Host, App string
	PID             int

	TTL, Margin, Grace, Heartbeat time.Duration
	Poll                          time.Duration // current poll interval of the first waiter in a queue

	// Renewed is when the last acknowledged heartbeat was sent; the registration counts as the first heartbeat. From
	// then on, the session's lease lasts for Lease; Left is how much of it remains. When Left reaches zero, everything
	// that lives with the session is lost. Renewed is zero if ID is "".
	Renewed     time.Time
	Lease, Left time.Duration

	// Listening means that a listener is open, so that notices reach the session. Polling means that the store can't
	// notify. If both are false, the session does not need a listener, or is opening one.
	Listening, Polling bool

	Closed bool // Close has begun

	Holds []LocalHold // what this process holds, in no order
	Waits []LocalWait // calls of this process that wait: the keys in no order, the calls for one key in queue order
}

// A LocalHold is a key that this process holds.
type LocalHold struct {
	Key           string
	Kind          driver.Kind
	Claim         string
	Weight, Limit int64 // the units that it holds, and the key's limit; a writer of an RWMutex holds all units
	Token         int64
	Term          int64     // of an election; 0 for other kinds
	Since         time.Time // when this process learned of the grant; not changed by hand-offs
	HandOffs      int       // number of hand-offs in this process since then
	Holders       int       // number of readers that share the hold, or 1; 0: the key lingers

	// For a fixed lease: when it ends by the store's clock, and how long it still lasts for the holder by the local
	// clock.
	Until time.Time
	Left  time.Duration

	// Lost is the reason if the hold ended before its holder released it, and nil otherwise. LostSince is when the
	// holder was notified. A lost hold is listed until its holder calls Unlock, Release or Resign, or the function
	// passed to Do or leader.Election.Run returns.
	Lost      error
	LostSince time.Time
}

// A LocalWait is a call in this process that waits for a key.
type LocalWait struct {
	Key    string
	Kind   driver.Kind
	Weight int64
	Since  time.Time // when the call was made

	// Position is the call's position in the store's queue, as of the last reply. 1 is the first. 0 means that the call
	// is not known to be in that queue. Each process has at most one call in the queue of each key. Ahead is the number
	// of calls in this process that are ahead of this call.
	Position, Ahead int
}

// Stats returns whether the session listens, how many records the store has, and why its waiters poll, as admin.Stats
// documents. It sends no command to the store.
func (s *Session) Stats() (listening bool, records int64, polling error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if listening, _ = s.core.Listening(); !listening {
		polling = s.listenErr
	}
	return listening, s.core.Swept().LastRound, polling
}

// Local returns what the session knows about itself. It sends no command to the store. Like every method that reports
// on a lock, it checks the clock first. While Local copies the holds and waits, the session can do nothing else.
func (s *Session) Local() Local {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.compareClock()
	l := Local{
		Name: s.process.Name, Host: s.process.Host, App: s.process.App, PID: s.process.PID,
		TTL: s.config.TTL, Margin: s.config.Margin, Grace: s.config.Grace, Heartbeat: s.config.Heartbeat, Poll: s.core.PollTime(1),
		Closed: s.ends(),
	}
	if id := s.core.Session(); id != "" {
		l.ID, l.Renewed, l.Lease, l.Left = id, s.clock.when(s.core.Renewed()), s.core.Deadline().Sub(s.core.Renewed()), s.core.Deadline().Sub(now)
	}
	l.Listening, l.Polling = s.core.Listening()
	s.core.Claims(func(c core.Held) {
		r := c.Claim
		o := LocalHold{
			Key: r.Key, Kind: r.Kind, Claim: r.ID, Weight: r.Weight, Limit: r.Limit,
			Token: c.Token, Since: s.clock.when(c.Granted), HandOffs: int(c.Token - r.Token), Holders: c.Users,
		}
		if c.Call != nil {
			o.Term = holdOf(c.Call).Term()
		}
		if r.Lease > 0 {
			o.Until, o.Left = c.Until, c.Ends.Sub(now)
		}
		l.Holds = append(l.Holds, o)
	})
	for h, since := range s.overdue {
		r := h.request
		l.Holds = append(l.Holds, LocalHold{
			Key: r.Key, Kind: r.Kind, Claim: r.ID, Weight: r.Weight, Limit: r.Limit, Token: h.token, Term: h.Term(),
			Since: s.clock.when(h.granted), HandOffs: int(h.token - r.Token), Holders: max(1, int(h.sharers)), Lost: h.cause, LostSince: s.clock.when(since),
		})
	}
	s.core.Waits(func(a *core.Call, position, ahead int) {
		l.Waits = append(l.Waits, LocalWait{Key: a.Key, Kind: a.Kind, Weight: a.Weight, Since: s.clock.when(holdOf(a).since), Position: position, Ahead: ahead})
	})
	return l
}

// ErrStillInUse means that a lost hold is still in use after its grace.
var ErrStillInUse = errors.New("dsync: lost hold still in use")

// Healthy returns nil, or an error that says what is wrong with this process's use of locks: ErrNotRenewed,
// ErrStillInUse, ErrNotReleased, ErrClosed, or several of them joined. dsync.Session.Healthy documents them.
func (s *Session) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.compareClock()
	if s.ends() {
		return errors.Join(s.stillInUse(now), core.ErrClosed)
	}
	return errors.Join(s.stillInUse(now), s.unreleased(), s.unrenewed(now))
}

// unreleased returns an error if the store refuses to release a key. s.mu must be held.
func (s *Session) unreleased() error {
	first, n, err := s.core.Refused()
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: the store refuses to release the %s %q: %w", core.ErrNotReleased, first.Kind, first.Key, err)
	}
	return fmt.Errorf("%w: the store refuses to release the %s %q: %w, and %d more", core.ErrNotReleased, first.Kind, first.Key, err, n-1)
}

// stillInUse returns an error if lost holds are still in use after their grace. The error names up to four holds, the
// most overdue first. s.mu must be held.
func (s *Session) stillInUse(now core.Instant) error {
	var late []*Hold
	for h, since := range s.overdue {
		if now.Sub(since) > s.config.Grace {
			late = append(late, h)
		}
	}
	if len(late) == 0 {
		return nil
	}
	slices.SortFunc(late, func(a, b *Hold) int {
		return cmp.Or(cmp.Compare(s.overdue[a], s.overdue[b]), cmp.Compare(a.acquire.Key, b.acquire.Key))
	})
	const shown = 4
	var others string
	for _, h := range late[1:min(shown, len(late))] {
		others += fmt.Sprintf(", %s %q", h.acquire.Kind, h.acquire.Key)
	}
	if more := len(late) - shown; more > 0 {
		others += fmt.Sprintf(", and %d more", more)
	}
	first := late[0]
	return fmt.Errorf("%w: %s %q for %v, which is more than its grace of %v (%w)%s", ErrStillInUse, first.acquire.Kind,
		first.acquire.Key, now.Sub(s.overdue[first]).Round(time.Millisecond), s.config.Grace, first.cause, others)
}

// unrenewed returns an error if the session is needed, but no registration or heartbeat of it was acknowledged in time.
// s.mu must be held.
func (s *Session) unrenewed(now core.Instant) error {
	late, renewed := s.config.Silence(), s.core.Renewed()
	if s.core.Session() != "" {
		if since := now.Sub(renewed); since > late && s.core.Lives() {
			return fmt.Errorf("%w: no heartbeat was acknowledged for %v; everything it holds will be lost in %v", core.ErrNotRenewed,
				since.Round(time.Millisecond), s.core.Deadline().Sub(now).Round(time.Millisecond))
		}
		return nil
	}
	var since time.Duration
	s.core.Waits(func(a *core.Call, _, ahead int) {
		switch {
		case ahead > 0:
		case renewed == 0:
			since = max(since, now.Sub(holdOf(a).since))
		default: // count from the last renewal: a waiter's request after a loss must not restart the time
			since = now.Sub(renewed)
		}
	})
	if since > late {
		return fmt.Errorf("%w: callers wait for a lock, but the session has been unable to register for %v", core.ErrNotRenewed, since.Round(time.Millisecond))
	}
	return nil
}
