package dsync

import (
	"errors"
	"fmt"
)

// Errors that callers of [Mutex], [Lease] and [Session] test with errors.Is.
var (
	// ErrHeld: somebody else holds the key. The error is a [*HeldError].
	ErrHeld = errors.New("dsync: held by another")

	// ErrLost: the hold ended before its holder released it. From that moment
	// on, after the grace, somebody else may hold the key.
	ErrLost = errors.New("dsync: hold lost")

	// ErrRevoked: somebody asked for the key by force: see [Session.Break] and
	// [Mutex.ForceLock]. It comes with ErrLost.
	ErrRevoked = errors.New("dsync: asked to give the key up")

	// ErrClosed: the session was closed.
	ErrClosed = errors.New("dsync: session closed")

	// ErrNotRenewed: the session's lease could not be renewed in time, or it could
	// not be registered. See [Session.Healthy].
	ErrNotRenewed = errors.New("dsync: session not renewed")

	// ErrOverstayed: a hold that was lost is still in use, though its grace is over.
	// See [Session.Healthy].
	ErrOverstayed = errors.New("dsync: lost hold still in use")

	// ErrNotReleased: the store refuses to release a key that was unlocked here. See
	// [Session.Healthy].
	ErrNotReleased = errors.New("dsync: release refused by the store")

	// ErrKey: the key can't be used. [CheckKey] says why.
	ErrKey = errors.New("dsync: invalid key")
)

// Errors that a [Store] answers with.
var (
	// ErrSessionDead: the session is dead, or unknown to Heartbeat.
	ErrSessionDead = errors.New("dsync: session dead")

	// ErrSessionExists: a session with the id was registered before, or is dead.
	ErrSessionExists = errors.New("dsync: session id exists already")

	// ErrMismatch: the key is in use under another kind or limit. The error is
	// a [*MismatchError].
	ErrMismatch = errors.New("dsync: key in use as another kind or size")

	// ErrNotHeld: the claim does not hold the key, or its end has come.
	ErrNotHeld = errors.New("dsync: not held")

	// ErrRefused: the store refused the command for a reason that repeating it
	// can't mend, and did not do what it was asked for.
	ErrRefused = errors.New("dsync: refused by the store")
)

// A MismatchError says that a key is in use under another kind or limit than
// the one asked for. It is [ErrMismatch].
type MismatchError struct {
	Key              string
	Kind, WantKind   Kind  // in use, asked for
	Limit, WantLimit int64 // in use, asked for
}

func (e *MismatchError) Error() string {
	if e.Kind != e.WantKind {
		return fmt.Sprintf("dsync: key %q is in use as a %s, not as a %s", e.Key, e.Kind, e.WantKind)
	}
	return fmt.Sprintf("dsync: %s %q is in use with size %d, not %d", e.Kind, e.Key, e.Limit, e.WantLimit)
}

// Is reports whether target is [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }
