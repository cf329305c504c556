package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/rfc3339"
)

// notThere reports whether cause means that the store may no longer have the claim.
func notThere(cause error) bool {
	return errors.Is(cause, ErrRecordDeleted) || errors.Is(cause, ErrNotRenewed) || errors.Is(cause, driver.ErrSessionExpired)
}

// HeldError returns the error for a call that found the key held, or free but with waiters.
func HeldError(st *driver.State) *driver.HeldError {
	e := &driver.HeldError{Key: st.Key}
	switch {
	case len(st.Holders) > 0:
		h := st.Holders[0]
		e.Session, e.Since, e.Until = h.Session, h.Since, h.Until
	case len(st.WaitersAhead) > 0:
		e.Session = st.WaitersAhead[0].Session
	}
	return e
}

// errNoAnswer is used if the store has not answered in time and no other error is known.
var errNoAnswer = fmt.Errorf("the store did not answer in time: %w", context.DeadlineExceeded)

// A NotReleasedError lists the keys that Close may have left unreleased. It matches [ErrNotReleased].
type NotReleasedError struct {
	Keys []string // sorted, each once
	err  error    // why the first key was not released
}

func (e *NotReleasedError) Error() string {
	const shown = 3
	names := make([]string, 0, shown)
	for _, key := range e.Keys[:min(shown, len(e.Keys))] {
		names = append(names, fmt.Sprintf("%q", key))
	}
	list := strings.Join(names, ", ")
	if more := len(e.Keys) - len(names); more > 0 {
		list = fmt.Sprintf("%s and %d more", list, more)
	}
	return fmt.Sprintf("%v: %s: %v", ErrNotReleased, list, e.err)
}

// Is reports whether target is [ErrNotReleased].
func (e *NotReleasedError) Is(target error) bool { return target == ErrNotReleased }

func (e *NotReleasedError) Unwrap() error { return e.err }

var errClosed = LostTo(ErrClosed)

// The errors that callers and holders get. Package dsync explains them.
var (
	ErrClosed    = errors.New("dsync: session closed")
	ErrLost      = errors.New("dsync: hold lost")
	ErrRevoked   = errors.New("dsync: asked to give the key up")
	ErrStalled   = errors.New("dsync: no progress within the limit")
	ErrLeaseOver = errors.New("dsync: the lease is over")
	ErrLate      = errors.New("dsync: the request came too late to count")
	ErrGivenUp   = errors.New("dsync: given up")
	ErrFree      = errors.New("dsync: given up by those that held it") // the result of a Break

	ErrNotRenewed      = errors.New("dsync: session not renewed")
	ErrNotReleased     = errors.New("dsync: not released")
	ErrNotUnregistered = errors.New("dsync: session not unregistered")
	ErrRecordDeleted   = errors.New("dsync: the store has no record of the hold any more; somebody has deleted or changed it")
)

// LostTo returns the error of a hold that was lost because of cause. It is not inlined: the arguments of Errorf would
// enlarge the stack frame of every caller, and a waiting goroutine keeps that frame.
//
//go:noinline
func LostTo(cause error) error { return fmt.Errorf("%w: %w", ErrLost, cause) }

// A SealedError answers a request for a tick that is over, because a run for that tick or a later one has succeeded.
// Value is the run's result.
type SealedError struct {
	Tick  int64
	Value []byte
}

func (e *SealedError) Error() string { return "dsync: the tick is over" }

// Result returns a copy of Value. It never returns nil.
func (e *SealedError) Result() []byte { return append([]byte{}, e.Value...) }

// An outage is the error of a session that could not be renewed. It matches [ErrNotRenewed]. It does not match the last
// heartbeat's error, because a caller could mistake this library's timeout for its own.
type outage struct {
	time time.Duration // time without an acknowledged heartbeat
	last error         // error of the last heartbeat, or nil
}

func (o *outage) Error() string {
	s := fmt.Sprintf("no heartbeat was acknowledged within %v", o.time)
	if o.last != nil {
		s = fmt.Sprintf("%s; the last: %v", s, o.last)
	}
	return s
}

func (o *outage) Is(target error) bool { return target == ErrNotRenewed }

// farTick is the error for a tick too far ahead to be a time in milliseconds. The caller may have used microseconds. If
// a run for such a far tick succeeded, all earlier ticks would be over. Also, many formats, such as JSON, can't
// represent such years.
func farTick(tick int64, now time.Time) error {
	return fmt.Errorf("the tick is %s; by the store's clock, which shows %s, it may be at most %v ahead",
		rfc3339.Millis(time.UnixMilli(tick)), rfc3339.Millis(now), driver.MaxDuration)
}

// errTooLate is the error for a holder that called ReleaseBy when its hold was already being released.
var errTooLate = fmt.Errorf("%w: its grace was over, and it was being released", ErrLost)

// errUnsure is a holder's error if it is unknown whether the successor was granted the key.
var errUnsure = fmt.Errorf("%w: it is not known whether the successor was granted the key", ErrLost)
