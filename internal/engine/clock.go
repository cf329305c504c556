package engine

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/core"
)

// A clock measures the time since it was made, including time that the machine slept: Go's monotonic clock stops
// while the machine is suspended, but leases run on.
type clock struct {
	base  time.Time
	mark  sleepMark     // at base
	slept time.Duration // since base
	drift time.Duration // how far the wall clock was ahead of the monotonic clock when slept was last updated
}

func newClock() clock { return clock{base: time.Now(), mark: markSleep()} }

// at returns the Instant of now, which the caller has just read. Measuring how long the machine slept takes system
// calls, so it is done only if the wall clock and the monotonic clock have drifted apart since the last measurement.
// Drifts below slewed are ignored: slewing the wall clock can cause that much within a heartbeat interval, and the
// margin covers it.
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
