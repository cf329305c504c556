package history

import "time"

// A Type says what an [Event] tells.
type Type string

// The types of events. ID ties those of one acquisition, write or fault together.
const (
	Request  Type = "request"  // a call that requests a hold begins
	Refused  Type = "refused"  // … has returned without one: Err
	Granted  Type = "granted"  // … has returned with one
	Held     Type = "held"     // Lost was found open: Live is when
	Done     Type = "done"     // the call that releases begins: Live, and Keep if it is to be kept
	Released Type = "released" // … has returned: Err, "lost" if the hold had ended before

	Transfer    Type = "transfer"    // the release is to hand over to the process Target and its Session
	Transferred Type = "transferred" // … has returned: Err

	Write Type = "write" // a write with a fencing token begins
	Wrote Type = "wrote" // … has returned: Err, "fenced" if it was refused

	Break  Type = "break"  // somebody is going to break the key
	Fault  Type = "fault"  // a fault begins: What, and Target if it is a process
	Healed Type = "healed" // … ends

	Killed Type = "killed" // the process Target was killed
	Record Type = "record" // the store's record of a key: Holders and Waiting
	Log    Type = "log"    // tokens of a document's writes in the order of the server: Tokens
)

// An Event is one line of a history.
type Event struct {
	Type    Type          `json:"type"`
	At      time.Duration `json:"at"`
	Process string        `json:"process"`
	ID      int           `json:"id,omitempty"`
	Key     string        `json:"key,omitempty"`

	// Of Request; Limit also of Record.
	What   string        `json:"what,omitempty"`   // the call, or the kind of a fault
	Weight int64         `json:"weight,omitempty"` // what it takes of Limit
	Limit  int64         `json:"limit,omitempty"`
	Shared bool          `json:"shared,omitempty"` // holds of one session may have one token
	Lease  time.Duration `json:"lease,omitempty"`  // its own; 0: it lives with its session

	// Of Granted, Write and Record.
	Token int64 `json:"token,omitempty"` // 0: the hold was over before its token could be read
	Term  int64 `json:"term,omitempty"`

	// Of Held and Done: the last moment at which the hold certainly went on.
	Live time.Duration `json:"live,omitempty"`
	Keep time.Duration `json:"keep,omitempty"`

	Err     string `json:"err,omitempty"`
	Target  string `json:"target,omitempty"`
	Session string `json:"session,omitempty"`

	Holders []Claim  `json:"holders,omitempty"` // in the order of their grants
	Waiting []string `json:"waiting,omitempty"` // ids of claims, the first in the queue first
	Tokens  []int64  `json:"tokens,omitempty"`
}

// A Claim is a holder in the store's record.
type Claim struct {
	ID     string `json:"id"`
	Token  int64  `json:"token"`
	Weight int64  `json:"weight"`
}

// Values of Err that mean something to [Check]. Any other, but "", is an error of
// which nothing is known.
const (
	Lost   = "lost"
	Fenced = "fenced"
)
