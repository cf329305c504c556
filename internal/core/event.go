package core

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// An Event is something that has happened: one of the types below.
type Event interface{ event() }

// A Want describes what a caller wants to hold, and how.
type Want struct {
	Key           string
	Kind          driver.Kind
	Weight, Limit int64         // both 0: a Break
	Tick          int64         // >0: as in driver.Claim
	Lease         time.Duration // >0: how long the lease lasts unless it is extended
	Shares        bool          // readers of this process may share the hold
	First         bool          // goes ahead of all waiters, and holders are asked to give up the key; never with Try
	Try           bool          // does not wait for others
	Auto          bool          // the hold's slot in this process is freed when the grace is over, even if the holder does nothing
	Value         string        `json:"-"` // with Auto: a value to publish with the grant
}

// exclusive reports whether w takes all of the key. A semaphore is never exclusive, because its size can grow. When a
// claim is handed off, others may already hold the added units with a greater token, or may have waited longer in the
// store's queue.
func (w *Want) exclusive() bool { return w.Weight == w.Limit && w.Kind != driver.KindSemaphore }

// A Call is one caller's request for a key. It gets one [Deliver]. If the Deliver has no Err, Deliver.Hold is the Call
// that represents the hold: this Call, or the Call of the reader whose hold it shares. A Call must not be changed.
type Call struct {
	Want
	Call   uint64 // greater than that of every earlier Call
	Caller any    `json:"-"` // for package engine; the Core does not use it
}

// GiveUp reports that a caller has given up. If the caller has not been served, it gets a Deliver with ErrGivenUp.
type GiveUp struct {
	Call *Call `json:"-"`
}

// Done reports that a holder is done. If several readers share a hold, there is a Done for each.
type Done struct {
	Claim   uint64
	Hold    *Call           `json:"-"`
	Release *driver.Release // Keep, or Seal and Result; nil: neither
	Early   bool            // the store may answer the release before it is committed
}

// WindDown ends a hold at its holder's request. The hold is released when the holder is done or the grace is over.
type WindDown struct {
	Claim uint64
	Hold  *Call `json:"-"`
	Cause error `json:"-"`
}

// Progress reports that a holder makes progress. The hold ends unless the holder reports progress again within Limit. A
// Limit of 0 removes the limit.
type Progress struct {
	Claim uint64
	Hold  *Call `json:"-"`
	Limit time.Duration
}

// ReleaseBy sets how a hold is released when its holder is done: the store grants the key to Successor, or keeps it
// held for Keep from now.
type ReleaseBy struct {
	Claim   uint64
	Release driver.Release
}

// Revoked reports that somebody in this process wants the claim to be given up.
type Revoked struct{ Claim, Key string }

// PublishLater has a value that a holder publishes without waiting for it.
type PublishLater struct {
	Claim uint64
	Seq   int64
	Value []byte `json:"-"`
}

// Need reports that package engine needs the session registered. The answer is a [Registered], unless the session is
// registered or closing.
type Need struct{}

// Observe adds N, which is 1 or -1, to the number of a key's observers.
type Observe struct {
	Key string
	N   int
}

// Ask requests a command for a caller. It gets one [Answer], unless the session is closed first.
type Ask struct {
	Command              // an Extend needs only Op
	Claim   uint64       // for Extend and Publish: number of the holder's claim
	Answer  func(*Reply) `json:"-"` // for package engine; the Core does not use it
}

// Died reports that another session's process has ended, as seen by the kernel on which both processes run.
type Died struct{ Session string }

// Reply is the answer to a command. Lost means that no answer came: the command may have been executed, or may still be
// executed later.
type Reply struct {
	Command uint64
	Lost    bool
	Err     error `json:"-"` // with Lost: why there is no answer; otherwise the store's error

	Session   string    // for Register: the id that was registered, which no session has had before
	Lanes     int       // for Register: how many commands the store can take at once; 0: Config.Lanes
	Now       time.Time // the store's clock, in replies to Register, Heartbeat, Read and Acquire
	State     driver.State
	States    []driver.State // for Keys
	Found     bool           // for Release and Forget
	Applied   driver.OpTime  // for Release, as in driver.Edited
	Holder    driver.Holder
	Left      time.Duration // for Expire: time until the session lapses; 0: it has expired
	Members   []driver.Member
	Revoked   []driver.Revocation
	Committed driver.OpTime // for Heartbeat, as in driver.HeartbeatReply
	Swept     driver.SweepState
	Notices   []driver.Notice
}

// Noticed is a notice from the listener with the given number.
type Noticed struct {
	Listener uint64
	Notice   driver.Notice
}

// ListenerBroken reports that the listener with the given number has ended. Unsupported means that the store can't
// notify.
type ListenerBroken struct {
	Listener    uint64
	Unsupported bool
}

// Tick reports that the clock has reached [Core.Next].
type Tick struct{}

// Close ends the session. Each hold is released when its holder is done or the grace is over.
type Close struct {
	Releases int // how many commands, mostly Releases, the store can take at once; 0: as many as before
}

// Hurry makes Close stop waiting for holders: Close leaves their claims in the store for the rest of their grace.
type Hurry struct{}

func (*Call) event()          {}
func (GiveUp) event()         {}
func (*Done) event()          {}
func (WindDown) event()       {}
func (Progress) event()       {}
func (ReleaseBy) event()      {}
func (Revoked) event()        {}
func (PublishLater) event()   {}
func (Need) event()           {}
func (Observe) event()        {}
func (*Ask) event()           {}
func (Died) event()           {}
func (*Reply) event()         {}
func (Noticed) event()        {}
func (ListenerBroken) event() {}
func (Tick) event()           {}
func (Close) event()          {}
func (Hurry) event()          {}

// An Effect is something to do: one of the types below. Effects must be carried out in order.
type Effect interface{ effect() }

// Send sends a command. Package engine must answer it with a Reply within [Config.Attempt]. For each Register, package
// engine makes a new id, unless it finds that an earlier, unanswered Register has succeeded.
type Send struct {
	ID uint64
	*Command
	Asked bool // for an [Ask], so a caller learns the answer
}

// Deliver gives a hold, or an error, to a caller. A caller gets one Deliver.
type Deliver struct {
	To    *Call
	Hold  *Call // To, or the reader whose hold it shares
	Claim uint64
	// Request is the claim as stored, with the token of its grant.
	Request *driver.Claim
	Token   int64
	Term    int64
	Until   time.Time // the end of a lease, by the store's clock
	Granted Instant   // when the claim's grant was learned
	Local   bool      // handed off, or shared, without a command
	Err     error     // why the caller gets no hold
}

// End closes the Lost channel of a hold whose holder is not done. Asked means that the holder or somebody else wanted
// the hold to end, or that the lease is over.
type End struct {
	Hold  *Call
	Cause error
	Asked bool
}

// Freed reports that nothing is left to wait for at the end of a hold: the hold was handed off or lost, or the store
// has answered or refused its release. Passed is nil if the hold was certainly released as ReleaseBy requested. It is
// driver.ErrNotWaiting if the store reported that the successor was not waiting. Otherwise it is an error that matches
// ErrLost.
type Freed struct {
	Hold   *Call
	Err    error
	Passed error
}

// Answer is the answer to an Ask. If the lease of an Extend ended before a lane was free, the error is
// [driver.ErrNotHeld].
type Answer struct {
	To    *Ask
	Reply *Reply
}

// Listen opens a listener that replaces the previous one.
type Listen struct {
	Number  uint64
	Session string
	Keys    []string
}

// StopListening closes the listener.
type StopListening struct{}

// Changed tells the observers of the key that it may have changed.
type Changed struct{ Key string }

// Unlisted reports that the session observes more keys than its record has room for. Only the given number of them is
// listed.
type Unlisted struct{ Listed, Unlisted int }

// Registered is the result of a registration.
type Registered struct {
	Session string
	Err     error
}

// SessionLost reports that the session is over, and how many holds end with it. It is also sent for a closed session.
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

// Jumped reports that the store's clock has jumped by at least By.
type Jumped struct{ By time.Duration }

// Expired reports that a command of this session has expired another session.
type Expired struct{ Session string }

// Orphan reports that the store has a claim of this session that this process doesn't know, and that the Core is
// releasing it.
type Orphan struct{ Claim, Key string }

// Closed reports that the session is unregistered, or left to expire.
type Closed struct{ Err error }

func (*Send) effect()         {}
func (*Deliver) effect()      {}
func (*End) effect()          {}
func (*Freed) effect()        {}
func (*Listen) effect()       {}
func (Answer) effect()        {}
func (StopListening) effect() {}
func (Changed) effect()       {}
func (Unlisted) effect()      {}
func (Registered) effect()    {}
func (SessionLost) effect()   {}
func (Beat) effect()          {}
func (Jumped) effect()        {}
func (Expired) effect()       {}
func (Orphan) effect()        {}
func (Closed) effect()        {}

// An Op is the kind of a command: see [driver.Store].
type Op int

// The ops. Acquire, Release, Extend, Publish, Forget and Resize are edits. Read reads sessions. Announce is Observe, with
// the keys that the session observes.
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
	Publish
	Announce
	Forget
	Resize
)

func (o Op) String() string {
	return [...]string{"Register", "Heartbeat", "Unregister", "Expire", "Read", "Load", "Keys", "Revoke", "Acquire", "Release", "Extend", "Discard", "Sweep", "Notify", "Publish", "Observe", "Forget", "Resize"}[o]
}

// A Command is a command to the store.
type Command struct {
	Op       Op
	Session  string              // the session that sends it, if the Core itself does; for Expire and Revoke: the target session
	Edit     driver.Edit         // for edits
	Claims   []driver.Claim      // for Discard
	Sessions driver.SessionQuery // for Read
	Died     bool                // for Expire: the process has ended, so the session need not have lapsed
	Key      string              // for Load
	Waiters  int                 // for Load: how many waiters to read; 0: 1,000
	Keys     driver.KeyQuery     // for Keys
	Observed []string            // for Announce
	Seq      int64               // for Announce
	Revoked  []driver.Revocation // for Heartbeat: revocations whose claims were given up; for Revoke: the revocation to record
	Last     driver.SweepState   // for Sweep
	Notices  []driver.Notice     // for Notify
}
