package clockcheck

import "errors"

// What a check may find wrong, to be tested with errors.Is.
var (
	// ErrOffset: the host's clock is certainly farther off than the limit. The
	// error is an [*OffsetError].
	ErrOffset = errors.New("clockcheck: clock is off")

	// ErrUndecided: the clock may or may not be within the limit; the bound is too
	// wide to tell. The error is an [*UndecidedError].
	ErrUndecided = errors.New("clockcheck: clock may be off")

	// ErrStepped: a clock was set during the check, or the host has slept, so there
	// is no one offset. The error is a [*StepError].
	ErrStepped = errors.New("clockcheck: clock was stepped")
)
