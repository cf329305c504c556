package main

import (
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		v     verdict
		least time.Duration
		good  bool
		want  string
	}{
		{verdict{ttl: 30 * s, write: 5 * ms}, s, true, "good enough for a TTL of 30s: writes of 5ms, and clocks up to 0s apart, need 1s"},
		{verdict{ttl: s, write: 5 * ms}, s, true, "good enough for a TTL of 1s: writes of 5ms, and clocks up to 0s apart, need 1s"},
		{verdict{ttl: 30 * s, write: 5 * ms, set: true}, s, true, "good enough for a TTL of 30s: writes of 5ms, and clocks up to 0s apart, need 1s; to survive a fail-over of 12s takes 18s"},
		{verdict{ttl: 5 * s, write: 5 * ms, set: true}, s, true, "good enough for a TTL of 5s: writes of 5ms, and clocks up to 0s apart, need 1s; to survive a fail-over of 12s takes 18s"},
		{verdict{ttl: 2 * s, write: 167 * ms}, 2100 * ms, false, "not good enough for a TTL of 2s: writes of 167ms, and clocks up to 0s apart, need 2.1s"},
		{verdict{ttl: 3 * s, write: 167 * ms}, 2100 * ms, true, "good enough for a TTL of 3s: writes of 167ms, and clocks up to 0s apart, need 2.1s"},
		{verdict{ttl: 30 * s, write: 3 * s}, 36 * s, false, "not good enough for a TTL of 30s: writes of 3s, and clocks up to 0s apart, need 36s"},
		{verdict{ttl: 30 * s, write: ms, spread: 200 * ms}, 2100 * ms, true, "good enough for a TTL of 30s: writes of 1ms, and clocks up to 200ms apart, need 2.1s"},
		{verdict{ttl: 2 * s, write: ms, spread: 200 * ms}, 2100 * ms, false, "not good enough for a TTL of 2s: writes of 1ms, and clocks up to 200ms apart, need 2.1s"},
		{verdict{ttl: 30 * s, write: ms, spread: 500 * ms}, 0, false, "not good enough: the servers' clocks are up to 500ms apart, and the margin is 500ms by default; synchronize them with NTP"},
	} {
		if got := c.v.least(); got != c.least {
			t.Errorf("%+v: carries %v, want %v", c.v, got, c.least)
		}
		if c.v.good() != c.good || c.v.String() != c.want {
			t.Errorf("%+v: good %v, %q, want %v, %q", c.v, c.v.good(), c.v, c.good, c.want)
		}
		// What it says is carried leaves a heartbeat its time, and a margin above the spread.
		if c.least != 0 && (c.least/6 < 2*c.v.write || min(maxMargin, c.least/10) <= c.v.spread) {
			t.Errorf("%+v: %v can't be carried", c.v, c.least)
		}
	}
}

func TestPercentiles(t *testing.T) {
	var hundred timings
	for i := range 100 {
		hundred = append(hundred, time.Duration((i*37)%100+1)) // 1 to 100
	}
	for _, c := range []struct {
		of   timings
		p    float64
		want time.Duration
	}{
		{nil, 0.5, 0}, {timings{7}, 0.5, 7}, {timings{7}, 0.99, 7}, {timings{9, 1}, 0.5, 1}, {timings{9, 1}, 0.51, 9},
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1},
	} {
		if got := c.of.percentile(c.p); got != c.want {
			t.Errorf("%v of %v is %v, want %v", c.p, c.of, got, c.want)
		}
	}
	if hundred[0] != 1 || hundred[1] != 38 {
		t.Error("sorted in place")
	}
}
