package dsynctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A member is a [Memory]'s record of one session.
type member struct {
	driver.Member
	revoked []driver.Revocation // revocations that no heartbeat has removed, in the order of arrival

	observes []string // observed keys
	list     int64    // the seq of the Observe that set observes
}

// Register implements [driver.Store].
func (m *Memory) Register(ctx context.Context, s driver.Member) (time.Time, error) {
	now, err := m.begin(ctx, MethodRegister)
	if err != nil {
		return time.Time{}, err
	}
	defer m.mu.Unlock()
	if m.sessions[s.ID] != nil {
		return time.Time{}, fmt.Errorf("dsynctest: %w: %s", driver.ErrSessionExists, s.ID)
	}
	s.Meta = maps.Clone(s.Meta)
	s.TTL = (s.TTL + time.Millisecond - 1).Truncate(time.Millisecond) // rounded up, so that it is not 0
	s.LastHeartbeat, s.Expired = now, false
	m.sessions[s.ID] = &member{Member: s}
	m.wrote()
	return now, nil
}

// Heartbeat implements [driver.Store].
func (m *Memory) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	now, err := m.begin(ctx, MethodHeartbeat)
	if err != nil {
		return driver.HeartbeatReply{}, err
	}
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil || s.Expired {
		return driver.HeartbeatReply{}, expiredError(session)
	}
	m.early = nil // a heartbeat commits all earlier writes
	stand := slices.DeleteFunc(slices.Clone(s.revoked), func(r driver.Revocation) bool { return slices.Contains(given, r) })
	if !s.LastHeartbeat.Equal(now) || len(stand) != len(s.revoked) {
		s.LastHeartbeat, s.revoked = now, stand
		m.wrote()
	}
	return driver.HeartbeatReply{Now: now, Revoked: slices.Clone(stand), Committed: m.logEnd()}, nil
}

// Expire implements [driver.Store].
func (m *Memory) Expire(ctx context.Context, session string, owner bool) (time.Duration, error) {
	now, err := m.begin(ctx, expireMethod(owner))
	if err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil && !s.Expired && !owner {
		if left := s.LastHeartbeat.Add(s.TTL).Sub(now); left > 0 {
			return min(left, s.TTL), nil
		}
	}
	m.expire(session, now)
	return 0, nil
}

// expire expires a session. If the session is unknown, it creates the record of an expired session.
func (m *Memory) expire(session string, now time.Time) {
	s := m.sessions[session]
	switch {
	case s == nil:
		m.sessions[session] = &member{Member: driver.Member{ID: session, LastHeartbeat: now, Expired: true}}
	case s.Expired:
		return
	default:
		s.Expired, s.revoked = true, nil
	}
	m.wrote()
}

// Revoke implements [driver.Store].
func (m *Memory) Revoke(ctx context.Context, session string, r driver.Revocation) ([]driver.Notice, error) {
	_, err := m.begin(ctx, MethodRevoke)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil || s.Expired {
		return nil, expiredError(session)
	}
	if slices.Contains(s.revoked, r) {
		return nil, nil
	}
	s.revoked = append(s.revoked, r)
	m.wrote()
	if m.Polling {
		return nil, nil
	}
	return []driver.Notice{{Type: driver.NoticeRevoke, Session: session, Key: r.Key, Claim: r.Claim, Address: sessionsAddress}}, nil
}

// Sessions implements [driver.Store]. With IDs, it returns the sessions in the order of the IDs.
func (m *Memory) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	now, err := m.begin(ctx, sessionsMethod(q))
	if err != nil {
		return nil, time.Time{}, err
	}
	defer m.mu.Unlock()
	ids := q.IDs
	if len(ids) == 0 {
		ids = m.living(q, now)
	}
	var found []driver.Member
	for _, id := range ids {
		switch s := m.sessions[id]; {
		case s == nil:
		case q.Liveness:
			found = append(found, driver.Member{ID: id, TTL: s.TTL, LastHeartbeat: s.LastHeartbeat, Expired: s.Expired})
		default:
			c := s.Member
			c.Meta = maps.Clone(s.Meta)
			found = append(found, c)
		}
	}
	return found, now, nil
}

// living returns the ids of the live sessions that q selects. q must have no IDs.
func (m *Memory) living(q driver.SessionQuery, now time.Time) []string {
	limit := q.Limit
	if limit <= 0 || limit > maxShown {
		limit = maxShown
	}
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		s := m.sessions[id]
		if id > q.After && len(ids) < limit && !lapsed(s, now) && (q.Observing == "" || slices.Contains(s.observes, q.Observing)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Observe implements [driver.Store].
func (m *Memory) Observe(ctx context.Context, session string, seq int64, keys []string) error {
	_, err := m.begin(ctx, MethodObserve)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil || s.Expired {
		return expiredError(session)
	}
	if seq > s.list {
		s.list, s.observes = seq, slices.Clone(keys)
		m.wrote()
	}
	return nil
}
