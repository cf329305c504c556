package dsync

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// Errors that callers of [Mutex], [Hold] and [Session] test with errors.Is.
var (
	// ErrHeld means that somebody else holds the key. The error is a [*HeldError].
	ErrHeld = driver.ErrHeld

	// ErrLost means that the hold ended before its holder released it. Once the grace is over,
	// somebody else may hold the key. errors.Is also tells why: ErrNotRenewed, ErrSessionExpired, ErrRevoked,
	// ErrRecordDeleted, ErrStalled, ErrLeaseOver or ErrClosed.
	ErrLost = engine.ErrLost

	// ErrRevoked means that somebody took the key by force, with [Mutex.ForceHold] or Break of
	// package dsync/admin. The error is also ErrLost.
	ErrRevoked = engine.ErrRevoked

	// ErrStalled means that the holder set a limit with [Hold.Progress], and then made no
	// progress within it. The error is also ErrLost.
	ErrStalled = engine.ErrStalled

	// ErrLeaseOver means that the time of a lease ([Mutex.Lease]) is over. The error is also ErrLost.
	ErrLeaseOver = engine.ErrLeaseOver

	// ErrRecordDeleted means that the store does not have the hold any more, although the session lives: an
	// operator, a clean-up job or a TTL index has deleted or changed the key's record. The store may have
	// granted the key to somebody else in the meantime. [Hold.Extend] can also say so if the store's
	// clock has just jumped past the end of the lease: the store says only that the lease is not held. The log has an
	// error that names the record. The error is also ErrLost.
	ErrRecordDeleted = engine.ErrRecordDeleted

	// ErrClosed means that the session was closed.
	ErrClosed = engine.ErrClosed

	// ErrNotRenewed means that the session could not renew its lease in time, or could not
	// register: see [Session.Healthy]. An ErrLost is also ErrNotRenewed if the hold was lost in this way: an outage, or a
	// process that was frozen. So is one whose key the store has granted to another when, by the store's clock, the
	// session's TTL was over.
	ErrNotRenewed = engine.ErrNotRenewed

	// ErrSessionExpired means that the store says that the session is over, although its deadline had not come: the
	// store's clock has jumped, or somebody has expired the session or deleted its record. The error is also ErrLost if a hold
	// was lost in this way.
	ErrSessionExpired = driver.ErrSessionExpired

	// ErrStillInUse means that a lost hold is still in use after its grace. See
	// [Session.Healthy].
	ErrStillInUse = engine.ErrStillInUse

	// ErrNotReleased means that the store may still hold a key that this process has given up: from
	// [Session.Healthy], because the store refuses to release it; from [Session.Close], where the error is a
	// [*NotReleasedError], also because the store has not answered.
	ErrNotReleased = engine.ErrNotReleased

	// ErrNotUnregistered means that [Session.Close] could not unregister the session, so that it may be listed as
	// a member for up to one TTL.
	ErrNotUnregistered = engine.ErrNotUnregistered

	// ErrInvalidKey means that the string cannot be used as a key. [CheckKey] says why.
	ErrInvalidKey = engine.ErrInvalidKey

	// ErrMismatch means that the key is in use as another kind or with another limit. The error
	// is a [*MismatchError].
	ErrMismatch = driver.ErrMismatch

	// ErrRefused means that the store refused a command and did not execute it, and that
	// repeating the command cannot help.
	ErrRefused = driver.ErrRefused
)

// A MismatchError reports that a key is in use as another kind, or with another limit, than the
// caller asked for. It matches [ErrMismatch].
type MismatchError = driver.MismatchError

// A NotReleasedError says which keys [Session.Close] could not release, as far as it knows. It matches
// [ErrNotReleased].
type NotReleasedError = engine.NotReleasedError

// A HeldError reports who holds the key that a try failed to acquire. It matches [ErrHeld].
type HeldError = driver.HeldError
