package dsynctest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// sweepSlice is the greatest number of records that one Sweep reads.
const sweepSlice = 100

// Sweep implements [driver.Store]. It reads up to 100 records.
func (m *Memory) Sweep(ctx context.Context, session string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
	now, err := m.begin(ctx, MethodSweep)
	if err != nil {
		return driver.SweepState{}, err
	}
	defer m.mu.Unlock()
	st := m.swept
	st.Now = now
	if st.Turn != last.Turn {
		return st, nil
	}
	ids := m.slice(st.After)
	st.Turn, st.By, st.At = st.Turn+1, session, now
	st.Seen, st.Deleted = int64(len(ids)), 0
	for _, id := range ids {
		if m.sweepOne(id, now, now.Add(-retention)) {
			st.Deleted++
		}
	}
	st.Round += st.Seen
	if len(ids) == sweepSlice {
		st.After = ids[sweepSlice-1]
	} else {
		st.After, st.Round, st.LastRound = "", 0, st.Round
	}
	m.swept = st
	m.wrote()
	return st, nil
}

// slice returns the first records after the cursor, in order, each as "k/" + key or "s/" + session.
func (m *Memory) slice(after string) []string {
	key, inKeys := strings.CutPrefix(after, "k/")
	session, inSessions := strings.CutPrefix(after, "s/")
	var ids []string
	if !inSessions {
		for _, k := range first(sweepSlice, m.keys, key, inKeys) {
			ids = append(ids, "k/"+k)
		}
	}
	for _, k := range first(sweepSlice-len(ids), m.sessions, session, inSessions) {
		ids = append(ids, "s/"+k)
	}
	return ids
}

// first returns the n least keys of the map, in order. If beyond is set, it returns only keys that are greater than the
// argument after. It does not sort the whole map.
func first[T any](n int, from map[string]T, after string, beyond bool) []string {
	var keys []string
	last := "" // the greatest of the n least keys at the last cut; "": no cut yet
	cut := func() {
		slices.Sort(keys)
		if len(keys) >= n {
			keys = keys[:n]
			last = keys[n-1]
		}
	}
	if n == 0 {
		return nil
	}
	for k := range from {
		if beyond && k <= after || last != "" && k >= last {
			continue
		}
		if keys = append(keys, k); len(keys) == 4*n {
			cut()
		}
	}
	cut()
	return keys
}

// sweepOne deletes a record if it has been idle for longer than the retention, and reports whether it did.
func (m *Memory) sweepOne(id string, now, old time.Time) bool {
	if key, ok := strings.CutPrefix(id, "k/"); ok {
		if !m.keys[key].Idle(old) {
			return false
		}
		delete(m.keys, key)
		m.wrote()
		return true
	}
	session := strings.TrimPrefix(id, "s/")
	if s := m.sessions[session]; !lapsed(s, now) || !s.LastHeartbeat.Before(old) {
		return false
	}
	delete(m.sessions, session)
	m.wrote()
	return true
}

// lapsed reports whether a session has expired or its TTL is over.
func lapsed(s *member, now time.Time) bool {
	return s.Expired || !now.Before(s.LastHeartbeat.Add(s.TTL))
}
