package core

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// An Instant is a time on a local clock that does not stop while the machine sleeps, counted from any
// moment before the first event.
type Instant time.Duration

// Add returns i + d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns i − o.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

// never is later than any Instant.
const never = Instant(1<<63 - 1)

// An Event is something that has happened: one of the types below.
type Event interface{ event() }

// Acquire is a caller's wish to hold a key, from its own request on until a Deliver or GiveUp.
type Acquire struct {
	Call uint64 // greater than that of every Acquire before
	Key  string
}

// GiveUp says that a caller waits no longer. It is ignored if the caller was served.
type GiveUp struct{ Call uint64 }

// Done says that a holder is done.
type Done struct{ Hold uint64 }

// Revoked says that somebody asks for the claim, by a notice or a heartbeat reply.
type Revoked struct{ Claim, Key string }

// Reply is the answer to a command, or with Lost that there is none: the command may or may not have
// been executed, now or later.
type Reply struct {
	Command uint64
	Lost    bool
	Err     error // an answer of the store that is an error

	Session string    // of a Register: the id that was registered, which no session has had
	Now     time.Time // the store's clock, in replies to Register, Heartbeat and Acquire
	State   driver.State
	Found   bool          // of a Release
	Left    time.Duration // of an Expire: time until the session lapses; 0: it has expired
	Members []driver.Member
	Revoked []driver.Revocation
	Notices []driver.Notice
}

// Noticed is a notice from the listener.
type Noticed struct{ Notice driver.Notice }

// Tick says that the clock has reached [Core.Next].
type Tick struct{}

// Close ends the session. No Acquire may follow.
type Close struct{}

func (Acquire) event() {}
func (GiveUp) event()  {}
func (Done) event()    {}
func (Revoked) event() {}
func (Reply) event()   {}
func (Noticed) event() {}
func (Tick) event()    {}
func (Close) event()   {}

// An Effect is something to do: one of the types below. Effects are done in their order.
type Effect interface{ effect() }

// Send sends a command and answers it with a Reply, at the latest when [Config.Attempt] is over. The
// shell makes a new id for each Register: one that was not answered may have registered its id.
type Send struct {
	ID uint64
	Command
}

// Deliver gives a hold, or an error, to a caller, which gets nothing else.
type Deliver struct {
	Call  uint64
	Hold  uint64 // 0 with Err
	Token int64
	Err   error
}

// End closes Lost of a hold, whose holder is not done.
type End struct {
	Hold  uint64
	Cause error
}

// Notify sends notices, best effort.
type Notify struct{ Notices []driver.Notice }

// Closed says that the session is unregistered, or left to expire.
type Closed struct{}

func (Send) effect()    {}
func (Deliver) effect() {}
func (End) effect()     {}
func (Notify) effect()  {}
func (Closed) effect()  {}

// An Op is what a command does: see [driver.Store].
type Op int

// The ops. Join and Release are edits, and Read reads sessions.
const (
	Register Op = iota
	Heartbeat
	Unregister
	Expire
	Read
	Join
	Release
	Discard
)

func (o Op) String() string {
	return [...]string{"Register", "Heartbeat", "Unregister", "Expire", "Read", "Join", "Release", "Discard"}[o]
}

// A Command is what is sent to the store.
type Command struct {
	Op       Op
	Session  string         // in whose name; of Expire, which session
	Edit     driver.Edit    // of Join and Release
	Claims   []driver.Claim // of Discard
	Sessions []string       // of Read
}
