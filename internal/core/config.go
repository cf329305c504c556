package core

import "time"

// A Config has the settings of a Core. It must not be changed.
type Config struct {
	TTL, Margin, Grace time.Duration
	LeastMargin        time.Duration // see MarginOf
	LeastGrace         time.Duration // see GraceOf
	Heartbeat          time.Duration // between two heartbeats
	Attempt            time.Duration // time limit of a command
	Poll               time.Duration // interval between a waiter's requests; 0: see PollTime
	HandOff            time.Duration // how long after its grant a claim may be handed off; ≤0: never
	Linger             time.Duration // how long an unused claim is kept; 0: not at all
	Retention          time.Duration // how long idle records are kept; <0: nothing is swept
	Retry, Backoff     time.Duration // the first and the longest pause before a retry
	AlwaysListen       bool
	Lanes, PollLanes   int // see lanes

	// Rand returns a number in [0, n).
	Rand func(n int64) int64 `json:"-"`
}

// Hold returns how long a holder may rely on a grant of d, counted from before the request was sent. This time is
// d·(1−ρ) − MarginOf(d) − GraceOf(d), where ρ = 1/1000 allows for clocks that run at slightly different rates.
func (c *Config) Hold(d time.Duration) time.Duration {
	return d - d/1000 - c.MarginOf(d) - c.GraceOf(d)
}

// Silence returns the longest time between the sending of a heartbeat and the reply to the next heartbeat, if nothing
// fails. This time is the longest interval plus the time of an attempt.
func (c *Config) Silence() time.Duration { return c.Heartbeat + c.Heartbeat/10 + c.Attempt }

// MarginOf returns the margin of a grant of d: a tenth of d, but at least LeastMargin and at most Margin.
func (c *Config) MarginOf(d time.Duration) time.Duration {
	return min(c.Margin, max(d/10, c.LeastMargin))
}

// GraceOf returns the grace of a grant of d: a tenth of d, but at least LeastGrace and at most Grace.
func (c *Config) GraceOf(d time.Duration) time.Duration { return min(c.Grace, max(d/10, c.LeastGrace)) }
