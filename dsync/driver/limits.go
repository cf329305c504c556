package driver

import "time"

// MaxDuration is the longest duration that a session takes for anything, and gives to a [Store]: 50
// years of 365 days. It leaves room for what is computed from durations: a time.Duration holds the
// sum of five.
const MaxDuration = 50 * 365 * 24 * time.Hour

// MaxObserved is how many bytes the keys have together that a session gives to [Store.Observe]. They
// are part of the session's record, which has to stay small: MongoDB refuses records of more than 16
// MiB, and some stores log the record with every heartbeat.
const MaxObserved = 256 << 10

// MaxQueue is how many claims the queue of a key may have.
const MaxQueue = 10_000

// MaxValue is the size of a published value or a result, in bytes. It is part of the key's record, and
// MongoDB before 5.0 logs the whole record with every change.
const MaxValue = 64 << 10

// MaxClaimValue is the size of a claim's value in bytes. It is part of the key's record while the claim
// waits, so a whole queue must have room with all its values.
const MaxClaimValue = 256

// How far apart the tokens of two grants of a key are, at least. The values between are for hand-offs
// within one process.
const (
	// TokenStep is the distance after most claims. A store that gives each grant a token of at
	// least its clock in milliseconds times TokenStep gives growing ones even if it has deleted the
	// idle record of the key in between.
	TokenStep = 1024

	// TokenRoom is the distance after a claim that takes the whole limit and has Yield: its process
	// may hand it off many times.
	TokenRoom = 65_536
)
