package dsync

import "time"

// A State is what a [Store] knows of a key at one moment.
type State struct {
	Key   string
	Now   time.Time // the store's clock at that moment, as of which all below is true
	Kind  Kind      // "" for a key without a record
	Limit int64
	Token int64 // the last token granted, or one in its room; 0 if none. Of a sealed key: that of the claim that sealed it
	Term  int64 // of KindElection: how many grants there were; else 0

	// Value is what the holder published, nil if it did not. It is that of the
	// present holder: with a holder its value goes. Of a sealed key it is the
	// result, not nil.
	Value  []byte
	Sealed bool

	// Holders are all claims that hold the key, in the order of their grants.
	// Those whose end has come are among them until a command drops them.
	Holders []Holder

	// Waiting is the number of claims in line.
	Waiting int

	// Place is the caller's own place in line, 1 for the first, 0 if the caller
	// is not in line or the state was not asked for with a claim.
	Place int

	// Ahead are up to 8 claims that are nearest ahead of the caller in line (of
	// the whole line's head where Place is 0), in the order of the line. From Load
	// they are the first 1,000 of the line.
	Ahead []Waiter
}

// Holder returns the holder with the claim id, and whether there is one.
func (s State) Holder(claim string) (Holder, bool) {
	for _, h := range s.Holders {
		if h.Claim == claim {
			return h, true
		}
	}
	return Holder{}, false
}

// fits reports whether c could be granted at once: there is room for it, and nobody
// waits.
func (s *State) fits(c *Claim) bool {
	if s.Waiting > 0 {
		return false
	}
	used := c.Weight
	for _, h := range s.Holders {
		used += h.Weight
	}
	return len(s.Holders) == 0 || used <= s.Limit
}

// A Holder is a granted claim.
type Holder struct {
	Claim   string
	Session string
	Weight  int64
	Token   int64
	Since   time.Time // the store's clock at the grant
	Until   time.Time // the end of a fixed lease by the store's clock; zero: lives with its session
	Yield   bool      // as in [Claim]
}

// A Waiter is a claim in line.
type Waiter struct {
	Claim   string
	Session string
	Weight  int64
}

// A Member is the record of a session.
type Member struct {
	ID   string
	Name string        // the identity shown to people, as given in Options
	TTL  time.Duration // whole milliseconds
	Host string
	PID  int
	App  string            // the application's version or name, as given in Options
	Meta map[string]string // free-form, as given in Options

	At   time.Time // the store's clock at the last heartbeat
	Dead bool
}

// An Event is something that a watch reports to the session it concerns.
type Event struct {
	Type EventType

	Key   string // of all but EventReady
	Claim string // of all but EventReady and EventChange

	// Of EventGrant:
	Token int64
	Term  int64 // of KindElection, else 0
}

// An EventType is the type of an [Event].
type EventType int

const (
	// EventReady: the watch sees whatever is committed from now on. Who waits
	// must ask once more, as a grant may have come before.
	EventReady EventType = iota + 1

	// EventGrant: the claim was granted with the token, and that is committed.
	EventGrant

	// EventWake: the claim should ask once more, for what it waits for has changed:
	// the holder set an end, of which the first in line is told, or the key was
	// sealed, of which the first 1,000 in line are.
	EventWake

	// EventYield: the claim holds, has Yield, and others are in line. It comes at
	// least when the first of them joins, and when the claim is granted while
	// others are. Where more than 1,000 hold, not all of them need to be told.
	EventYield

	// EventRevoke: a revocation of the claim stands for the session.
	EventRevoke

	// EventChange: the record of a key that is watched has changed: who holds it,
	// what was published, or who is in line.
	EventChange
)
