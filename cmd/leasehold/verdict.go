package main

import (
	"fmt"
	"strings"
	"time"
)

// A verdict says which TTL a deployment can carry. The rules are those of package
// dsync: a session has a heartbeat every TTL/3, of which an attempt may take TTL/6;
// the margin, 500 ms or TTL/10 if that is less, must exceed what the servers' clocks
// are apart; a TTL is half as long again as the fail-over that locks are to survive.
type verdict struct {
	ttl    time.Duration // that is to be carried
	write  time.Duration // the slowest majority write
	spread time.Duration // of the servers' clocks, its bound included
	set    bool          // a replica set: it can fail over
}

const (
	leastTTL  = time.Second
	mostSpare = 500 * time.Millisecond // what the margin is at the most, by default

	// slowElection is what a replica set with default settings may take for a new
	// primary.
	slowElection = 12 * time.Second
)

// least is the shortest TTL whose heartbeats and margin are sure, with as much time
// again for a write as the slowest took; 0 if there is none, as the clocks are too
// far apart for the default margin.
func (v verdict) least() time.Duration {
	if v.spread >= mostSpare {
		return 0
	}
	least := max(leastTTL, 6*2*v.write, 10*v.spread+time.Millisecond)
	return least.Truncate(time.Second) + roundUp(least%time.Second)
}

// roundUp is d, less than a second, in tenths of one.
func roundUp(d time.Duration) time.Duration {
	return (d + 99*time.Millisecond + 999_999).Truncate(100 * time.Millisecond)
}

// survives is the shortest TTL with which locks survive a fail-over as well, 0 if
// there can be none.
func (v verdict) survives() time.Duration {
	if !v.set {
		return 0
	}
	return max(v.least(), slowElection*3/2)
}

// good reports whether the TTL can be carried.
func (v verdict) good() bool { return v.least() != 0 && v.ttl >= v.least() }

// String is the verdict for people.
func (v verdict) String() string {
	var b strings.Builder
	switch {
	case v.least() == 0:
		fmt.Fprintf(&b, "not good enough: the servers' clocks are up to %s apart, and the margin is %v by default; set them by NTP", span(v.spread), mostSpare)
		return b.String()
	case v.good():
		fmt.Fprintf(&b, "good enough for a TTL of %v; it carries one of %v", v.ttl, v.least())
	default:
		what := "heartbeats need"
		if 10*v.spread > 6*2*v.write {
			what = "the servers' clocks need"
		}
		fmt.Fprintf(&b, "not good enough for a TTL of %v: %s one of %v at least", v.ttl, what, v.least())
	}
	if s := v.survives(); s > v.ttl {
		fmt.Fprintf(&b, ", but for locks to survive a fail-over of %v it takes %v", slowElection, s)
	} else if s != 0 && v.good() {
		fmt.Fprintf(&b, "; for locks to survive a fail-over of %v, %v", slowElection, s)
	}
	return b.String()
}
