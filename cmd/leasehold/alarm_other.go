//go:build darwin || freebsd

package main

import "time"

// An alarm tells when a time on [clock] may have come: it tells often, since Go's
// timers stand still while the machine sleeps.
type alarm struct {
	c <-chan time.Time
}

func newAlarm() (*alarm, error) { return &alarm{time.Tick(20 * time.Millisecond)}, nil }

// set does nothing: who is told compares the clock.
func (*alarm) set(time.Duration) {}
