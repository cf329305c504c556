package dsynctest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/model"
)

// RunInBubbles is like [TestStore], but runs each subtest in its own bubble, so that waiting takes no time. It calls
// newStore inside the bubble.
func RunInBubbles(t *testing.T, newStore func(t *testing.T) driver.Store) {
	for _, c := range conformance() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, newStore(t)) })
		})
	}
}

// CaseNames returns the names of the conformance cases.
func CaseNames() []string {
	var names []string
	for _, c := range conformance() {
		names = append(names, c.name)
	}
	return names
}

// Scripts returns the names of the cases that are scripts, each with the number of edits that make the first state of each
// of its scripts.
func Scripts() map[string][]int {
	setups := make(map[string][]int)
	for _, row := range scripts() {
		for text := range strings.SplitSeq(row.text, "//") {
			first, _, _ := strings.Cut(text, ";")
			setups[row.name] = append(setups[row.name], len(strings.Fields(strings.ReplaceAll(first, "|", " "))))
		}
	}
	return setups
}

// SessionScripts returns the names of the cases that are scripts of sessions, each with the number of sessions in its first
// state.
func SessionScripts() map[string]int {
	sessions := make(map[string]int)
	for _, row := range sessionScripts() {
		first, _, _ := strings.Cut(row.text, ";")
		sessions[row.name] = len(strings.Fields(first))
	}
	return sessions
}

// RunCase runs one conformance case. It returns false if there is no case of that name.
func RunCase(t testing.TB, name string, store driver.Store) bool {
	for _, c := range conformance() {
		if c.name == name {
			c.run(t, store)
			return true
		}
	}
	return false
}

// Forget deletes the records of all keys or, if unused is set, only of keys that nobody holds or waits for. The keys'
// tokens are lost.
func (m *Memory) Forget(unused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.keys {
		if !unused || !r.InUse() {
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

// SetUntil changes the end of the claim's hold. It returns false if there is no such hold, or if the hold has no end.
func (m *Memory) SetUntil(c driver.Claim, until time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.keys[c.Key]
	for i := range r.Holders {
		if h := &r.Holders[i]; h.Claim == c.ID && !h.Until.IsZero() {
			h.Until = until
			return true
		}
	}
	return false
}

// Record returns the record of a key.
func (m *Memory) Record(key string) model.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[key]
}

// Observed reports whether somebody listens to changes of a key.
func (m *Memory) Observed(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.observers[key]) > 0
}
