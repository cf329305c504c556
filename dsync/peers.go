package dsync

import (
	"context"
	"slices"
	"time"
)

// peers is what is known of other sessions, by id: a session seen alive until T
// is alive until T, and one that is dead is dead for ever.
type peers map[string]*peer

type peer struct {
	member Member
	known  bool          // member was read
	left   time.Duration // of its life, as of read
	read   stamp
	dead   bool
}

// remaining returns for how long the peer is sure to be alive, at most 0 if it
// may be buried now.
func (p *peer) remaining() time.Duration {
	if p.dead {
		return 0
	}
	return p.left - p.read.elapsed()
}

// forget drops what has been of no use for a while.
func (ps peers) forget(ttl time.Duration) {
	for id, p := range ps {
		if p.read.elapsed() > p.left+10*ttl {
			delete(ps, id)
		}
	}
}

// sessions returns the ids of the sessions that stand between self and the key:
// those that holds live with, and those nearest ahead in line.
func (st *State) sessions(self string) []string {
	var ids []string
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Session != self && h.Until.IsZero() {
			ids = append(ids, h.Session)
		}
	}
	for _, w := range st.Ahead {
		if w.Session != self {
			ids = append(ids, w.Session)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// look reads those of the sessions that nothing is known of.
func (s *Session) look(ctx context.Context, ids []string) error {
	var unknown []string
	s.mu.Lock()
	for _, id := range ids {
		if s.peers[id] == nil {
			unknown = append(unknown, id)
		}
	}
	s.mu.Unlock()
	return s.read(ctx, unknown)
}

// read reads the sessions and notes until when they are alive. One that is not
// there, or dead by a reading that may be stale, is only suspected: what decides
// is bury.
func (s *Session) read(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	members, now, err := s.Members(ctx, ids...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := stampNow()
	for _, id := range ids {
		if p := s.peers[id]; p == nil {
			s.peers[id] = &peer{read: at}
		} else if !p.dead {
			p.left, p.read = 0, at
		}
	}
	for _, m := range members {
		p := s.peers[m.ID]
		if p == nil {
			continue
		}
		p.member, p.known = m, true
		if !m.Dead && !p.dead {
			p.left = m.At.Add(m.TTL).Sub(now)
		}
	}
	return nil
}

// bury buries those of the sessions that may have lapsed, and reports whether
// any is dead. Of several that are due, most have only sent a heartbeat since:
// one reading of all is cheaper than a command for each.
func (s *Session) bury(ctx context.Context, ids []string) (dead bool, err error) {
	due := s.due(ids)
	if len(due) > 1 {
		if err := s.read(ctx, due); err != nil {
			return false, err
		}
		due = s.due(due)
	}
	for _, id := range due {
		left, err := await(ctx, s, call(s, "Bury", func(ctx context.Context) (time.Duration, error) {
			return s.store.Bury(ctx, id)
		}))
		if err != nil {
			return dead, err
		}
		s.mu.Lock()
		p := s.peers[id]
		if p == nil {
			p = &peer{}
			s.peers[id] = p
		}
		p.left, p.read, p.dead = left, stampNow(), left <= 0
		s.mu.Unlock()
		if left <= 0 {
			dead = true
			s.info("dsync: buried a session that had lapsed", "session", id, "host", p.member.Host, "pid", p.member.PID)
		}
	}
	return dead, nil
}

// due returns those of the sessions that may have lapsed and are not known to be
// dead.
func (s *Session) due(ids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []string
	for _, id := range ids {
		if p := s.peers[id]; p == nil || !p.dead && p.remaining() <= 0 {
			due = append(due, id)
		}
	}
	return due
}

// dead returns those of the sessions that are known to be dead.
func (s *Session) dead(ids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var dead []string
	for _, id := range ids {
		if p := s.peers[id]; p != nil && p.dead {
			dead = append(dead, id)
		}
	}
	return dead
}

// soonest returns the time until the first of the sessions may have lapsed, at
// most limit.
func (s *Session) soonest(ids []string, limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if p := s.peers[id]; p != nil && !p.dead {
			limit = min(limit, p.remaining())
		}
	}
	return limit
}

// await waits for an answer, ctx or the end of the session.
func await[T any](ctx context.Context, s *Session, ch <-chan answer[T]) (T, error) {
	var none T
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.closing:
		return none, ErrClosed
	}
}
