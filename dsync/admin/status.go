package admin

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/process"
	"github.com/leasehold-go/leasehold/internal/reading"
	"github.com/leasehold-go/leasehold/internal/rfc3339"
)

// A Status is what the store knows about a key at one moment: its state, its holders and its waiters. All times are by
// the store's clock, not this host's.
type Status struct {
	Key   string
	Now   time.Time   // the time of the reading
	Kind  driver.Kind // "" if the store has no record of the key
	Limit int64       // how much all holders together may hold: 1 for a mutex, the size for a semaphore
	Token int64       // the last fencing token that the store granted, or one that was reserved with it for hand-offs; 0: none
	Term  int64       // the number of terms of an election so far; 0 for other kinds

	// Value is the value that the leader of an election has published, the result of a [dsync.Once] that is done (see
	// Sealed), or a [dsync.Periodic]'s result for its LastTick.
	Value    []byte
	Sealed   bool
	LastTick time.Time // the last tick of a Periodic that has succeeded; zero: none has

	Holders []Participant // in the order of their grants, without holds whose fixed end has passed
	Waiting int           // number of waiters
	Queue   []Participant // the first waiters in FIFO order: up to 1,000 from Status, up to 8 from List
}

// A Participant is a holder of a key, or a waiter.
type Participant struct {
	Claim   string
	Session string
	Weight  int64 // how much of the limit it holds or requests

	// The session's process, as described in [dsync.Options]. Zero if the session's record was
	// deleted.
	Name, Host string
	PID        int
	App        string
	Meta       map[string]string
	Seen       time.Time     // the session's last heartbeat
	TTL        time.Duration // how long after its last heartbeat the session may expire

	// For holders only:
	Token   int64     // as granted; each hand-off within the holder's process adds 1
	Since   time.Time // when it was granted
	Until   time.Time // when the hold ends: at its fixed end or, without one, when the session lapses if it sends no other heartbeat
	Renewed bool      // heartbeats move Until; false for a fixed end
	Lapsed  bool      // its session sent no heartbeat before Until: the hold no longer counts, and the next request for the key removes it
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

// Status returns what the store knows about key. If the store has no record of the key, only Key and Now are set. The
// error is ctx's, [dsync.ErrClosed], [dsync.CheckKey]'s or the store's.
func (i *Inspector) Status(ctx context.Context, key string) (Status, error) {
	r, err := reading.Read(ctx, i.s, key)
	if err != nil {
		return Status{}, fmt.Errorf("dsync: status of %q: %w", key, err)
	}
	return newStatus(r), nil
}

// List returns the status of every key that begins with prefix, in byte order; "" means all keys. It reads the keys
// during the iteration, first a hundred at a time and later up to a thousand, so the statuses are from different
// moments. If ctx ends, the session is closed or the store fails, the error comes last.
func (i *Inspector) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return i.ListAfter(ctx, prefix, "")
}

// ListAfter is like [Inspector.List], but the list begins with the first key that is greater, in byte order, than the
// argument after. It is for showing keys page by page.
func (i *Inspector) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		for r, err := range reading.All(ctx, i.s, prefix, after) {
			if err != nil {
				yield(Status{}, listError(prefix, err))
				return
			}
			if !yield(newStatus(r), nil) {
				return
			}
		}
	}
}

func listError(prefix string, err error) error {
	if err != nil {
		return fmt.Errorf("dsync: list %q: %w", prefix, err)
	}
	return nil
}

func newStatus(r reading.Reading) Status {
	st := Status{
		Key: r.Key, Now: r.Now, Kind: r.Kind, Limit: r.Limit, Token: r.Token, Term: r.Term,
		Value: r.Value, Sealed: r.Sealed > 0, Waiting: r.Waiting,
	}
	if st.Sealed && r.Kind == driver.KindPeriodic {
		st.Sealed, st.LastTick = false, time.UnixMilli(r.Sealed).UTC()
	}
	for _, h := range r.Holders {
		if h.Ended(r.Now) {
			continue // the hold has ended as planned; the store's record contains it until the key is used again
		}
		p := newParticipant(h.Claim, h.Session, h.Weight, r.Members[h.Session])
		p.Token, p.Since, p.Renewed, p.Yields = h.Token, h.Since, h.Until.IsZero(), h.Yield
		p.Until, p.Lapsed = r.End(h)
		st.Holders = append(st.Holders, p)
	}
	for _, w := range r.WaitersAhead {
		st.Queue = append(st.Queue, newParticipant(w.Claim, w.Session, w.Weight, r.Members[w.Session]))
	}
	return st
}

// String returns the status as text for people, on several lines, with all times in UTC.
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
		if use := reading.Use(st.Kind, o.Weight, st.Limit); use != "" {
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

// String returns a readable name of the participant.
func (o Participant) String() string {
	return process.Describe(o.Name, o.Host, o.PID, o.Session)
}

func utc(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return rfc3339.Millis(t)
}
