package clockcheck

import (
	"runtime"
	"time"
)

// A hostClock reads the host's two clocks: the wall clock, which is what is being
// checked and which anybody may step, and the monotonic clock, which nobody can step
// and by which everything else is measured.
type hostClock struct {
	read func() (wall time.Time, mono time.Duration)
	rate float64
	base time.Time // the wall clock at the start; wall times are counted from it

	// The wall clock less the monotonic one at the start, and when that was.
	start   interval
	started time.Duration
}

func newHostClock(read func() (time.Time, time.Duration), rate float64) *hostClock {
	if read == nil {
		begin := time.Now()
		read = func() (time.Time, time.Duration) {
			t := time.Now()
			return t.Round(0), t.Sub(begin)
		}
	}
	c := &hostClock{read: read, rate: rate}
	c.base, _ = read()
	c.start, c.started, _ = c.wall()
	return c
}

// tick returns how late a reading of either of the host's clocks may be. Windows
// advances both by its timer interrupt, every 15.6 ms by default; elsewhere they are
// read to the nanosecond.
func tick() time.Duration {
	if runtime.GOOS == "windows" {
		return 16 * time.Millisecond
	}
	return 0
}

// before returns a lower bound of the monotonic clock. Call it before the event that
// is to be timed.
func (c *hostClock) before() time.Duration {
	_, mono := c.read()
	return mono
}

// after returns an upper bound of the monotonic clock. Call it after the event.
func (c *hostClock) after() time.Duration { return c.before() + tick() }

// wall returns the wall clock less the monotonic one, the monotonic time at which that
// held, and the wall clock itself.
//
// Two clocks can't be read at once, and the process may be descheduled in between. So
// the wall clock is read between two readings of the monotonic one, and the tightest
// of a few tries is returned.
func (c *hostClock) wall() (in interval, at time.Duration, now time.Time) {
	for i := range 4 {
		lo := c.before()
		wall, _ := c.read()
		hi := c.after()
		w := wall.Sub(c.base)
		if try := (interval{w - hi, w + tick() - lo}); i == 0 || try.hi-try.lo < in.hi-in.lo {
			in, at, now = try, hi, wall
		}
	}
	return in, at, now
}

// stepped returns by how much, at least, the wall clock was stepped since the start,
// given what wall returned now.
func (c *hostClock) stepped(now interval, at time.Duration) time.Duration {
	return c.start.widen(drift(c.rate, at-c.started)).gap(now)
}
