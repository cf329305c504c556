package clockcheck

import (
	"errors"
	"fmt"
	"time"
)

// The findings of a check. Test for them with errors.Is; the error itself is an [*Error], whose
// Kind is the finding.
var (
	// ErrOffset: the host's clock is certainly farther off than the limit: |Offset| − Bound > Limit.
	ErrOffset = errors.New("clockcheck: clock is off")

	// ErrUndecided: the clock may or may not be within the limit; the bound is too wide to tell,
	// for example because the network is slow or busy. More samples may help.
	ErrUndecided = errors.New("clockcheck: clock may be off")

	// ErrStepped: a clock was stepped during the check, or the host was suspended. So the samples contradict each
	// other, and there is no single offset.
	ErrStepped = errors.New("clockcheck: clock was stepped")
)

// An Error is the finding of a check.
type Error struct {
	Kind   error  // ErrOffset, ErrUndecided or ErrStepped
	Server string // the server whose clock was compared, or stepped: host:port, "" if not known

	// For ErrOffset and ErrUndecided: the server's clock less the host's is Offset ± Bound.
	Offset, Bound time.Duration
	Limit         time.Duration

	// For ErrStepped: the clock was stepped by at least Step, which is positive if the clock was set forward and
	// negative if it was set back. Host is true if the host's own clock was stepped, or if the host was suspended.
	Step time.Duration
	Host bool
}

func (e *Error) Error() string {
	switch e.Kind {
	case ErrOffset:
		return fmt.Sprintf("clockcheck: host's clock is %s (±%v), the limit is %v",
			direction(e.Offset, e.Server), readable(e.Bound), e.Limit)
	case ErrUndecided:
		return fmt.Sprintf("clockcheck: host's clock is %s, but only within ±%v: too coarse to tell whether the limit of %v is kept",
			direction(e.Offset, e.Server), readable(e.Bound), e.Limit)
	}
	whose := "the clock of " + e.Server + " was stepped"
	switch {
	case e.Host:
		whose = "the host's clock was stepped, or the host slept,"
	case e.Server == "":
		whose = "the server's clock was stepped"
	}
	return fmt.Sprintf("clockcheck: %s during the check, by %v or more", whose, readable(e.Step))
}

// Unwrap returns e.Kind.
func (e *Error) Unwrap() error { return e.Kind }
