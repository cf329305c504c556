package history

import (
	"fmt"
	"time"
)

// A Violation is what a history has and must not have.
type Violation struct {
	Rule string
	Key  string
	At   time.Duration
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: key %q, at %s: %s", v.Rule, v.Key, at(v.At), v.Text)
}
