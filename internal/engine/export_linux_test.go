package engine

import (
	"time"
	"unsafe"
)

// Sleep makes the session see the clocks as they would be after the machine had slept for d: the wall clock and
// CLOCK_BOOTTIME have advanced, but CLOCK_MONOTONIC and all timers stood still. It does not work in a bubble, where
// times have no monotonic part.
func (s *Session) Sleep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.forward(d)
	s.clock.mark -= sleepMark(d)
}

// Step makes the session see the clocks as they would be after the wall clock had been set forward by d.
func (s *Session) Step(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.forward(d)
}

// forward makes the wall clock appear to be ahead by d.
func (c *clock) forward(d time.Duration) {
	// This relies on an implementation detail of package time since Go 1.9: a Time with a monotonic part stores it
	// in its second word.
	earlier := func(t time.Time) time.Time {
		t = t.Add(-d)
		(*struct {
			wall uint64
			mono int64
			loc  *time.Location
		})(unsafe.Pointer(&t)).mono += int64(d)
		return t
	}
	c.base = earlier(c.base)
}
