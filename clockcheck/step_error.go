package clockcheck

import (
	"fmt"
	"time"
)

// A StepError says that a clock was set during the check, so that its samples
// have nothing in common. It is [ErrStepped].
type StepError struct {
	Host   bool          // the host's clock was set, or the host has slept
	Server string        // else: the server whose clock it was, host:port, "" if not known
	By     time.Duration // how far at least, positive: ahead
}

func (e *StepError) Error() string {
	whose := "the host's clock was stepped, or the host slept,"
	switch {
	case e.Host:
	case e.Server == "":
		whose = "the server's clock was stepped"
	default:
		whose = "the clock of " + e.Server + " was stepped"
	}
	return fmt.Sprintf("clockcheck: %s during the check, by %v or more", whose, readable(e.By))
}

// Is reports whether target is [ErrStepped].
func (e *StepError) Is(target error) bool { return target == ErrStepped }
