package dsync

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// Errors that callers test with errors.Is. ErrNotRenewed, ErrSessionExpired, ErrRevoked, ErrRecordDeleted,
// ErrStalled, ErrLeaseOver and ErrClosed also tell why a hold was lost; then the error matches ErrLost, too.
var (
	// ErrHeld means that a try found the key held, or somebody waiting. For locks of this package it is a [*HeldError].
	ErrHeld = driver.ErrHeld

	// ErrLost means that the hold ended before its holder released it. After the grace somebody else may hold
	// the key.
	ErrLost = core.ErrLost

	// ErrRevoked means that somebody took the key by force, with [Mutex.ForceHold] or Break of package
	// dsync/admin.
	ErrRevoked = core.ErrRevoked

	// ErrStalled means that the holder made no progress within its limit: see [Hold.Progress].
	ErrStalled = core.ErrStalled

	// ErrLeaseOver means that the time of a lease ([Mutex.Lease]) is over.
	ErrLeaseOver = core.ErrLeaseOver

	// ErrRecordDeleted means that an operator, a clean-up job or a TTL index has deleted or changed the key's
	// record in the store, although the session lives. Another process may hold the key. The log names the
	// record.
	ErrRecordDeleted = core.ErrRecordDeleted

	// ErrClosed means that the session was closed.
	ErrClosed = core.ErrClosed

	// ErrNotRenewed means that the session could not renew its lease in time, or could not register. See
	// [Session.Healthy].
	ErrNotRenewed = core.ErrNotRenewed

	// ErrSessionExpired means that the store ended the session early: the store's clock has jumped, or somebody has
	// expired the session or deleted its record.
	ErrSessionExpired = driver.ErrSessionExpired

	// ErrStillInUse means that a lost hold is still in use after its grace: see [Session.Healthy].
	ErrStillInUse = engine.ErrStillInUse

	// ErrNotReleased means that the store may still hold a key that this process has given up: see
	// [Session.Healthy] and [Session.Close].
	ErrNotReleased = core.ErrNotReleased

	// ErrNotUnregistered means that [Session.Close] could not unregister the session.
	ErrNotUnregistered = core.ErrNotUnregistered

	// ErrInvalidKey means that the string cannot be used as a key. [CheckKey] explains why.
	ErrInvalidKey = engine.ErrInvalidKey

	// ErrMismatch means that the key is in use as another kind or with another limit. The error is a
	// *driver.MismatchError.
	ErrMismatch = driver.ErrMismatch

	// ErrRefused means that the store refused a command, and that repeating it cannot help.
	ErrRefused = driver.ErrRefused
)

// A NotReleasedError lists the keys that [Session.Close] could not release.
type NotReleasedError = core.NotReleasedError

// A HeldError tells who holds the key: see [driver.HeldError].
type HeldError = driver.HeldError
