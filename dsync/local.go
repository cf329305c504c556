package dsync

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"
)

// A Local is what a [Session] knows of itself at one moment: see [Session.Local].
// All times are this host's, not the store's.
type Local struct {
	// ID is the id under which the session is registered, "" if it is not: it
	// registers when a lock is asked for, and again after a loss.
	ID string

	// What others are shown: see [Options].
	Name, Host, App string
	PID             int

	TTL, Margin, Grace, Heartbeat time.Duration

	// Renewed is when the last heartbeat that was acknowledged was sent, the
	// registration being the first. Left is what is left of the lease, which was
	// Lease long then: when nothing is left, all that lives with the session is
	// lost. Zero without an ID.
	Renewed     time.Time
	Lease, Left time.Duration

	// Watching: a watch is open, so the store pushes what the session waits for.
	// Polling: the store can't push. Neither: nothing had to be watched, or the watch
	// is being opened.
	Watching, Polling bool

	Closed bool // Close has begun

	Holds []LocalHold // what this process has, in the order of their keys
	Waits []LocalWait // what it waits for, in the order of their keys, first come first
}

// A LocalHold is a key that this process has.
type LocalHold struct {
	Key           string
	Kind          Kind
	Claim         string
	Weight, Limit int64 // what it has, of how much; of an RWMutex a writer has all
	Token         int64
	Term          int64     // of an election, else 0
	Since         time.Time // when the grant was learnt, from which it may have been handed on
	HandOvers     int       // how often it was handed on in this process since then
	Holders       int       // 1, or how many readers share it; 0: it lingers

	// Of a fixed lease: when it lapses by the store's clock, and what is left of it
	// here.
	Until time.Time
	Left  time.Duration

	// Lost is why the hold ended before its holder released it, nil if it did not;
	// LostSince is when its holder was told. It is listed until its holder is done,
	// that is until Unlock, Release or Resign, or the return of the function of Do
	// or leader.Election.Run.
	Lost      error
	LostSince time.Time
}

// A LocalWait is a call in this process that waits for a key.
type LocalWait struct {
	Key    string
	Kind   Kind
	Weight int64
	Since  time.Time // the call

	// Place is the place in the store's line, 1 for the first, when the store was
	// asked last; 0 if it is not there, or not known to be. Of one key one call at a
	// time stands there; Ahead is how many calls stand before this one here.
	Place, Ahead int
}

// Local returns what the session knows of itself, without a command to the store.
// It compares the clock, as every look at a lock does. It costs nothing while it
// is not called, and holds up the session for as long as a list of what it holds
// and waits for takes.
func (s *Session) Local() Local {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := Local{
		Name: s.opt.Name, Host: s.opt.Host, App: s.opt.App,
		TTL: s.opt.TTL, Margin: s.opt.Margin, Grace: s.opt.Grace, Heartbeat: s.opt.Heartbeat,
		Closed: s.ends(),
	}
	if !s.opt.Anonymous {
		l.PID = os.Getpid()
	}
	if p := s.presence; p != nil && !p.expiredAt(now) {
		l.ID, l.Renewed, l.Lease, l.Left = p.id, p.sent.t, p.lease(), p.leftAt(now)
		l.Watching, l.Polling = p.watch.ready, p.watch.unsupported
	}
	places := make(map[*queue]int)
	for _, h := range s.holds {
		switch {
		case h.state == asking:
			places[h.q] = max(places[h.q], h.place) // a try has none
		case h.state == parked || h.look(now):
			l.Holds = append(l.Holds, h.local())
		}
	}
	for h, since := range s.overdue {
		o := h.local()
		o.Lost, o.LostSince = h.cause, since
		l.Holds = append(l.Holds, o)
	}
	for _, q := range s.queues {
		l.Waits = append(l.Waits, q.local(places[q])...)
	}
	slices.SortFunc(l.Holds, func(a, b LocalHold) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.Token, b.Token))
	})
	slices.SortStableFunc(l.Waits, func(a, b LocalWait) int { return strings.Compare(a.Key, b.Key) })
	return l
}

// local describes the hold. s.mu must be held.
func (h *hold) local() LocalHold {
	c := &h.claim
	o := LocalHold{
		Key: c.Key, Kind: c.Kind, Claim: c.ID, Weight: c.Weight, Limit: c.Limit,
		Token: h.token, Term: h.term, Since: h.start, HandOvers: h.handed, Holders: max(1, h.sharers),
	}
	if h.state == parked {
		o.Holders = 0
	}
	if c.Lease > 0 {
		o.Until, o.Left = h.until, h.leaseLeft()
	}
	return o
}

// local lists who waits, the first of them at place in the store's line. s.mu must
// be held.
func (q *queue) local(place int) []LocalWait {
	var all []LocalWait
	if q.asks {
		all = append(all, LocalWait{Key: q.key, Kind: q.kind, Weight: q.asker.weight, Since: q.asker.since, Place: place})
	}
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		w := e.Value.(*entrant).want
		all = append(all, LocalWait{Key: q.key, Kind: q.kind, Weight: w.weight, Since: w.began, Ahead: len(all)})
	}
	return all
}
