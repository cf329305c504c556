package measure

import (
	"context"
	"math/rand/v2"
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

const (
	// warmUps is how many rounds are done before those that count.
	warmUps = 3

	// pause is what is waited for before each op at the most: a mongod that is a
	// replica set by itself has writes wait for the next full millisecond of its
	// clock if they just missed one, and a loop without pauses falls in step with it.
	pause = 2 * time.Millisecond
)

// Interleave does each of ops in turn, n times over, each round in another order, since
// it matters what was done before, and returns a sample of each.
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
