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
	member Member        // the whole record, as of the last time that all of it was read
	whole  bool          // it was read, if only to find that there is none
	left   time.Duration // of its life, as of read
	read   stamp
	dead   bool
	burial *burial // under way; nil: none is
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

// wholePeers is of how many sessions at most all is read where only their lives matter:
// a mutex has one holder and up to 8 ahead in line, and one command then tells who they
// are as well. Of the thousands that a semaphore can have, all would be megabytes.
const wholePeers = 16

// read reads the sessions and notes until when they are alive. One that is not
// there, or dead by a reading that may be stale, is only suspected: what decides
// is bury.
func (s *Session) read(ctx context.Context, ids []string) error {
	whole := len(ids) <= wholePeers
	op, read := "Lives", s.store.Lives
	if whole {
		op, read = "Members", s.store.Members
	}
	for some := range slices.Chunk(ids, maxRead) {
		members, now, err := s.readSome(ctx, op, read, some)
		if err != nil {
			return err
		}
		s.noteLives(some, members, now, whole)
	}
	return nil
}

// noteLives notes what was read of the sessions with these ids.
func (s *Session) noteLives(ids []string, members []Member, now time.Time, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := stampNow()
	for _, id := range ids {
		p := s.peers[id]
		if p == nil {
			p = &peer{read: at}
			s.peers[id] = p
		} else if !p.dead {
			p.left, p.read = 0, at
		}
		p.whole = p.whole || whole
	}
	for _, m := range members {
		p := s.peers[m.ID]
		if p == nil {
			continue
		}
		if whole {
			p.member = m
		}
		if !m.Dead && !p.dead {
			p.left = m.At.Add(m.TTL).Sub(now)
		}
	}
}

// who returns the session's whole record, for people to read, so that it can't be read
// makes no error: it is zero then.
func (s *Session) who(ctx context.Context, id string) Member {
	whole := func() (m Member, ok bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p := s.peers[id]; p != nil {
			return p.member, p.whole
		}
		return Member{}, false
	}
	m, ok := whole()
	if !ok && s.read(ctx, []string{id}) == nil {
		m, _ = whole()
	}
	return m
}

// bury buries those of the sessions that may have lapsed. Of several that are due,
// most have only sent a heartbeat since: one reading of all is cheaper than a command
// for each. Goroutines that are after the same session share one command.
func (s *Session) bury(ctx context.Context, ids []string) error {
	due := s.due(ids)
	if len(due) > 1 {
		if err := s.read(ctx, due); err != nil {
			return err
		}
		due = s.due(due)
	}
	for _, id := range due {
		b := s.burying(id)
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
		if b.err != nil {
			return b.err
		}
	}
	return nil
}

// A burial is one Bury of a session.
type burial struct {
	done chan struct{} // closed when the store has answered, or did not
	err  error
}

// burying returns the burial of the session that is under way, or begins one.
func (s *Session) burying(id string) *burial {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	if p == nil {
		p = &peer{}
		s.peers[id] = p
	}
	if p.burial != nil {
		return p.burial
	}
	b := &burial{done: make(chan struct{})}
	if s.finished {
		b.err = ErrClosed
		close(b.done)
		return b
	}
	p.burial = b
	s.workers.do(func() {
		a := command(s, "Bury", func(ctx context.Context) (time.Duration, error) { return s.store.Bury(ctx, id) })
		b.err = a.err
		dead := s.buried(id, p, a.v, a.err)
		close(b.done)
		if dead {
			m := s.who(s.base, id)
			s.info("dsync: buried a session that had lapsed", "session", id, "host", m.Host, "pid", m.PID)
		}
	})
	return b
}

// buried takes in what the store answered, and reports whether the session is dead. Then
// all of this process that wait behind it go on, each with an attempt that names it.
func (s *Session) buried(id string, p *peer, left time.Duration, err error) (dead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.burial = nil
	if err != nil {
		return false
	}
	p.left, p.read, p.dead = left, stampNow(), left <= 0
	s.peers[id] = p // it may have been forgotten meanwhile
	if !p.dead {
		return false
	}
	for _, h := range s.holds {
		if h.state == asking && slices.Contains(h.ahead, id) {
			h.notify()
		}
	}
	return true
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
	return s.deadLocked(ids)
}

// deadLocked is dead where s.mu is held.
func (s *Session) deadLocked(ids []string) []string {
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
	if err := ctx.Err(); err != nil {
		return none, err // though there may be an answer by now
	}
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.closing:
		return none, ErrClosed
	}
}
