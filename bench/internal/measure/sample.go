package measure

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// A Sample holds durations, such as those that an [Op] returned.
type Sample []time.Duration

// Median returns the median, or 0 if the sample is empty.
func (s Sample) Median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(s)-1)/2] + sorted[len(s)/2]) / 2
}

// Percentile returns the p-th percentile, or 0 if the sample is empty.
func (s Sample) Percentile(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(p/100*float64(len(sorted))))]
}

// Max returns the longest duration, or 0 if the sample is empty.
func (s Sample) Max() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

const (
	// warmUps is the number of rounds before the measured ones.
	warmUps = 3

	// pause is the longest random delay before an op. Without the delays, a loop would synchronize with mongod: in a
	// replica set of one member, a majority write that has just missed a full millisecond of the server's clock waits
	// for the next millisecond.
	pause = 2 * time.Millisecond
)

// Interleave runs all ops n times and returns a sample of each. Each round runs them in a new
// random order, because an operation affects the next one.
func Interleave(ctx context.Context, n int, ops ...Op) ([]Sample, error) {
	samples := make([]Sample, len(ops))
	for round := range warmUps + n {
		for _, i := range rand.Perm(len(ops)) {
			time.Sleep(rand.N(pause))
			took, err := ops[i](ctx)
			if err != nil {
				return nil, err
			}
			if round >= warmUps {
				samples[i] = append(samples[i], took)
			}
		}
	}
	return samples, nil
}
