package engine

import "time"

// Freeze shows the process what it would see after it was frozen for d: the clocks have advanced,
// and no timer has run yet.
func (s *Session) Freeze(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.base = s.clock.base.Add(-d)
}
