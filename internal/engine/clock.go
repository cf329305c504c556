package engine

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/core"
)

// A clock tells the time since it was made, the time that the machine slept included. Go's monotonic clock
// stops in suspend, but leases run on.
type clock struct {
	base  time.Time
	mark  sleepMark     // at base
	slept time.Duration // since base
	drift time.Duration // how much further the wall clock has moved than the monotonic one, when slept was last found out
}

func newClock() clock { return clock{base: time.Now(), mark: markSleep()} }

// at returns the Instant of now, which the caller has just read. Finding out how long the machine slept takes
// system calls. So at does that only if the wall clock and the monotonic clock have moved differently since
// the last time. A difference below slewed is ignored: slewing of the wall clock can cause as much within a
// heartbeat interval, and the margin covers it.
func (c *clock) at(now time.Time) core.Instant {
	const slewed = 10 * time.Millisecond
	d := now.Sub(c.base)
	if apart := now.Round(0).Sub(c.base.Round(0)) - d - c.drift; apart <= -slewed || apart >= slewed {
		c.drift += apart
		c.slept = max(c.slept, c.mark.since(c.base, now))
	}
	return core.Instant(d + c.slept + 1)
}

// when returns the time of an Instant.
func (c *clock) when(i core.Instant) time.Time { return c.base.Add(time.Duration(i) - c.slept - 1) }
