package program

import "time"

// A tempo has the durations of a program. They are longer in a bubble, where time costs nothing, than on a server.
type tempo struct {
	bubble  bool
	ttl     time.Duration
	delay   time.Duration // the longest delay before an op
	linger  time.Duration // the longest Linger of a session
	step    time.Duration // unit of the Arg that sets how long ReleaseAfter keeps a key, or how long a lease lasts
	short   [7]time.Duration
	long    time.Duration // limit of waits that should end with a grant
	slack   time.Duration // how long after its limit a call may return
	idle    time.Duration // how long a call may wait for a free key
	cleanBy time.Duration // how long claims may remain after the end: longer than the longest Linger
	limit   time.Duration // for the whole program
}

var (
	bubble = tempo{
		bubble: true,
		ttl:    10 * time.Second,
		delay:  time.Minute,
		linger: 20 * time.Second,
		step:   700 * time.Millisecond,
		short: [7]time.Duration{0, time.Millisecond, 50 * time.Millisecond, time.Second,
			3 * time.Second, 11 * time.Second, 30 * time.Second},
		long:    100 * time.Second,
		slack:   10 * time.Millisecond,
		idle:    60 * time.Second,
		cleanBy: 60 * time.Second,
		limit:   6 * time.Hour,
	}

	// wall is the tempo on a server. It allows for slow servers on busy machines.
	wall = tempo{
		ttl:    6 * time.Second,
		delay:  150 * time.Millisecond,
		linger: 2 * time.Second,
		step:   50 * time.Millisecond,
		short: [7]time.Duration{0, time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond,
			200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond},
		long:    2 * time.Second,
		slack:   10 * time.Second,
		idle:    time.Hour,
		cleanBy: 40 * time.Second,
		limit:   3 * time.Minute,
	}
)

// grace is the grace of all sessions: the default.
func (m tempo) grace() time.Duration { return m.ttl / 10 }

// margin is the margin of all sessions: the default.
func (m tempo) margin() time.Duration { return min(500*time.Millisecond, m.ttl/10) }

// patience returns how long the op's call may wait.
func (m tempo) patience(o Op) time.Duration {
	if o.Arg < len(m.short) {
		return m.short[o.Arg]
	}
	return m.long
}

// keep returns how long ReleaseAfter keeps the key.
func (m tempo) keep(o Op) time.Duration { return time.Millisecond + time.Duration(o.Arg)*m.step }

// lease returns the duration of the op's Lease.
func (m tempo) lease(o Op) time.Duration {
	return 2*(m.margin()+m.grace()) + time.Millisecond + time.Duration(o.Arg)*m.step
}

// holdTime returns how long a holder may rely on a lease of duration d.
func (m tempo) holdTime(d time.Duration) time.Duration {
	return d - d/1000 - min(m.margin(), d/10) - min(m.grace(), d/10)
}

// clock returns the argument of Step. It sets the clock back by less than the margin, so that all promises still hold.
func (m tempo) clock(o Op) time.Duration { return -m.margin() * time.Duration(o.Arg) / 16 }

// sleepTime returns how long the op Sleep, or a run of a Once, sleeps.
func (m tempo) sleepTime(o Op) time.Duration { return min(m.delay, delays[o.Arg]) }
