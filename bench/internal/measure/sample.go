package measure

import (
	"slices"
	"time"
)

// A Sample is what an [Op] returned, in the order of its calls.
type Sample []time.Duration

// Median returns the median, 0 of an empty sample.
func (s Sample) Median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(s)-1)/2] + sorted[len(s)/2]) / 2
}

// Percentile returns what p percent of the sample are at most, 0 of an empty sample.
func (s Sample) Percentile(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(p/100*float64(len(sorted))))]
}

// Max returns the longest, 0 of an empty sample.
func (s Sample) Max() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}
