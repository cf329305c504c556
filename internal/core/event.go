package core

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// An Event is something that has happened: one of the types below.
type Event interface{ event() }

// A Want says what a caller wants to hold, and how.
type Want struct {
	Key           string
	Kind          driver.Kind
	Weight, Limit int64
	Tick          int64         // >0: as in driver.Claim
	Lease         time.Duration // >0: for that long, unless extended
	Shares        bool          // readers of this process may share the hold
	First         bool          // goes ahead of all waiters, and holders are asked to give up the key; never with Try
	Try           bool          // does not wait for others
	Auto          bool          // its slot here is freed when the grace is over, even if its holder does nothing
	Value         string        `json:"-"` // with Auto: is published by the grant
}

// exclusive reports whether w takes all of the key. That is never certain for a semaphore: its size can
// grow, and by the time of a hand-off others may hold a part, with a greater token, or may be waiting in
// the store's queue, where they came first.
func (w *Want) exclusive() bool { return w.Weight == w.Limit && w.Kind != driver.KindSemaphore }

// A Call is one caller's wish to hold a key. It gets one [Deliver]. Afterwards it stands for the hold.
// It must not be changed.
type Call struct {
	Want
	Call   uint64 // greater than that of every Acquire before
	Caller any    `json:"-"` // for the shell
}

// GiveUp says that a caller waits no longer. If it was not served, it gets a Deliver with ErrGivenUp.
type GiveUp struct {
	Call *Call `json:"-"`
}

// Done says that a holder is done. With several readers that share a hold, each says so.
type Done struct {
	Claim   uint64
	Hold    *Call           `json:"-"`
	Release *driver.Release // Keep, or Seal and Result; nil: neither
	Early   bool            // the release may be answered before it is committed
}

// WindDown ends a hold by request of its holder: it is released when the holder is done or the grace over.
type WindDown struct {
	Claim uint64
	Hold  *Call `json:"-"`
	Cause error `json:"-"`
}

// Progress says that a holder makes progress. Unless it says so again within Limit, its hold ends; a Limit of 0
// is none.
type Progress struct {
	Claim uint64
	Hold  *Call `json:"-"`
	Limit time.Duration
}

// ReleaseBy says how a hold is to be released when its holder is done: to a Successor, or kept for Keep from now.
type ReleaseBy struct {
	Claim   uint64
	Release driver.Release
}

// Extending says that a command is sent that extends a lease.
type Extending struct{ Claim uint64 }

// Extended is the store's answer to that command, which was sent at Sent. One that has no answer gets none.
type Extended struct {
	Claim uint64
	Sent  Instant
	Until time.Time
	Err   error `json:"-"`
}

// Revoked says that somebody in this process asks for the claim.
type Revoked struct{ Claim, Key string }

// Need says that the shell needs the session registered. It is answered by a [Registered].
type Need struct{}

// Observe adds N, 1 or -1, to the observers of a key.
type Observe struct {
	Key string
	N   int
}

// Ask is a command of the shell's, which waits for a lane as all commands do.
type Ask struct {
	Do any `json:"-"`
}

// Met is the record of another session, which the shell has read to show it.
type Met struct{ Member driver.Member }

// Seen is the state of a key, which the shell has read for others, by a request that was sent at Since.
type Seen struct {
	State driver.State
	Since Instant
}

// NotHeld says that the store has refused a command of a holder's with [driver.ErrNotHeld].
type NotHeld struct{ Claim uint64 }

// Died says that the process of another session has ended, by the word of the kernel that both run on.
type Died struct{ Session string }

// NoticesDue are notices that an Ask has returned.
type NoticesDue struct{ Notices []driver.Notice }

// Reply is the answer to a command, or with Lost that there is none: the command may or may not have
// been executed, now or later.
type Reply struct {
	Command uint64
	Lost    bool
	Err     error `json:"-"` // with Lost why; else an answer of the store that is an error

	Session   string    // of a Register: the id that was registered, which no session has had
	Now       time.Time // the store's clock, in replies to Register, Heartbeat, Read and Acquire
	State     driver.State
	States    []driver.State // of Keys
	Found     bool           // of a Release
	Applied   driver.OpTime  // of a Release, as in driver.Edited
	Holder    driver.Holder
	Left      time.Duration // of an Expire: time until the session lapses; 0: it has expired
	Members   []driver.Member
	Revoked   []driver.Revocation
	Committed driver.OpTime // of a Heartbeat, as in driver.HeartbeatReply
	Swept     driver.SweepState
	Notices   []driver.Notice
}

// Noticed is a notice from the listener with that number.
type Noticed struct {
	Listener uint64
	Notice   driver.Notice
}

// ListenerBroken says that the listener with that number has ended. With Unsupported the store can't notify.
type ListenerBroken struct {
	Listener    uint64
	Unsupported bool
}

// Tick says that the clock has reached [Core.Next].
type Tick struct{}

// Close ends the session. What is held is released when its holder is done or the grace is over.
type Close struct{}

// Hurry says that Close no longer waits for holders: their claims are left in the store for the rest of
// their grace.
type Hurry struct{}

func (*Call) event()          {}
func (GiveUp) event()         {}
func (*Done) event()          {}
func (WindDown) event()       {}
func (Progress) event()       {}
func (ReleaseBy) event()      {}
func (Extending) event()      {}
func (Extended) event()       {}
func (Revoked) event()        {}
func (Need) event()           {}
func (Observe) event()        {}
func (*Ask) event()           {}
func (Met) event()            {}
func (*Seen) event()          {}
func (NotHeld) event()        {}
func (Died) event()           {}
func (NoticesDue) event()     {}
func (*Reply) event()         {}
func (Noticed) event()        {}
func (ListenerBroken) event() {}
func (Tick) event()           {}
func (Close) event()          {}
func (Hurry) event()          {}

// An Effect is something to do: one of the types below. Effects are done in their order.
type Effect interface{ effect() }

// Send sends a command and answers it with a Reply, at the latest when [Config.Attempt] is over. The
// shell makes a new id for each Register, unless one that was not answered has registered its id.
type Send struct {
	ID uint64
	*Command
}

// Deliver gives a hold, or an error, to a caller, which gets nothing else.
type Deliver struct {
	To    *Call
	Hold  *Call // To, or the reader whose hold it shares
	Claim uint64
	// Request is the claim as the store has it, with the token of its grant.
	Request *driver.Claim
	Token   int64
	Term    int64
	Until   time.Time // the end of a lease, by the store's clock
	Granted Instant   // when the claim's grant was learned
	Local   bool      // handed off, or shared, without a command
	Err     error     // instead of a hold
}

// End closes Lost of a hold, whose holder is not done. With Asked somebody wanted it to end: its holder or others
// asked for the key, or its lease is over.
type End struct {
	Hold  *Call
	Cause error
	Asked bool
}

// Freed says that nothing is left to wait for after a hold: it was handed off, the store has answered its
// release, or refused it, or it was lost. Passed is nil if the release was surely done as ReleaseBy said,
// driver.ErrNotWaiting if the store said that the successor does not wait, and otherwise an error that is ErrLost.
type Freed struct {
	Hold   *Call
	Err    error
	Passed error
}

// Listen opens a listener in place of any before.
type Listen struct {
	Number  uint64
	Session string
	Keys    []string
}

// StopListening closes the listener.
type StopListening struct{}

// Changed says that the key may have changed, for those who observe it.
type Changed struct{ Key string }

// Registered is the result of a registration.
type Registered struct {
	Session string
	Err     error
}

// SessionLost says that the session is over, and how many holds end with it. A closed session is lost too.
type SessionLost struct {
	Session string
	Holds   int
	Cause   error
}

// Beat is the result of a heartbeat.
type Beat struct {
	Took, Left time.Duration
	Err        error
}

// Jumped says by how much the store's clock has certainly jumped.
type Jumped struct{ By time.Duration }

// Expired says that another session has expired by this one's command.
type Expired struct{ Session string }

// Orphan says that a claim of the session is released that nobody here knows.
type Orphan struct{ Claim, Key string }

// Closed says that the session is unregistered, or left to expire.
type Closed struct{ Err error }

func (*Send) effect()         {}
func (*Deliver) effect()      {}
func (*End) effect()          {}
func (*Freed) effect()        {}
func (*Listen) effect()       {}
func (StopListening) effect() {}
func (Changed) effect()       {}
func (Registered) effect()    {}
func (SessionLost) effect()   {}
func (Beat) effect()          {}
func (Jumped) effect()        {}
func (Expired) effect()       {}
func (Orphan) effect()        {}
func (Closed) effect()        {}

// An Op is what a command does: see [driver.Store].
type Op int

// The ops. Acquire, Release and Extend are edits; Read reads sessions, Keys what the session holds of some keys, and
// Asked is an [Ask].
const (
	Register Op = iota
	Heartbeat
	Unregister
	Expire
	Read
	Load
	Keys
	Revoke
	Acquire
	Release
	Extend
	Discard
	Sweep
	Notify
	Asked
)

func (o Op) String() string {
	return [...]string{"Register", "Heartbeat", "Unregister", "Expire", "Read", "Load", "Keys", "Revoke", "Acquire", "Release", "Extend", "Discard", "Sweep", "Notify", "Asked"}[o]
}

// A Command is what is sent to the store.
type Command struct {
	Op       Op
	Session  string              // in whose name; of Expire and Revoke, which session
	Edit     driver.Edit         // of Acquire, Release and Extend
	Claims   []driver.Claim      // of Discard
	Sessions []string            // of Read
	Brief    bool                // of Read: only how long they live
	Died     bool                // of Expire: its process has ended, so it need not have lapsed
	Key      string              // of Load
	Keys     []string            // of Keys
	Revoked  []driver.Revocation // of Heartbeat: those that are given up; of Revoke: the one to make
	Last     driver.SweepState   // of Sweep
	Notices  []driver.Notice     // of Notify
	Ask      *Ask
}
