package driver

import "time"

// MaxDuration is the longest duration that a session accepts in a setting or a call, or passes to a [Store]: 50 years
// of 365 days. It leaves room for calculations: a time.Duration can hold the sum of five such durations.
const MaxDuration = 50 * 365 * 24 * time.Hour

// MaxObserved is the greatest total size, in bytes, of the keys that a session passes to [Store.Observe]. These keys
// are part of the session's record, which has to stay small: MongoDB refuses records of more than 16 MiB, and some
// stores log the record with every heartbeat.
const MaxObserved = 256 << 10

// MaxQueue is the greatest number of claims that the queue of a key may have.
const MaxQueue = 10_000

// MaxValue is the greatest size of a published value or a result, in bytes. Values and results are part of the key's
// record, and MongoDB before 5.0 logs the whole record with every change.
const MaxValue = 64 << 10

// MaxClaimValue is the greatest size of a claim's value, in bytes. The value is part of the key's record while the
// claim waits, so the record must have room for the values of a whole queue.
const MaxClaimValue = 256

// The least distance between the token of a grant and the token of the key's next grant. The values in between are for
// hand-offs within one process.
const (
	// TokenStep is the least distance from a claim's token to the next token of the key, for most claims. A store may
	// delete the idle record of a key. The key's tokens still grow if each is at least the store's clock, in
	// milliseconds, times TokenStep.
	TokenStep = 1024

	// TokenRoom is the least distance for a claim with Yield that takes the whole limit: its process may hand it off
	// many times.
	TokenRoom = 65_536
)
