package dsync

import (
	"math/rand/v2"
	"time"
)

// A backoff spaces the retries of one thing: doubling, jittered, never above
// its cap. Success starts it anew by a zero value of step.
type backoff struct {
	step, cap time.Duration
}

// next returns how long to wait before the next retry.
func (b *backoff) next() time.Duration {
	const first = 20 * time.Millisecond
	b.step = min(max(2*b.step, first), b.cap)
	return b.step/2 + rand.N(b.step/2+1)
}

func (b *backoff) reset() { b.step = 0 }

// jitter returns d ± part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 - part + 2*part*rand.Float64()))
}
