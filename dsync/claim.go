package dsync

import "time"

// A Kind says what a key is used as. One key used as two kinds at a time is an
// error that names both: [MismatchError].
type Kind string

const (
	// KindMutex is the kind of keys of [Mutex] and [Lease]: an exclusive hold.
	KindMutex Kind = "mutex"

	// KindRWMutex is the kind of keys of [RWMutex]: writers have all of the key,
	// readers a part.
	KindRWMutex Kind = "rwmutex"

	// KindSemaphore is the kind of keys of [Semaphore].
	KindSemaphore Kind = "semaphore"

	// KindOnce is the kind of keys of [Once]: an exclusive hold until the key is
	// sealed.
	KindOnce Kind = "once"

	// KindElection is the kind of keys of package leader: an exclusive hold whose
	// grants are counted, as terms.
	KindElection Kind = "election"
)

// A Claim is one attempt to hold a key, and what a [Store] grants.
type Claim struct {
	Key string

	// ID is the session's id, a dot and a counter. It is new for every attempt
	// to hold and never used again, neither with another key nor as a try once
	// it was a wait.
	ID string

	// Session is the id of the session that the claim lives with: letters,
	// digits, '-' and '_'.
	Session string

	Kind Kind

	// Weight is what the claim takes of the key's Limit: 1 ≤ Weight ≤ Limit.
	Weight, Limit int64

	// Lease, if positive, ends the hold that long after its grant by the store's
	// clock, unless extended, whatever becomes of its session; the wait for it
	// lives with the session all the same. Zero: the hold lives with its session.
	Lease time.Duration

	// Yield has the session told, by [EventYield], when others stand in line behind
	// the hold: the session may keep it for longer than it is in use if nobody
	// does.
	Yield bool

	// First puts the claim at the head of the line.
	First bool

	// Token is what the hold was granted with, as far as its session knows, else 0.
	// It is for Release only, and may save a store some work: what Release does is
	// the same without.
	Token int64
}
