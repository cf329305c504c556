package dsynctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/model"
)

const (
	maxAhead = 8    // waiters in State.WaitersAhead, except for Load
	maxShown = 1000 // the greatest number of sessions that Sessions without IDs returns, and of keys that Keys returns
)

// A Memory is a [driver.Store] in the memory of this process, for tests. It takes the place of the server that
// processes share. Its clock is the host's (in a bubble of testing/synctest, the bubble's), shifted by [Memory.Skew]
// and truncated to milliseconds like MongoDB's. A Memory starts no goroutines.
//
// Create a Memory with [NewMemory]; it must not be copied. All its methods may be called
// concurrently.
type Memory struct {
	// Polling makes the Memory behave like a database that can't notify: Listen returns
	// an error that matches [errors.ErrUnsupported], and commands return no notices. Set
	// Polling before the first use of the Memory. Default false.
	Polling bool

	mu        sync.Mutex
	skew      time.Duration
	sessions  map[string]*member
	keys      map[string]model.Record
	listeners map[string]map[*noticeQueue]bool // by session
	observers map[string]map[*noticeQueue]bool // by key
	swept     driver.SweepState
	commands  map[Method]int
	writes    int
	term      int64   // 1 plus the number of fail-overs
	early     []early // the last writes, as long as they are Releases with Early
}

var (
	_ driver.Store = (*Memory)(nil)
	_ driver.Namer = (*Memory)(nil)
)

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		sessions:  make(map[string]*member),
		keys:      make(map[string]model.Record),
		listeners: make(map[string]map[*noticeQueue]bool),
		observers: make(map[string]map[*noticeQueue]bool),
		commands:  make(map[Method]int),
		term:      1,
	}
}

// An early is a Release with Early that is not committed yet.
type early struct {
	key    string
	before model.Record
}

// FailOver makes the Memory behave as if the primary failed and another member took its place. It undoes every Release
// with Early that is not committed yet. The former primary that it returns is the Memory as it was, without listeners.
// Use it to test what happens if some requests still reach the former primary.
func (m *Memory) FailOver() (former *Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	former = NewMemory()
	former.Polling, former.skew, former.term, former.writes, former.swept = m.Polling, m.skew, m.term, m.writes, m.swept
	for id, s := range m.sessions {
		s := *s
		s.revoked = slices.Clone(s.revoked)
		former.sessions[id] = &s
	}
	for key, r := range m.keys {
		former.keys[key] = r.Clip()
	}
	for _, e := range slices.Backward(m.early) {
		m.keys[e.key] = e.before
	}
	m.early = nil
	m.term++
	return former
}

// Skew shifts the store's clock by d, forward if d is positive, in addition to earlier
// shifts. It may be called at any time. Stored times stay as they are, as when a server's
// clock is set.
func (m *Memory) Skew(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew += d
}

// Counts returns the numbers of commands and writes since the Memory was created.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counts{Commands: maps.Clone(m.commands), Writes: m.writes}
}

// Records returns the keys that have a record, in order. The call does not count as a command.
func (m *Memory) Records() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.keys))
}

// SessionRecords returns the ids of the sessions that have a record, expired ones included, in order. The call does
// not count as a command.
func (m *Memory) SessionRecords() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.sessions))
}

// begin starts a command: it locks m.mu, which the caller unlocks, and reads the clock for
// the whole command. If ctx has ended it returns an error and locks nothing.
func (m *Memory) begin(ctx context.Context, method Method) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	m.mu.Lock()
	m.commands[method]++
	return time.Now().Add(m.skew).UTC().Truncate(time.Millisecond), nil
}

func expiredError(session string) error {
	return fmt.Errorf("dsynctest: %w: %s", driver.ErrSessionExpired, session)
}

// Edit implements [driver.Store].
func (m *Memory) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	now, err := m.begin(ctx, editMethod(e))
	if err != nil {
		return driver.Edited{}, err
	}
	defer m.mu.Unlock()
	key := e.Key()
	before := m.keys[key]
	after, did, err := before.Edit(e, now)
	if err != nil {
		return driver.Edited{}, err
	}
	did.Notices = m.notices(did.Notices)
	if !did.Changed {
		return did.Edited, nil
	}
	m.keys[key] = after
	uncommitted := m.early
	m.wrote()
	if e.Release != nil && before.MayAnswerEarly(*e.Release) && len(did.Notices) == 0 {
		did.Applied, m.early = m.logEnd(), append(uncommitted, early{key, before.Clip()})
	}
	return did.Edited, nil
}

// wrote counts a write, which also commits all earlier writes. m.mu must be held.
func (m *Memory) wrote() {
	m.writes++
	m.early = nil
}

// logEnd returns the position of the end of the log. m.mu must be held.
func (m *Memory) logEnd() driver.OpTime { return driver.OpTime{Term: m.term, Time: uint64(m.writes)} }

// Discard implements [driver.Store].
func (m *Memory) Discard(ctx context.Context, claims []driver.Claim) (notices []driver.Notice, err error) {
	now, err := m.begin(ctx, MethodDiscard)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	m.early = nil // Discard commits all earlier writes
	for _, c := range claims {
		after, did := m.keys[c.Key].Discard(c, now)
		if did.Changed {
			m.keys[c.Key] = after
			m.wrote()
		}
		notices = append(notices, m.notices(did.Notices)...)
	}
	return notices, nil
}

// Load implements [driver.Store].
func (m *Memory) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	now, err := m.begin(ctx, loadMethod(waiters))
	if err != nil {
		return driver.State{}, err
	}
	defer m.mu.Unlock()
	return m.keys[key].State(key, "", now, max(1, waiters)), nil
}

// Keys implements [driver.Store]. It also returns keys that nobody holds or waits for, as long as they have
// records.
func (m *Memory) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	now, err := m.begin(ctx, keysMethod(q))
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var keys []string
	limit := q.Limit
	if len(q.Keys) > 0 {
		keys, limit = slices.Clone(q.Keys), len(q.Keys)
		keys = slices.DeleteFunc(keys, func(key string) bool { _, has := m.keys[key]; return !has })
	} else {
		for key := range m.keys {
			if key > q.After && strings.HasPrefix(key, q.Prefix) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	var states []driver.State
	for _, key := range keys[:max(0, min(len(keys), limit, maxShown))] {
		if q.Session != "" {
			states = append(states, driver.State{Key: key, Holders: m.keys[key].HeldBy(q.Session)})
			continue
		}
		states = append(states, m.keys[key].State(key, "", now, maxAhead))
	}
	return states, nil
}

// DeleteRecord deletes the record of a key, as an operator or a clean-up job may do in a database. Sessions never
// delete the record of a key that is in use. The key's holder finds out that the record is gone: see
// dsync.ErrRecordDeleted. The call does not count as a command.
func (m *Memory) DeleteRecord(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, key)
	m.wrote()
}

// RecordName implements [driver.Namer].
func (m *Memory) RecordName(key string) string { return fmt.Sprintf("key %q in memory", key) }

// Counts tells how many commands and writes a [Memory] has executed.
type Counts struct {
	// Commands is the number of calls of each method, except calls whose ctx had already ended.
	Commands map[Method]int

	// Writes is the number of records that were written or deleted. A command
	// that changes nothing writes nothing.
	Writes int
}

// Total returns the number of commands of all methods.
func (c Counts) Total() int {
	n := 0
	for _, k := range c.Commands {
		n += k
	}
	return n
}

// Since returns the difference between c and the Counts earlier. The map of the result leaves out methods that were not
// called in between.
func (c Counts) Since(before Counts) Counts {
	d := Counts{Commands: maps.Clone(c.Commands), Writes: c.Writes - before.Writes}
	for m := range d.Commands {
		if d.Commands[m] -= before.Commands[m]; d.Commands[m] == 0 {
			delete(d.Commands, m)
		}
	}
	return d
}
