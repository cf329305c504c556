package dsync

import (
	"errors"
	"fmt"
	"time"
)

// Healthy returns nil, or what is wrong with this process's use of locks; errors.Is
// tells which, of several if they are joined:
//
//   - [ErrNotRenewed]: the session holds something that lives with it, or waits,
//     and the heartbeat that was due is overdue, so its lease runs out: none was
//     acknowledged for 1.1·Heartbeat + TTL/6, the longest that a period and an
//     attempt take where nothing fails. Or the session was lost, or never
//     registered for that long, and somebody waits for it. A failed heartbeat that the next makes up for in
//     time is no reason to complain, and a session that neither holds nor waits
//     needs no store.
//   - [ErrOverstayed]: a hold was lost, its holder was told, the grace is over, and
//     its holder is not done: there was no Unlock or Release, the function of a
//     Do or of a leader.Election.Run has not returned, a term of
//     leader.Election.Campaign was not resigned. Somebody else may hold the key
//     by now. It ends when the holder is done. A [Lease] needs no release, and is
//     never that.
//   - [ErrNotReleased]: the store refuses to release a key that was unlocked, because a
//     right was taken away, say. It stays held while the session lives and goes on
//     asking.
//   - [ErrClosed]: Close has begun.
//
// It asks nobody: it looks at the clock and at what the session knows. For
// Kubernetes, any of them says that the process is not ready; but only ErrOverstayed
// should fail a liveness probe. A process that can't reach the store is not
// helped by being restarted, nor is a store that the whole fleet reconnects to;
// a process that goes on with what it lost is stopped by it:
//
//	http.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
//		if err := locks.Healthy(); err != nil {
//			http.Error(w, err.Error(), http.StatusServiceUnavailable)
//		}
//	})
//	http.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
//		if err := locks.Healthy(); errors.Is(err, dsync.ErrOverstayed) {
//			http.Error(w, err.Error(), http.StatusServiceUnavailable)
//		}
//	})
func (s *Session) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.presence != nil {
		s.presence.expiredAt(now)
	}
	if s.ends() {
		return errors.Join(s.overstayed(now), ErrClosed)
	}
	return errors.Join(s.overstayed(now), s.unreleased(), s.unrenewed(now))
}

// unreleased says which key the store refuses to release. s.mu must be held.
func (s *Session) unreleased() error {
	var first *hold
	n := 0
	for _, h := range s.holds {
		if h.refused == nil {
			continue
		}
		if n++; first == nil || h.claim.Key < first.claim.Key {
			first = h
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s %q: %w", ErrNotReleased, first.claim.Kind, first.claim.Key, first.refused)
	}
	return fmt.Errorf("%w: %s %q: %w, and %d more", ErrNotReleased, first.claim.Kind, first.claim.Key, first.refused, n-1)
}

// overstayed says who goes on with a hold that was lost. s.mu must be held.
func (s *Session) overstayed(now time.Time) error {
	var first *hold
	n := 0
	for h, since := range s.overdue {
		if now.Sub(since) <= s.opt.Grace {
			continue
		}
		if n++; first == nil || since.Before(s.overdue[first]) {
			first = h
		}
	}
	if n == 0 {
		return nil
	}
	err := fmt.Errorf("%w: %s %q for %v, which is more than its grace of %v (%w)", ErrOverstayed, first.claim.Kind,
		first.claim.Key, now.Sub(s.overdue[first]).Round(time.Millisecond), s.opt.Grace, first.cause)
	if n > 1 {
		err = fmt.Errorf("%w, and %d more", err, n-1)
	}
	return err
}

// unrenewed says that the session needs a lease and can't get or renew one. s.mu
// must be held.
func (s *Session) unrenewed(now time.Time) error {
	late := s.opt.beatTime()
	if p := s.presence; p != nil {
		if since := p.sent.until(now); since > late && s.lives() {
			return fmt.Errorf("%w: no heartbeat was acknowledged for %v; what it holds is lost in %v", ErrNotRenewed,
				since.Round(time.Millisecond), p.leftAt(now).Round(time.Millisecond))
		}
		return nil
	}
	var since time.Duration
	for _, q := range s.queues {
		switch {
		case !q.asks:
		case s.renewed.t.IsZero():
			since = max(since, now.Sub(q.asker.since))
		default: // who lost a lock and asks again does not make the session a new one
			since = s.renewed.until(now)
		}
	}
	if since > late {
		return fmt.Errorf("%w: who waits for a lock waits for the session to be registered, for %v", ErrNotRenewed, since.Round(time.Millisecond))
	}
	return nil
}

// lives reports whether there is a claim that lives with the session. s.mu must be
// held.
func (s *Session) lives() bool {
	for _, h := range s.holds {
		if !h.leased() {
			return true
		}
	}
	return false
}
