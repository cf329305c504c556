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
func (s stamp) elapsed() time.Duration { return s.until(time.Now()) }

// until returns the time from s to now, which was read a moment ago. To ask for
// the time slept takes system calls, and so is done only if the wall clock went
// another way than the monotonic one since s. Less than what slewing of the wall
// clock makes of that in a period of heartbeats is left to the margin.
func (s stamp) until(now time.Time) time.Duration {
	const slewed = 10 * time.Millisecond
	d := now.Sub(s.t)
	if apart := now.Round(0).Sub(s.t.Round(0)) - d; -slewed < apart && apart < slewed {
		return d
	}
	return d + max(0, s.slept.since(s.t, now))
}
