package dsync

import "time"

// A stamp is a moment on the local monotonic clock, from which the time that
// has passed is counted with the time the machine slept included: Go's
// monotonic clock stops in suspend, leases don't.
type stamp struct {
	t     time.Time
	slept sleepMark
}

func stampNow() stamp { return stamp{t: time.Now(), slept: markSleep()} }

// elapsed returns the time since s.
func (s stamp) elapsed() time.Duration {
	now := time.Now()
	return now.Sub(s.t) + max(0, s.slept.since(s.t, now))
}
