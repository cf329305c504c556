//go:build !linux

package engine

import "time"

// A sleepMark is empty on systems without a clock that counts sleep. There, the time slept is how much further the wall
// clock has advanced than the monotonic clock. If somebody sets the wall clock forward, that counts as sleep, and a
// hold can then end too early.
type sleepMark struct{}

func markSleep() sleepMark { return sleepMark{} }

func (sleepMark) since(t, now time.Time) time.Duration {
	return now.Round(0).Sub(t.Round(0)) - now.Sub(t)
}
