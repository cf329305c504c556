package dsync

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"
)

// A Status is what the store knows of a key at one moment, with who they are that
// hold it and wait for it. All times are the store's, not this host's.
type Status struct {
	Key   string
	Now   time.Time // as of when
	Kind  Kind      // "" if the store has no record of the key
	Limit int64     // what holders may have together: 1 of a mutex, the size of a semaphore
	Token int64     // the last fencing token that the store gave out, or one in its room; 0: none
	Term  int64     // of an election: how many there were; else 0

	// Value is what the leader of an election published, or the result of a [Once]
	// that is done, which is then Sealed.
	Value  []byte
	Sealed bool

	Holders []Owner // in the order of their grants
	Waiting int     // claims in line
	Line    []Owner // the first of these in their order: up to 1,000, from List up to 8
}

// An Owner is somebody who holds a key or waits for it.
type Owner struct {
	Claim   string
	Session string
	Weight  int64 // what it has, or asks for, of the limit

	// Of the session's process, as it was told in [Options]. Zero if the session's
	// record is not there any more.
	Name, Host string
	PID        int
	App        string
	Meta       map[string]string
	Seen       time.Time     // the session's last heartbeat
	TTL        time.Duration // how long after that it lapses

	// Of a holder:
	Token   int64     // as granted; goroutines of its process that the key was handed on to count on from it
	Since   time.Time // the grant
	Until   time.Time // the end of a fixed lease, else when the session lapses unless it sends another heartbeat
	Renewed bool      // it is the session that Until is of
	Lapsed  bool      // Until has passed: it does not count, and is dropped when somebody asks for the key
	Yields  bool      // it may be kept without being in use, until others wait
}

// Held reports whether somebody holds the key whose time is not over.
func (st Status) Held() bool {
	for _, h := range st.Holders {
		if !h.Lapsed {
			return true
		}
	}
	return false
}

// Status returns what the store knows of key. Of a key that was never used, or not
// for long, all but Key and Now is zero. Errors are those of [Session.Load].
func (s *Session) Status(ctx context.Context, key string) (Status, error) {
	st, err := s.Load(ctx, key)
	if err == nil {
		var all []Status
		if all, err = s.statuses(ctx, []State{st}); err == nil {
			return all[0], nil
		}
	}
	return Status{}, fmt.Errorf("dsync: status of %q: %w", key, err)
}

// List returns the status of every key that begins with prefix, all with "", in
// the order of their bytes. It reads them while they are iterated over, a hundred
// at a time, each with one moment of its own. An error, ctx's, [ErrClosed] or the
// store's, comes last.
func (s *Session) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return s.ListAfter(ctx, prefix, "")
}

// ListAfter is [Session.List] of the keys that come after the key after: for who
// shows them page by page.
func (s *Session) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[Status, error] {
	const page = 100
	return func(yield func(Status, error) bool) {
		for after := after; ; {
			states, err := await(ctx, s, call(s, "Keys", func(ctx context.Context) ([]State, error) {
				return s.store.Keys(ctx, prefix, after, page)
			}))
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

// statuses adds to the states who they are.
func (s *Session) statuses(ctx context.Context, states []State) ([]Status, error) {
	members := make(map[string]Member)
	var ids []string
	need := func(id string) {
		if _, ok := members[id]; !ok {
			members[id] = Member{}
			ids = append(ids, id)
		}
	}
	for _, st := range states {
		for _, h := range st.Holders {
			need(h.Session)
		}
		for _, w := range st.Ahead {
			need(w.Session)
		}
	}
	if len(ids) > 0 { // without ids it would be all
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

func newStatus(st State, members map[string]Member) Status {
	r := Status{
		Key: st.Key, Now: st.Now, Kind: st.Kind, Limit: st.Limit, Token: st.Token, Term: st.Term,
		Value: st.Value, Sealed: st.Sealed, Waiting: st.Waiting,
	}
	owner := func(claim, session string, weight int64) Owner {
		m := members[session]
		return Owner{
			Claim: claim, Session: session, Weight: weight,
			Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta, Seen: m.At, TTL: m.TTL,
		}
	}
	for _, h := range st.Holders {
		o := owner(h.Claim, h.Session, h.Weight)
		o.Token, o.Since, o.Until, o.Yields = h.Token, h.Since, h.Until, h.Yield
		m := members[h.Session]
		if o.Renewed = h.Until.IsZero(); o.Renewed {
			o.Until = m.At.Add(m.TTL)
		}
		o.Lapsed = !st.Now.Before(o.Until) || o.Renewed && m.Dead
		r.Holders = append(r.Holders, o)
	}
	for _, w := range st.Ahead {
		r.Line = append(r.Line, owner(w.Claim, w.Session, w.Weight))
	}
	return r
}

// String returns the status for people to read, in several lines, with all times
// in UTC.
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
	if st.Kind == KindSemaphore {
		fmt.Fprintf(&b, ", size %d", st.Limit)
	}
	if st.Term > 0 {
		fmt.Fprintf(&b, ", term %d", st.Term)
	}
	fmt.Fprintf(&b, ", %d waiting; as of %s by the store's clock\n", st.Waiting, utc(st.Now))
	use := func(o Owner) string {
		if use := st.Use(o); use != "" {
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
	for i, w := range st.Line {
		fmt.Fprintf(&b, "  waiting, place %d: %s\n", i+1, use(w))
	}
	return b.String()
}

// Use says for people what o, one of its Holders or its Line, does with the key or
// waits to do: "reads" or "writes" with an RWMutex, "2 of 5" with a semaphore of
// size 5. It is "" of the other kinds, which one holder has alone.
func (st Status) Use(o Owner) string {
	switch {
	case st.Kind == KindSemaphore:
		return fmt.Sprintf("%d of %d", o.Weight, st.Limit)
	case st.Kind != KindRWMutex:
		return ""
	case o.Weight == st.Limit:
		return "writes"
	}
	return "reads"
}

// String names the owner for people to read.
func (o Owner) String() string {
	switch {
	case o.Name != "" && o.Name != o.Host:
		return fmt.Sprintf("%s (process %d on %s)", o.Name, o.PID, o.Host)
	case o.PID != 0 || o.Host != "":
		return fmt.Sprintf("process %d on %s", o.PID, o.Host)
	}
	return o.Session
}

func utc(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
