package engine

import "time"

// Freeze shows the process what it would see after it was frozen for d: the clocks have advanced,
// and no timer has run yet.
func (s *Session) Freeze(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease.sent.t = s.lease.sent.t.Add(-d)
	for _, c := range s.claims {
		if c.grant != nil {
			c.grant.sent.t = c.grant.sent.t.Add(-d)
		}
	}
}
