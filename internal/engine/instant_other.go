//go:build !linux

package engine

import "time"

// A sleepMark is empty on systems without a clock that counts sleep. There, the time slept is how much further the
// wall clock has moved than the monotonic clock. A step of the wall clock ahead then counts as sleep, which ends a
// hold early, but never late.
type sleepMark struct{}

func markSleep() sleepMark { return sleepMark{} }

func (sleepMark) since(t, now time.Time) time.Duration {
	return now.Round(0).Sub(t.Round(0)) - now.Sub(t)
}
