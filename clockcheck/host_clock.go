package clockcheck

import "time"

// A hostClock is the host's two clocks: the wall clock, whose offset is asked for
// and which anybody may step, and the monotonic clock, by which all else is
// measured, since nobody can.
type hostClock struct {
	read func() (wall time.Time, mono time.Duration)
	rate float64
	base time.Time // the wall clock at the start, from which it is counted

	// Where the wall clock was, less the monotonic one, at the start.
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

// before returns the monotonic clock, to be called before something happens.
func (c *hostClock) before() time.Duration {
	_, mono := c.read()
	return mono
}

// after returns what the monotonic clock is not beyond, to be called after
// something has happened.
func (c *hostClock) after() time.Duration { return c.before() + tick }

// wall returns where the wall clock is, less the monotonic one, with the moment
// of that, and the wall clock itself.
//
// Two clocks can't be read at once, and the process may be put aside in between:
// the wall clock is read between two readings of the other, and the best of a few
// tries is taken.
func (c *hostClock) wall() (in interval, at time.Duration, now time.Time) {
	for i := range 4 {
		lo := c.before()
		wall, _ := c.read()
		hi := c.after()
		w := wall.Sub(c.base)
		if try := (interval{w - hi, w + tick - lo}); i == 0 || try.hi-try.lo < in.hi-in.lo {
			in, at, now = try, hi, wall
		}
	}
	return in, at, now
}

// moved returns how far at least the wall clock was stepped since the start, if
// this is where it is now.
func (c *hostClock) moved(now interval, at time.Duration) time.Duration {
	return c.start.widen(drift(c.rate, at-c.started)).to(now)
}
