package dsync

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/process"
)

// A Kind says what a key is used as. Using a key as two kinds at the same time is a
// [MismatchError], which names both.
type Kind = driver.Kind

// The kinds of keys. KindMutex is also the kind of a [Lease]; KindElection is that of package
// leader.
const (
	KindMutex     = driver.KindMutex
	KindRWMutex   = driver.KindRWMutex
	KindSemaphore = driver.KindSemaphore
	KindOnce      = driver.KindOnce
	KindPeriodic  = driver.KindPeriodic
	KindElection  = driver.KindElection
)

// A Member is the record of a session, as [Session.Members] returns it.
type Member = driver.Member

// Settings are how a session works: its [Member].Settings.
type Settings = driver.Settings

// A Status is what the store knows of a key at one moment: its state, its holders and its
// waiters. All times are the store's, not this host's.
type Status struct {
	Key   string
	Now   time.Time   // the time of the reading
	Kind  driver.Kind // "" if the store has no record of the key
	Limit int64       // what holders may have together: 1 for a mutex, the size of a semaphore
	Token int64       // the store's last fencing token, or one that was reserved with it for hand-offs; 0: none
	Term  int64       // the number of terms of an election so far; 0 for other kinds

	// Value is what the leader of an election published, or the result of a [Once] that is done, which
	// Sealed says, or of the LastTick of a [Periodic].
	Value    []byte
	Sealed   bool
	LastTick time.Time // the last tick of a Periodic that has succeeded; zero: none has

	Holders []Participant // in the order in which they were granted; a hold whose fixed end has passed is not among them
	Waiting int           // how many wait
	Queue   []Participant // the first waiters in FIFO order: up to 1,000 from Status, up to 8 from List
}

// A Participant is a holder of a key, or a waiter.
type Participant struct {
	Claim   string
	Session string
	Weight  int64 // how much of the limit it holds or requests

	// The session's process, as described in [Options]. Zero if the session's record was
	// deleted.
	Name, Host string
	PID        int
	App        string
	Meta       map[string]string
	Seen       time.Time     // the session's last heartbeat
	TTL        time.Duration // how long after its last heartbeat the session may expire

	// For holders only:
	Token   int64     // as granted; each hand-off within its process adds one
	Since   time.Time // the time of the grant
	Until   time.Time // when the hold ends: a fixed lease's end, else the end of the session unless a heartbeat renews it
	Renewed bool      // heartbeats move Until; false for a fixed end
	Lapsed  bool      // its session sent no heartbeat until Until: the hold does not count, and the next request for the key removes it
	Yields  bool      // its process may keep it unused until others wait
}

// Held reports whether somebody holds the key. Holders that have lapsed do not count.
func (st Status) Held() bool {
	for _, h := range st.Holders {
		if !h.Lapsed {
			return true
		}
	}
	return false
}

// Stats are what a session knows of itself that is worth a metric: see [Session.Stats].
type Stats struct {
	// Listening says that the session gets notices now. It listens only while it needs to: see
	// [Options].AlwaysListen.
	Listening bool

	// Polling is why waiters of this session poll: an error that matches [errors.ErrUnsupported] if
	// the store can't notify, and otherwise the error that ended the last listener. Nil if the session
	// listens, or has not needed to.
	Polling error

	// Records is the number of records in the store, those of sessions included, by the last whole
	// round of sweeping that the session knows of; 0 if it knows of none. SweptAt is the store's time of
	// the last slice that it knows of. A session checks between once a minute and once in an eighth of
	// [Options].Retention.
	Records int64
	SweptAt time.Time
}

// Stats returns what the session knows of itself. It sends no command to the store.
func (s *Session) Stats() Stats { return Stats(s.engine.Stats()) }

// Status returns what the store knows of key. If the key was never used, or not for
// [Options].Retention, only Key and Now are set. Errors are those of ctx, [ErrClosed] and those
// of the store.
func (s *Session) Status(ctx context.Context, key string) (Status, error) {
	st, err := s.engine.Load(ctx, key)
	if err == nil {
		var all []Status
		if all, err = s.statuses(ctx, []driver.State{st}); err == nil {
			return all[0], nil
		}
	}
	return Status{}, fmt.Errorf("dsync: status of %q: %w", key, err)
}

// List returns the status of every key that begins with prefix, in byte order; "" means all
// keys. It reads them during the iteration, a hundred at a time and later up to a thousand, each as
// of its own moment. An error, that of ctx, [ErrClosed] or the store's, comes last.
func (s *Session) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return s.ListAfter(ctx, prefix, "")
}

// ListAfter is [Session.List] for the keys that come after the key after in byte order. It
// serves to show keys page by page.
func (s *Session) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[Status, error] {
	const first, most = 100, 1000
	return func(yield func(Status, error) bool) {
		page := first
		for after := after; ; page = min(2*page, most) {
			states, err := s.engine.Keys(ctx, prefix, after, page)
			var all []Status
			if err == nil {
				all, err = s.statuses(ctx, states)
			}
			if err != nil {
				yield(Status{}, fmt.Errorf("dsync: list %q: %w", prefix, err))
				return
			}
			for _, st := range all {
				if !yield(st, nil) {
					return
				}
			}
			if len(states) < page {
				return
			}
			after = states[len(states)-1].Key
		}
	}
}

// statuses combines the states with the records of the sessions in them.
func (s *Session) statuses(ctx context.Context, states []driver.State) ([]Status, error) {
	members := make(map[string]driver.Member)
	var ids []string
	need := func(id string) {
		if _, ok := members[id]; !ok {
			members[id] = driver.Member{}
			ids = append(ids, id)
		}
	}
	for _, st := range states {
		for _, h := range st.Holders {
			need(h.Session)
		}
		for _, w := range st.WaitersAhead {
			need(w.Session)
		}
	}
	if len(ids) > 0 { // without ids Members returns all sessions
		found, _, err := s.Members(ctx, ids...)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			members[m.ID] = m
		}
	}
	all := make([]Status, 0, len(states))
	for _, st := range states {
		all = append(all, newStatus(st, members))
	}
	return all, nil
}

func newStatus(st driver.State, members map[string]driver.Member) Status {
	r := Status{
		Key: st.Key, Now: st.Now, Kind: st.Kind, Limit: st.Limit, Token: st.Token, Term: st.Term,
		Value: st.Value, Sealed: st.Sealed > 0, Waiting: st.Waiting,
	}
	if r.Sealed && st.Kind == driver.KindPeriodic {
		r.Sealed, r.LastTick = false, time.UnixMilli(st.Sealed).UTC()
	}
	owner := func(claim, session string, weight int64) Participant {
		m := members[session]
		return Participant{
			Claim: claim, Session: session, Weight: weight,
			Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta, Seen: m.LastHeartbeat, TTL: m.TTL,
		}
	}
	for _, h := range st.Holders {
		if !h.Until.IsZero() && !st.Now.Before(h.Until) {
			continue // it ended as planned; only the store's record does not know yet, until the key is used again
		}
		o := owner(h.Claim, h.Session, h.Weight)
		o.Token, o.Since, o.Until, o.Yields = h.Token, h.Since, h.Until, h.Yield
		m := members[h.Session]
		if o.Renewed = h.Until.IsZero(); o.Renewed {
			o.Until = m.LastHeartbeat.Add(m.TTL)
			o.Lapsed = m.Expired || !st.Now.Before(o.Until)
		}
		r.Holders = append(r.Holders, o)
	}
	for _, w := range st.WaitersAhead {
		r.Queue = append(r.Queue, owner(w.Claim, w.Session, w.Weight))
	}
	return r
}

// String returns the status as text for people, in several lines, with all times in UTC.
func (st Status) String() string {
	var b strings.Builder
	kind := string(st.Kind)
	if st.Kind == "" {
		kind = "never used"
	}
	fmt.Fprintf(&b, "%s: %s", st.Key, kind)
	switch {
	case st.Sealed:
		fmt.Fprintf(&b, ", done, with a result of %d bytes", len(st.Value))
	case st.Held():
		b.WriteString(", held")
	default:
		b.WriteString(", free")
	}
	if st.Kind == driver.KindSemaphore {
		fmt.Fprintf(&b, ", size %d", st.Limit)
	}
	if st.Term > 0 {
		fmt.Fprintf(&b, ", term %d", st.Term)
	}
	if !st.LastTick.IsZero() {
		fmt.Fprintf(&b, ", last tick %s, with a result of %d bytes", utc(st.LastTick), len(st.Value))
	}
	fmt.Fprintf(&b, ", %d waiting; as of %s by the store's clock\n", st.Waiting, utc(st.Now))
	use := func(o Participant) string {
		if use := engine.Use(st.Kind, o.Weight, st.Limit); use != "" {
			return o.String() + ", " + use
		}
		return o.String()
	}
	for _, h := range st.Holders {
		fmt.Fprintf(&b, "  held by %s, token %d, since %s (for %v), until %s", use(h), h.Token,
			utc(h.Since), st.Now.Sub(h.Since).Round(time.Millisecond), utc(h.Until))
		switch {
		case h.Lapsed:
			b.WriteString(" (lapsed)")
		case h.Renewed:
			fmt.Fprintf(&b, " (in %v, unless renewed)", h.Until.Sub(st.Now).Round(time.Millisecond))
		default:
			fmt.Fprintf(&b, " (in %v)", h.Until.Sub(st.Now).Round(time.Millisecond))
		}
		b.WriteByte('\n')
	}
	for i, w := range st.Queue {
		fmt.Fprintf(&b, "  waiting, position %d: %s\n", i+1, use(w))
	}
	return b.String()
}

// String returns a name of the participant for people.
func (o Participant) String() string {
	return process.Describe(o.Name, o.Host, o.PID, o.Session)
}

func utc(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
