package clockcheck

import (
	"fmt"
	"time"
)

// An UndecidedError says that the limit is within what the bound leaves open:
// the clock may be within it or not. A slow or busy way to the server does that;
// more samples may help. It is [ErrUndecided], and not [ErrOffset].
type UndecidedError struct {
	Server string        // host:port, "" if not known
	Offset time.Duration // the server's clock less the host's
	Bound  time.Duration // the truth is within Offset ± Bound
	Limit  time.Duration
}

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("clockcheck: host's clock is %s, but only within ±%v: too coarse to tell whether the limit of %v is kept",
		words(e.Offset, e.Server), readable(e.Bound), e.Limit)
}

// Is reports whether target is [ErrUndecided].
func (e *UndecidedError) Is(target error) bool { return target == ErrUndecided }
