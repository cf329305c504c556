package dsynctest

import (
	"context"
	"slices"
	"strings"
	"time"
)

// sweepSlice is how many records one Sweep looks at.
const sweepSlice = 100

// maxAlive is up to where Sweep counts sessions.
const maxAlive = 1000

// Sweep implements [dsync.Store]. A slice is a hundred records.
func (m *Memory) Sweep(ctx context.Context, after string, retention time.Duration) (next string, alive int, err error) {
	now, err := m.begin(ctx, MethodSweep)
	if err != nil {
		return "", 0, err
	}
	defer m.mu.Unlock()
	old := now.Add(-retention)

	var ids []string // of the records behind the cursor, as "k/" + key and "s/" + session
	for key := range m.keys {
		ids = append(ids, "k/"+key)
	}
	for id, s := range m.sessions {
		ids = append(ids, "s/"+id)
		if alive < maxAlive && !lapsed(s, now) {
			alive++
		}
	}
	slices.Sort(ids)
	i, exact := slices.BinarySearch(ids, after)
	if exact {
		i++
	}
	ids = ids[i:]
	if len(ids) > sweepSlice {
		ids = ids[:sweepSlice]
		next = ids[sweepSlice-1]
	}
	for _, id := range ids {
		if key, ok := strings.CutPrefix(id, "k/"); ok {
			if m.keys[key].idle(old) {
				delete(m.keys, key)
				m.wrote(key, effect{})
			}
		} else if session := strings.TrimPrefix(id, "s/"); lapsed(m.sessions[session], now) && m.sessions[session].At.Before(old) {
			delete(m.sessions, session)
			m.writes++
		}
	}
	return next, alive, nil
}

// lapsed reports whether a session is dead or could be buried.
func lapsed(s *member, now time.Time) bool {
	return s.Dead || !now.Before(s.At.Add(s.TTL))
}
