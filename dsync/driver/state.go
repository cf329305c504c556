package driver

import "time"

// A State is what a [Store] knows about a key at one moment.
type State struct {
	Key   string
	Now   time.Time // the moment of the reading, by the store's clock
	Kind  Kind      // "" if the key has no record
	Limit int64
	Token int64 // the last token granted, or one reserved with it; 0: none
	Term  int64 // for KindElection, the number of grants so far; else 0

	// Value is what the holder has published, or nil. If several holders have published values, Value is from the last
	// of them in Holders. If the key is sealed, Value is the result, and not nil.
	Value []byte `json:"-"`

	// Sealed is the tick up to which the key is sealed, or 0: see [Release].
	Sealed int64

	// Holders are all claims that hold the key, in the order of their grants. A claim whose end has come stays
	// among them until a command drops it.
	Holders []Holder

	// Final, in the reply to an Acquire, means that no copy of that request can make its claim join the queue again. It
	// is false if the store can't tell.
	Final bool

	// Waiting is the number of claims in the queue.
	Waiting int

	// Position is the position of the Acquire's claim in the queue, 1 for the first. It is 0 if the claim is not in the
	// queue, and in the states that Load and Keys return.
	Position int

	// WaitersAhead are the last claims before the Acquire's claim in the queue, up to 8, in queue order. If Position is
	// 0, they are the first claims in the queue. In a state from Load there may be more than 8.
	WaitersAhead []Waiter
}

// Holder returns the holder with the given claim id, and whether there is one.
func (s State) Holder(claim string) (Holder, bool) {
	for _, h := range s.Holders {
		if h.Claim == claim {
			return h, true
		}
	}
	return Holder{}, false
}

// Over reports whether the key is sealed for claims with that tick.
func (s State) Over(tick int64) bool { return s.Sealed > 0 && tick <= s.Sealed }

// A Holder is a granted claim.
type Holder struct {
	Claim   string
	Session string
	Weight  int64
	Token   int64
	Since   time.Time // when the claim was granted, by the store's clock
	Until   time.Time // the fixed end of the hold, by the store's clock; zero: the hold lives with its session
	Yield   bool      // as in [Claim]
}

// Ended reports whether the hold has a fixed end that is not after now.
func (h Holder) Ended(now time.Time) bool { return !h.Until.IsZero() && !now.Before(h.Until) }

// A Waiter is a claim in the queue.
type Waiter struct {
	Claim   string
	Session string
	Weight  int64
	Tick    int64 // as in [Claim]
}

// A Member is the record of a session.
type Member struct {
	ID   string
	Name string        // the identity shown to people, as in dsync.Options
	TTL  time.Duration // whole milliseconds
	Host string
	PID  int
	App  string            // the application's name and version, as in dsync.Options
	Meta map[string]string // free-form, as in dsync.Options

	Settings Settings

	// HostFile identifies the session's file in dsync.Options.HostDir: at most 64 letters, digits, '-' and '_'; "":
	// none.
	HostFile string

	LastHeartbeat time.Time // by the store's clock
	Expired       bool
}

// Settings are the settings of a session, as it registered them. People can use them to compare the processes of a
// fleet. Durations are in whole milliseconds.
type Settings struct {
	Version string // of this library, as the go command names it; "" if unknown

	// Heartbeat, Poll, Margin and Grace are as in dsync.Options, with the defaults filled in. Poll is 0 for the
	// default, which depends on whether the session listens for notices.
	Heartbeat, Poll, Margin, Grace time.Duration
}
