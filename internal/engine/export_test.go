package engine

import "time"

// Freeze makes the session see what it would see after the process was frozen for d: the clocks have advanced, but
// no timer has run yet.
func (s *Session) Freeze(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.base = s.clock.base.Add(-d)
}
