package measure

import (
	"context"
	"math/rand/v2"
	"time"
)

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
