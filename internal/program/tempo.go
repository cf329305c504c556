package program

import "time"

// A tempo is how fast a program runs: that of a bubble, where time costs nothing,
// or that of a server.
type tempo struct {
	bubble  bool
	ttl     time.Duration
	delay   time.Duration // the longest
	linger  time.Duration // the longest
	step    time.Duration // of keeps and leases beyond the least
	short   [7]time.Duration
	long    time.Duration // of waits that should end by a grant
	slack   time.Duration // how late a call may return
	idle    time.Duration // after which nobody may wait for a key that is free
	cleanBy time.Duration // within which all is clean after the end: beyond the longest Linger
	limit   time.Duration // of the whole program
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

	// wall is for servers that are slow, on machines that are busy.
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

// grace of all sessions: the default.
func (m tempo) grace() time.Duration { return m.ttl / 10 }

// margin of all sessions: the default.
func (m tempo) margin() time.Duration { return min(500*time.Millisecond, m.ttl/10) }

// patience is for how long the op's call may wait.
func (m tempo) patience(o Op) time.Duration {
	if o.Arg < len(m.short) {
		return m.short[o.Arg]
	}
	return m.long
}

// keep is for how long ReleaseAfter keeps the key.
func (m tempo) keep(o Op) time.Duration { return time.Millisecond + time.Duration(o.Arg)*m.step }

// lease is the duration of the op's Lease.
func (m tempo) lease(o Op) time.Duration {
	return 2*(m.margin()+m.grace()) + time.Millisecond + time.Duration(o.Arg)*m.step
}

// holdTime is for how long a holder of a fixed lease may believe in it.
func (m tempo) holdTime(d time.Duration) time.Duration {
	return d - d/1000 - min(m.margin(), d/10) - min(m.grace(), d/10)
}

// clock is how far behind Step sets the store's clock: less than the margin, so all that is promised
// holds.
func (m tempo) clock(o Op) time.Duration { return -m.margin() * time.Duration(o.Arg) / 16 }

// sleepTime is how long Sleep sleeps, or a run of a Once takes.
func (m tempo) sleepTime(o Op) time.Duration { return min(m.delay, delays[o.Arg]) }
