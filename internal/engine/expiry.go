package engine

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// otherSessions records what is known of other sessions, by id. If a session's last heartbeat
// keeps it alive until T, no other process can expire it before T. A session that has expired
// stays expired.
type otherSessions map[string]*otherSession

type otherSession struct {
	member  driver.Member // the whole record, when it was last read
	whole   bool          // the whole record was read, or found not to exist
	left    time.Duration // time until it may be expired, as of read
	read    instant
	expired bool
	expiry  *expiry // under way; nil: none
}

// remaining returns how much longer other processes cannot expire the session. It is 0 or less if
// the session may have lapsed.
func (p *otherSession) remaining() time.Duration {
	if p.expired {
		return 0
	}
	return p.left - p.read.elapsed()
}

// forget drops sessions whose record has been out of date for 10 TTLs.
func (ps otherSessions) forget(ttl time.Duration) {
	for id, p := range ps {
		if p.read.elapsed() > p.left+10*ttl {
			delete(ps, id)
		}
	}
}

// sessionsIn returns the ids of the sessions between self and the key: those of the holders,
// except fixed leases, which do not end with a session, and those of the nearest waiters ahead.
func sessionsIn(st *driver.State, self string) []string {
	var ids []string
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Session != self && h.Until.IsZero() {
			ids = append(ids, h.Session)
		}
	}
	for _, w := range st.WaitersAhead {
		if w.Session != self {
			ids = append(ids, w.Session)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// readUnknown reads those of the sessions about which nothing is known.
func (s *Session) readUnknown(ctx context.Context, ids []string) error {
	var unknown []string
	s.mu.Lock()
	for _, id := range ids {
		if s.others[id] == nil {
			unknown = append(unknown, id)
		}
	}
	s.mu.Unlock()
	return s.readOthers(ctx, unknown)
}

// maxWhole is the most sessions whose whole records are read where only their liveness matters.
// A mutex has one holder and up to 8 waiters ahead, and reading them whole also tells who they
// are. For the thousands that a semaphore can have, whole records would be megabytes.
const maxWhole = 16

// readOthers reads the sessions and records how long they cannot be expired. A session that is
// missing or expired in this reading is only suspected to have expired, because the reading may
// be stale. Only the answer to startExpiry decides.
func (s *Session) readOthers(ctx context.Context, ids []string) error {
	whole := len(ids) <= maxWhole
	op := "Liveness"
	if whole {
		op = "Members"
	}
	for some := range slices.Chunk(ids, maxRead) {
		members, now, err := s.readSessions(ctx, op, driver.SessionQuery{IDs: some, Liveness: !whole})
		if err != nil {
			return err
		}
		s.noteOthers(some, members, now, whole)
	}
	return nil
}

// noteOthers records what was read about the sessions with these ids.
func (s *Session) noteOthers(ids []string, members []driver.Member, now time.Time, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := instantNow()
	for _, id := range ids {
		p := s.others[id]
		if p == nil {
			p = &otherSession{read: at}
			s.others[id] = p
		} else if !p.expired {
			p.left, p.read = 0, at
		}
		p.whole = p.whole || whole
	}
	for _, m := range members {
		p := s.others[m.ID]
		if p == nil {
			continue
		}
		if whole {
			p.member = m
		}
		if !m.Expired && !p.expired {
			p.left = m.LastHeartbeat.Add(m.TTL).Sub(now)
		}
	}
}

// memberOf returns the session's whole record, to show it to people. It returns a zero record
// rather than an error if it cannot read one.
func (s *Session) memberOf(ctx context.Context, id string) driver.Member {
	whole := func() (m driver.Member, ok bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p := s.others[id]; p != nil {
			return p.member, p.whole
		}
		return driver.Member{}, false
	}
	m, ok := whole()
	if !ok && s.readOthers(ctx, []string{id}) == nil {
		m, _ = whole()
	}
	return m
}

// expireLapsed reads those of the sessions about which nothing is known, and expires those that
// may have lapsed. If there are several, most have only sent a heartbeat in the meantime, and
// reading them all with one command is cheaper than a command for each. Goroutines that expire the
// same session share one command.
func (s *Session) expireLapsed(ctx context.Context, ids []string) error {
	if err := s.readUnknown(ctx, ids); err != nil {
		return err
	}
	due := s.mayHaveLapsed(ids)
	if len(due) > 1 {
		if err := s.readOthers(ctx, due); err != nil {
			return err
		}
		due = s.mayHaveLapsed(due)
	}
	for _, id := range due {
		b := s.startExpiry(id)
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

// An expiry is one Expire command for a session.
type expiry struct {
	done chan struct{} // closed when the command was answered or failed
	err  error
}

// startExpiry returns the expiry of the session that is under way, or starts one.
func (s *Session) startExpiry(id string) *expiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.others[id]
	if p == nil {
		p = &otherSession{}
		s.others[id] = p
	}
	if p.expiry != nil {
		return p.expiry
	}
	b := &expiry{done: make(chan struct{})}
	if s.finished {
		b.err = ErrClosed
		close(b.done)
		return b
	}
	p.expiry = b
	s.workers.do(func() {
		a := command(s, "Expire", func(ctx context.Context) (time.Duration, error) { return s.store.Expire(ctx, id, false) })
		b.err = a.err
		expired := s.expiryAnswered(id, p, a.v, a.err)
		close(b.done)
		if expired {
			m := s.memberOf(s.base, id)
			s.info("dsync: expired a session that had lapsed", "session", id, "host", m.Host, "pid", m.PID)
		}
	})
	return b
}

// expiryAnswered records the store's answer and reports whether the session has expired. If so,
// every waiter of this process behind it requests again and names it.
func (s *Session) expiryAnswered(id string, p *otherSession, left time.Duration, err error) (expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.expiry = nil
	if err != nil {
		return false
	}
	p.left, p.read, p.expired = left, instantNow(), left <= 0
	s.others[id] = p // forget may have dropped it in the meantime
	if !p.expired {
		return false
	}
	for _, c := range s.claims {
		if c.state == pending && slices.Contains(c.ahead, id) {
			c.requestAgain()
		}
	}
	return true
}

// mayHaveLapsed returns those of the sessions that may have lapsed and are not known to have
// expired.
func (s *Session) mayHaveLapsed(ids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []string
	for _, id := range ids {
		if p := s.others[id]; p == nil || !p.expired && p.remaining() <= 0 {
			due = append(due, id)
		}
	}
	return due
}

// expiredAmong returns those of the sessions that are known to have expired.
func (s *Session) expiredAmong(ids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pickExpired(ids)
}

// pickExpired is expiredAmong for a caller that holds s.mu.
func (s *Session) pickExpired(ids []string) []string {
	var expired []string
	for _, id := range ids {
		if p := s.others[id]; p != nil && p.expired {
			expired = append(expired, id)
		}
	}
	return expired
}

// untilLapse returns the time until the first of the sessions may have lapsed, but at most limit.
func (s *Session) untilLapse(ids []string, limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if p := s.others[id]; p != nil && !p.expired {
			limit = min(limit, p.remaining())
		}
	}
	return limit
}
