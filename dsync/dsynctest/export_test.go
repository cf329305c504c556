package dsynctest

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// CaseNames returns the names of the conformance cases.
func CaseNames() []string {
	var names []string
	for _, c := range conformance() {
		names = append(names, c.name)
	}
	return names
}

// RunCase runs one conformance case. It reports false if there is none of that
// name.
func RunCase(t testing.TB, name string, store driver.Store) bool {
	for _, c := range conformance() {
		if c.name == name {
			c.run(t, store)
			return true
		}
	}
	return false
}

// Forget deletes the records of keys that nobody holds or waits for, whatever
// their tokens, if unused is set, else of all keys.
func (m *Memory) Forget(unused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.keys {
		if !unused || len(r.holders)+len(r.queue) == 0 {
			delete(m.keys, key)
		}
	}
}

// ForgetSessions deletes the sessions whose last heartbeat is older than age.
func (m *Memory) ForgetSessions(age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.sessions {
		if time.Now().Add(m.skew).Sub(s.LastHeartbeat) > age {
			delete(m.sessions, id)
		}
	}
}

// Swept returns how far sweeping has come.
func (m *Memory) Swept() driver.SweepState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.swept
}

// SweptTo moves the cursor.
func (m *Memory) SweptTo(after string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swept.After = after
}

// SetUntil moves the end of a hold that has one, and reports whether there is
// such a hold.
func (m *Memory) SetUntil(c driver.Claim, until time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.keys[c.Key]; r != nil {
		for i := range r.holders {
			if h := &r.holders[i]; h.Claim == c.ID && !h.Until.IsZero() {
				h.Until = until
				return true
			}
		}
	}
	return false
}
