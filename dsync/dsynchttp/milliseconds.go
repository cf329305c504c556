package dsynchttp

import (
	"fmt"
	"strconv"
	"time"
)

// milliseconds is a duration that is whole milliseconds in JSON, and coarse to
// people.
type milliseconds time.Duration

// MarshalJSON implements [encoding/json.Marshaler].
func (d milliseconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(d).Milliseconds(), 10), nil
}

// String returns the duration in one unit, as precise as people care for.
func (d milliseconds) String() string {
	switch t := time.Duration(d); {
	case t < 0:
		return "0 s"
	case t < 10*time.Second && t%time.Second != 0:
		return fmt.Sprintf("%.1f s", t.Seconds())
	case t < 2*time.Minute:
		return fmt.Sprintf("%d s", t/time.Second)
	case t < 2*time.Hour:
		return fmt.Sprintf("%d min", t/time.Minute)
	case t < 48*time.Hour:
		return fmt.Sprintf("%d h", t/time.Hour)
	default:
		return fmt.Sprintf("%d d", t/(24*time.Hour))
	}
}
