package dsync

import "github.com/leasehold-go/leasehold/dsync/driver"

// A Kind says what a key is used as. Using a key as two kinds at the same time is a
// [MismatchError], which names both.
type Kind = driver.Kind

// The kinds of keys. KindMutex is also the kind of a [Lease]; KindElection is that of package
// leader.
const (
	KindMutex     = driver.KindMutex
	KindRWMutex   = driver.KindRWMutex
	KindSemaphore = driver.KindSemaphore
	KindOnce      = driver.KindOnce
	KindElection  = driver.KindElection
)

// A Member is the record of a session, as [Session.Members] returns it.
type Member = driver.Member

// A MismatchError reports that a key is in use as another kind, or with another limit, than the
// caller asked for. It matches [ErrMismatch].
type MismatchError = driver.MismatchError

// A HeldError reports who holds the key that a try failed to acquire. It matches [ErrHeld].
type HeldError = driver.HeldError
