package dsynctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A member is what a [Memory] keeps of one session.
type member struct {
	dsync.Member
	revoked []dsync.Revocation // that stand, in the order in which they came

	observes []string // keys
	list     int64    // the number of that list
}

// Register implements [dsync.Store].
func (m *Memory) Register(ctx context.Context, s dsync.Member) (time.Time, error) {
	now, err := m.begin(ctx, MethodRegister)
	if err != nil {
		return time.Time{}, err
	}
	defer m.mu.Unlock()
	if m.sessions[s.ID] != nil {
		return time.Time{}, fmt.Errorf("dsynctest: %w: %s", dsync.ErrSessionExists, s.ID)
	}
	s.Meta = maps.Clone(s.Meta)
	s.TTL = ceilMilli(s.TTL)
	s.At, s.Dead = now, false
	m.sessions[s.ID] = &member{Member: s}
	m.writes++
	return now, nil
}

// Heartbeat implements [dsync.Store].
func (m *Memory) Heartbeat(ctx context.Context, session string, given []dsync.Revocation) (dsync.Pulse, error) {
	now, err := m.begin(ctx, MethodHeartbeat)
	if err != nil {
		return dsync.Pulse{}, err
	}
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil || s.Dead {
		return dsync.Pulse{}, deadError(session)
	}
	stand := without(s.revoked, func(r dsync.Revocation) bool { return slices.Contains(given, r) })
	if !s.At.Equal(now) || len(stand) != len(s.revoked) {
		s.At, s.revoked = now, stand
		m.writes++
	}
	return dsync.Pulse{Now: now, Revoked: slices.Clone(stand)}, nil
}

// Bury implements [dsync.Store].
func (m *Memory) Bury(ctx context.Context, session string) (time.Duration, error) {
	now, err := m.begin(ctx, MethodBury)
	if err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil && !s.Dead {
		if left := s.At.Add(s.TTL).Sub(now); left > 0 {
			return left, nil
		}
	}
	m.kill(session, now)
	return 0, nil
}

// Unregister implements [dsync.Store].
func (m *Memory) Unregister(ctx context.Context, session string) error {
	now, err := m.begin(ctx, MethodUnregister)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.kill(session, now)
	return nil
}

// kill makes a session dead, by a tombstone if it is unknown.
func (m *Memory) kill(session string, now time.Time) {
	s := m.sessions[session]
	switch {
	case s == nil:
		m.sessions[session] = &member{Member: dsync.Member{ID: session, At: now, Dead: true}}
	case s.Dead:
		return
	default:
		s.Dead, s.revoked = true, nil
	}
	m.writes++
}

// Revoke implements [dsync.Store].
func (m *Memory) Revoke(ctx context.Context, session string, r dsync.Revocation) error {
	_, err := m.begin(ctx, MethodRevoke)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil || s.Dead {
		return deadError(session)
	}
	if slices.Contains(s.revoked, r) {
		return nil
	}
	s.revoked = append(s.revoked, r)
	m.writes++
	m.tell(session, dsync.Event{Type: dsync.EventRevoke, Key: r.Key, Claim: r.Claim})
	return nil
}

// Members implements [dsync.Store]. They come in the order of the ids.
func (m *Memory) Members(ctx context.Context, ids ...string) ([]dsync.Member, time.Time, error) {
	now, err := m.begin(ctx, MethodMembers)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer m.mu.Unlock()
	if len(ids) == 0 {
		ids = m.living(now)
	}
	var found []dsync.Member
	for _, id := range ids {
		if s := m.sessions[id]; s != nil {
			c := s.Member
			c.Meta = maps.Clone(s.Meta)
			found = append(found, c)
		}
	}
	return found, now, nil
}

// Lives implements [dsync.Store]. They come in the order of the ids.
func (m *Memory) Lives(ctx context.Context, ids ...string) ([]dsync.Member, time.Time, error) {
	now, err := m.begin(ctx, MethodLives)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer m.mu.Unlock()
	var found []dsync.Member
	for _, id := range ids {
		if s := m.sessions[id]; s != nil {
			found = append(found, dsync.Member{ID: id, TTL: s.TTL, At: s.At, Dead: s.Dead})
		}
	}
	return found, now, nil
}

// living returns the ids of up to 1,000 sessions that are alive, in order.
func (m *Memory) living(now time.Time) []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if len(ids) < maxShown && !lapsed(m.sessions[id], now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Observe implements [dsync.Store].
func (m *Memory) Observe(ctx context.Context, session string, seq int64, keys []string) error {
	_, err := m.begin(ctx, MethodObserve)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil || s.Dead {
		return deadError(session)
	}
	if seq > s.list {
		s.list, s.observes = seq, slices.Clone(keys)
		m.writes++
	}
	return nil
}

// Observers implements [dsync.Store].
func (m *Memory) Observers(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
	now, err := m.begin(ctx, MethodObservers)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var found []dsync.Member
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		s := m.sessions[id]
		if id > after && len(found) < min(n, maxShown) && !lapsed(s, now) && slices.Contains(s.observes, key) {
			c := s.Member
			c.Meta = maps.Clone(s.Meta)
			found = append(found, c)
		}
	}
	return found, nil
}
