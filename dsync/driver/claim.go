package driver

import "time"

// A Kind says what a key is used for. If a key is used as two kinds at the same time, the error is a [MismatchError],
// which names both kinds.
type Kind string

const (
	// KindMutex is for keys of Mutexes, including leases: exclusive holds.
	KindMutex Kind = "mutex"

	// KindRWMutex is for keys of RWMutexes: a writer takes the whole limit, a reader 1.
	KindRWMutex Kind = "rwmutex"

	// KindSemaphore is for keys of Semaphores.
	KindSemaphore Kind = "semaphore"

	// KindOnce is for keys of Onces: exclusive holds until the key is sealed. Its claims have Tick 1.
	KindOnce Kind = "once"

	// KindPeriodic is for keys of Periodics: exclusive holds, each for one tick.
	KindPeriodic Kind = "periodic"

	// KindElection is for keys of package leader: exclusive holds whose grants are counted as terms. The key is never
	// sealed: a Tick only ranks the candidate.
	KindElection Kind = "election"
)

// A Claim is one attempt to hold a key. A [Store] queues claims and grants them.
type Claim struct {
	Key string

	// ID consists of the session's id, a dot and a decimal number that grows with each of the session's claims. Every
	// attempt to hold a key has a new ID. An ID is never used for two keys, or for both a try and a wait.
	ID string

	// Session is the id of the session that the claim belongs to: letters, digits, '-' and '_'.
	Session string

	Kind Kind

	// Weight is how much of the key's Limit the claim takes: 1 ≤ Weight ≤ Limit.
	Weight, Limit int64

	// Tick, if positive, is the tick that the claim is for. Waiters for earlier ticks are served first. While
	// the key is sealed up to a tick (see [Release]), it is not granted to claims with that Tick, an earlier Tick, or
	// none.
	Tick int64

	// Lease, if positive, is how long the hold lasts after an [Extend], by the store's clock: Extend sets the end of
	// the hold to now + Lease, unless the end is already later. From the first Extend on, the hold ends at that time,
	// whatever happens to its session. Before the first Extend, and if Lease is zero, the claim lives with its session,
	// unless a [Release] with Keep sets an end.
	Lease time.Duration

	// Yield asks the store to notify the session, by [NoticeYield], when others wait behind this
	// hold. While nobody waits, the session may keep the hold although it is not in use.
	Yield bool

	// First puts the claim at the head of the queue.
	First bool

	// Value, if not "", is published by the grant, like a first [Publish] of the claim. It may have at most
	// [MaxClaimValue] bytes.
	Value string `json:"-"`

	// Token is the token that the claim was granted with, or 0 if its session does not know it. Extend needs it.
	// NoneWaiting means that nobody waited at the time of the grant. For a Release, both fields are only hints: they
	// may save the store some work, but they do not change what the Release does.
	Token       int64
	NoneWaiting bool
}
