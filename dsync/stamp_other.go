//go:build !linux

package dsync

import "time"

// A sleepMark is empty where there is no clock that counts sleep: the wall
// clock, compared with the monotonic one, tells. A step of the wall clock ahead
// is taken for sleep, which ends a hold early, never late.
type sleepMark struct{}

func markSleep() sleepMark { return sleepMark{} }

func (sleepMark) since(t, now time.Time) time.Duration {
	return now.Round(0).Sub(t.Round(0)) - now.Sub(t)
}
