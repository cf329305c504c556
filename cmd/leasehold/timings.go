package main

import (
	"math"
	"slices"
	"time"
)

// timings are how long each of several repetitions took.
type timings []time.Duration

// percentile is what p of them, a fraction, were not longer than.
func (t timings) percentile(p float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// slowest is the longest of them.
func (t timings) slowest() time.Duration { return t.percentile(1) }
