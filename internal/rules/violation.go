package rules

import (
	"fmt"
	"time"
)

// A Violation is what breaks a rule.
type Violation struct {
	Rule string
	Key  string
	At   time.Duration
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: key %q, at %s: %s", v.Rule, v.Key, at(v.At), v.Text)
}

// at shows a time in seconds.
func at(t time.Duration) string { return fmt.Sprintf("%.3f s", t.Seconds()) }
