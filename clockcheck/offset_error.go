package clockcheck

import (
	"fmt"
	"time"
)

// An OffsetError says that the host's clock is certainly farther from a server's
// than the limit: |Offset| − Bound > Limit. It is [ErrOffset].
type OffsetError struct {
	Server string        // host:port, "" if not known
	Offset time.Duration // the server's clock less the host's
	Bound  time.Duration // the truth is within Offset ± Bound
	Limit  time.Duration
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("clockcheck: host's clock is %s (±%v), the limit is %v",
		words(e.Offset, e.Server), readable(e.Bound), e.Limit)
}

// Is reports whether target is [ErrOffset].
func (e *OffsetError) Is(target error) bool { return target == ErrOffset }
