package engine

import "time"

// Freeze puts the session in the state that follows a freeze of the process for d: the clocks have advanced, but no
// timer has run yet.
func (s *Session) Freeze(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.base = s.clock.base.Add(-d)
}
