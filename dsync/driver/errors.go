package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/process"
	"github.com/leasehold-go/leasehold/internal/rfc3339"
)

// Errors that the methods of a [Store] return.
var (
	// ErrSessionExpired means that the session has expired, or, from Heartbeat, Revoke and
	// Observe, that it is unknown.
	ErrSessionExpired = errors.New("dsync: session expired")

	// ErrSessionExists means that a session with this id is, or was, registered, or that the id
	// has expired.
	ErrSessionExists = errors.New("dsync: session id exists already")

	// ErrMismatch means that the key is in use as another kind or with another limit. The error
	// is a [*MismatchError].
	ErrMismatch = errors.New("dsync: key in use as another kind or size")

	// ErrNotHeld means that the claim does not hold the key, or that its hold has ended.
	ErrNotHeld = errors.New("dsync: not held")

	// ErrNotWaiting means that a Release found no claim in the queue with the id of its
	// Successor.
	ErrNotWaiting = errors.New("dsync: not in the queue")

	// ErrRefused means that the store refused the command: the command has not had its effect, and repeating it cannot
	// help.
	ErrRefused = errors.New("dsync: refused by the store")
)

// A MismatchError reports that a key is in use as another kind, or with another limit, than the
// caller asked for. It matches [ErrMismatch].
type MismatchError struct {
	Key              string
	Kind, WantKind   Kind  // in use, requested
	Limit, WantLimit int64 // in use, requested
}

func (e *MismatchError) Error() string {
	if e.Kind != e.WantKind {
		return fmt.Sprintf("dsync: key %q is in use with kind %s, not %s", e.Key, e.Kind, e.WantKind)
	}
	return fmt.Sprintf("dsync: %s %q is in use with size %d, not %d", e.Kind, e.Key, e.Limit, e.WantLimit)
}

// Is reports whether target is [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// ErrHeld means that a try failed because somebody holds the key or waits for it. Package dsync returns it, usually
// as a [*HeldError]; no store does.
var ErrHeld = errors.New("dsync: held by another")

// A HeldError names the holder of the key that a try failed to acquire or, if nobody holds the key, a waiter. It matches
// [ErrHeld].
type HeldError struct {
	Key     string
	Here    bool      // the caller's own session holds the key or, if Session is "", waits for it
	Session string    // id of the holder's session, or of the first waiter's
	Name    string    // the process's Name, as in dsync.Options; "" if unknown
	Host    string    // the process's Host; "" if unknown
	PID     int       // the process's id; 0 if unknown
	Since   time.Time // when the key was granted, by the store's clock; zero: not granted yet
	Until   time.Time // when the hold ends, by the store's clock, if its holder does not renew it before then; zero: unknown
}

func (e *HeldError) Error() string {
	by := "is held by another"
	switch {
	case e.Here && e.Session == "":
		by = "is waited for by this process"
	case e.Here:
		by = "is held by this process"
	case e.Name != "" || e.PID != 0 || e.Host != "":
		by += ": " + process.Describe(e.Name, e.Host, e.PID, e.Session)
	}
	msg := fmt.Sprintf("dsync: %q %s", e.Key, by)
	if !e.Since.IsZero() {
		msg += ", since " + rfc3339.Millis(e.Since)
	}
	if !e.Until.IsZero() {
		msg += ", until " + rfc3339.Millis(e.Until)
	}
	return msg
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
