package history

import "time"

// A Span is a fault from its begin to its end.
type Span struct {
	What, Target string
	From, To     time.Duration
}
