package history

import "time"

// A Type is the type of an [Event].
type Type string

// The types of events. All events of one acquisition, write or fault have the same ID. The names after a colon
// are fields of Event.
const (
	Request  Type = "request"  // a call that requests a hold begins
	Refused  Type = "refused"  // … has returned without a hold: Err
	Granted  Type = "granted"  // … has returned with a hold
	Held     Type = "held"     // the hold still existed at the time Live
	Done     Type = "done"     // a call that releases the hold begins: Live, and Keep if it keeps the key
	Released Type = "released" // … has returned: Err, "lost" if the hold had ended before

	Transfer    Type = "transfer"    // a call that transfers the term begins: Session, and its process, Target
	Transferred Type = "transferred" // … has returned: Err

	Write Type = "write" // a write with a fencing token begins
	Wrote Type = "wrote" // … has returned: Err, "fenced" if it was refused

	Break  Type = "break"  // a call of Break for the key begins
	Fault  Type = "fault"  // a fault begins: What, and Target if it is a process
	Healed Type = "healed" // … ends

	Killed Type = "killed" // the process Target was killed
	Record Type = "record" // a snapshot of the store's record of a key: Holders and Waiting
	Log    Type = "log"    // the tokens of a document's writes, in the server's order: Tokens
)

// An Event is one line of a history.
type Event struct {
	Type    Type          `json:"type"`
	At      time.Duration `json:"at"`
	Process string        `json:"process"`
	ID      int           `json:"id,omitempty"`
	Key     string        `json:"key,omitempty"`

	// Fields of Request. Record uses Limit, too.
	What   string        `json:"what,omitempty"`   // the kind of call, or of fault
	Weight int64         `json:"weight,omitempty"` // the part of Limit that the hold uses
	Limit  int64         `json:"limit,omitempty"`
	Shared bool          `json:"shared,omitempty"` // holds of one session may share a token
	Lease  time.Duration `json:"lease,omitempty"`  // the hold's own lease; 0 if it ends with its session

	// Fields of Granted; Write and Record use Token, too.
	Token int64 `json:"token,omitempty"` // 0 if the hold ended before its token could be read
	Term  int64 `json:"term,omitempty"`

	// Live belongs to Held and Done: the last time at which the hold certainly existed.
	Live time.Duration `json:"live,omitempty"`
	Keep time.Duration `json:"keep,omitempty"`

	Err     string `json:"err,omitempty"`
	Target  string `json:"target,omitempty"`
	Session string `json:"session,omitempty"`

	Holders []Claim  `json:"holders,omitempty"` // in the order of their grants
	Waiting []string `json:"waiting,omitempty"` // IDs of claims, in the order of the queue
	Tokens  []int64  `json:"tokens,omitempty"`
}

// A Claim is a holder in the store's record.
type Claim struct {
	ID     string `json:"id"`
	Token  int64  `json:"token"`
	Weight int64  `json:"weight"`
}

// Values of Err that [Check] understands. If Err has any other value except "", the result of the call is unknown.
const (
	Lost   = "lost"
	Fenced = "fenced"
)
