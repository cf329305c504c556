package dsync

import "time"

// Freeze has the process see what it sees after it was frozen for d: the clocks
// have gone on, and no timer has run yet.
func (s *Session) Freeze(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.presence.sent.t = s.presence.sent.t.Add(-d)
	for _, h := range s.holds {
		if h.granted != nil {
			h.sent.t = h.sent.t.Add(-d)
		}
	}
}
