package dsync

import (
	"context"
	"time"
)

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

// AcquirePaused is Acquire of a lease of d, or Hold where d is 0, with a pause between the
// grant and what follows it.
func (s *Session) AcquirePaused(key string, d time.Duration, pause func()) error {
	w := all(key, KindMutex)
	w.lease, w.auto = d, d == 0
	w.began = time.Now()
	if _, err := s.enter(context.Background(), w); err != nil {
		return err
	}
	_, err := s.wait(context.Background(), &w)
	pause()
	s.asked(w, err)
	return err
}
