package clockcheck

import (
	"math"
	"runtime"
	"time"
)

// A sample is one answer of a server. sent and got are readings of the host's monotonic clock, which is never stepped;
// both count from the start of the check. The field server is the reading of the server's clock, less what the host's
// wall clock showed at the start.
type sample struct {
	sent, got time.Duration // before the request was sent, after the answer arrived
	server    time.Duration // what the server's clock showed between sent and got, truncated
}

// truncation is greater than any amount by which a server truncates its localTime.
const truncation = time.Millisecond

// interval returns the server's clock less the host's monotonic clock at s.got.
//
// The server read its clock at some moment between sent and got. At that moment it showed at least s.server, and less
// than s.server + truncation. The difference is least if that moment was s.got. It is greatest if that moment was
// s.sent: the clocks could then drift apart until s.got. So only the upper end is widened.
func (s sample) interval(rate float64) interval {
	return interval{
		lo: s.server - s.got,
		hi: s.server + truncation - s.sent + drift(rate, s.got-s.sent),
	}
}

// An estimate combines the samples of one server. Its interval contains the difference between that server's clock and
// the host's monotonic clock at one moment.
type estimate struct {
	in  interval
	at  time.Duration // the moment, on the monotonic clock
	rtt time.Duration // the round-trip time of the fastest sample
	n   int
}

// add takes a sample into account. Samples must be added in the order in which they were taken. If
// the sample contradicts the earlier ones, add changes nothing and returns the least amount by
// which one of the clocks must have been stepped.
func (e *estimate) add(s sample, rate float64) (stepped time.Duration) {
	next, rtt := s.interval(rate), s.got-s.sent
	if e.n > 0 {
		before := e.later(s.got, rate)
		if stepped := before.gap(next); stepped != 0 {
			return stepped
		}
		next, rtt = next.and(before), min(rtt, e.rtt)
	}
	e.in, e.at, e.rtt, e.n = next, s.got, rtt, e.n+1
	return 0
}

// later returns the estimate for a later moment, widened by the drift until then.
func (e *estimate) later(at time.Duration, rate float64) interval {
	return e.in.widen(drift(rate, at-e.at))
}

// An interval is a range that certainly contains a quantity, both ends included.
type interval struct{ lo, hi time.Duration }

// and returns the intersection of the intervals, which must meet.
func (i interval) and(j interval) interval { return interval{max(i.lo, j.lo), min(i.hi, j.hi)} }

// widen returns the interval of a quantity that has since moved by at most d.
func (i interval) widen(d time.Duration) interval { return interval{i.lo - d, i.hi + d} }

// minus returns the interval of the difference of two quantities.
func (i interval) minus(j interval) interval { return interval{i.lo - j.hi, i.hi - j.lo} }

// gap returns the least distance that a quantity has moved if it was in i and is now in j. The gap
// is zero if i and j meet, and negative if the quantity has decreased.
func (i interval) gap(j interval) time.Duration {
	switch {
	case j.lo > i.hi:
		return j.lo - i.hi
	case j.hi < i.lo:
		return j.hi - i.lo
	}
	return 0
}

// middle returns the interval as a value and a bound: mid ± bound covers the whole interval. The
// division rounds down, so bound is the longer half.
func (i interval) middle() (mid, bound time.Duration) {
	mid = i.lo + (i.hi-i.lo)/2
	return mid, i.hi - mid
}

// drift returns the most that two clocks can drift apart in the time d.
func drift(rate float64, d time.Duration) time.Duration {
	return time.Duration(math.Ceil(rate * float64(d)))
}

// A hostClock reads the host's two clocks: the wall clock, which is being checked and may be
// stepped, and the monotonic clock, which is never stepped and measures everything else.
type hostClock struct {
	read func() (wall time.Time, mono time.Duration)
	rate float64
	base time.Time // the wall clock at the start; wall times are relative to it

	// The wall clock less the monotonic one at the start, and the monotonic time of that reading.
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

// tick returns how far a reading of either of the host's clocks may be behind. Windows advances both clocks in its
// timer interrupt, every 15.6 ms by default; elsewhere they are read to the nanosecond.
func tick() time.Duration {
	if runtime.GOOS == "windows" {
		return 16 * time.Millisecond
	}
	return 0
}

// before returns a lower bound of the monotonic clock. Call it before the timed event.
func (c *hostClock) before() time.Duration {
	_, mono := c.read()
	return mono
}

// after returns an upper bound of the monotonic clock. Call it after the event.
func (c *hostClock) after() time.Duration { return c.before() + tick() }

// wall returns the wall clock less the monotonic one, the monotonic time at which that difference held, and the wall
// clock itself.
//
// Two clocks can't be read at once, and the process may be descheduled in between. So the wall clock is read between
// two readings of the monotonic one, and wall returns the tightest result of a few tries.
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

// stepped returns the least amount by which the wall clock was stepped since the start, given what
// wall has just returned.
func (c *hostClock) stepped(now interval, at time.Duration) time.Duration {
	return c.start.widen(drift(c.rate, at-c.started)).gap(now)
}
