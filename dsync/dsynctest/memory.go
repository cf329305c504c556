package dsynctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Memory is a [dsync.Store] in the memory of this process, for tests: what
// the server is to the processes that share it. Its clock is the host's, so
// inside a bubble of testing/synctest the bubble's, moved by [Memory.Skew] and
// cut to the millisecond like that of MongoDB. It starts no goroutines.
//
// A Memory is made by [NewMemory] and must not be copied. All its methods may
// be called concurrently.
type Memory struct {
	// Polling makes Watch return an error that is [errors.ErrUnsupported], as a
	// database without change streams does. It must be set before first use.
	Polling bool

	mu       sync.Mutex
	skew     time.Duration
	sessions map[string]*dsync.Member
	keys     map[string]*record
	watches  map[string]map[*watch]bool // by session
	watched  map[string]map[*watch]bool // by key
	commands map[Method]int
	writes   int
}

var _ dsync.Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		sessions: make(map[string]*dsync.Member),
		keys:     make(map[string]*record),
		watches:  make(map[string]map[*watch]bool),
		watched:  make(map[string]map[*watch]bool),
		commands: make(map[Method]int),
	}
}

// Skew moves the store's clock by d against the host's, forward if d is
// positive. It adds to what it was moved before, and may be called at any time:
// what is stored stays as it is, as when a server's clock is set.
func (m *Memory) Skew(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew += d
}

// Counts returns what was counted since the Memory was made.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counts{Commands: maps.Clone(m.commands), Writes: m.writes}
}

// Keys returns the keys of which there is a record, in order. It is not counted
// as a command.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.keys))
}

// begin starts a command: it locks m and reads the clock, once for all that the
// command does. If ctx has ended the command does not begin.
func (m *Memory) begin(ctx context.Context, method Method) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	m.mu.Lock()
	m.commands[method]++
	return time.Now().Add(m.skew).UTC().Truncate(time.Millisecond), nil
}

// Register implements [dsync.Store].
func (m *Memory) Register(ctx context.Context, s dsync.Member) (time.Time, error) {
	now, err := m.begin(ctx, MethodRegister)
	if err != nil {
		return time.Time{}, err
	}
	defer m.mu.Unlock()
	if old := m.sessions[s.ID]; old != nil && old.Dead {
		return time.Time{}, deadError(s.ID)
	}
	s.Meta = maps.Clone(s.Meta)
	s.TTL = ceilMilli(s.TTL)
	s.At, s.Dead = now, false
	m.sessions[s.ID] = &s
	m.writes++
	return now, nil
}

// Heartbeat implements [dsync.Store].
func (m *Memory) Heartbeat(ctx context.Context, session string) (time.Time, error) {
	now, err := m.begin(ctx, MethodHeartbeat)
	if err != nil {
		return time.Time{}, err
	}
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil || s.Dead {
		return time.Time{}, deadError(session)
	}
	if !s.At.Equal(now) {
		s.At = now
		m.writes++
	}
	return now, nil
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
		m.sessions[session] = &dsync.Member{ID: session, At: now, Dead: true}
	case s.Dead:
		return
	default:
		s.Dead = true
	}
	m.writes++
}

// Acquire implements [dsync.Store].
func (m *Memory) Acquire(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
	now, err := m.begin(ctx, MethodAcquire)
	if err != nil {
		return dsync.State{}, err
	}
	defer m.mu.Unlock()
	if c.Weight < 1 || c.Weight > c.Limit {
		// It could never be granted, and would block the line for ever.
		return dsync.State{}, fmt.Errorf("dsynctest: %w: claim %s has weight %d, it must be from 1 to its limit %d",
			dsync.ErrRefused, c.ID, c.Weight, c.Limit)
	}
	r := m.keys[c.Key]
	if r == nil {
		r = &record{inLine: make(map[string]bool)}
	}
	granted, changed, err := r.acquire(c, wait, dead, notAfter, now)
	if err != nil {
		return dsync.State{}, err
	}
	if changed {
		m.keys[c.Key] = r
		m.wrote(c.Key, granted...)
	}
	return r.state(c.Key, c.ID, now, maxAhead), nil
}

// Release implements [dsync.Store].
func (m *Memory) Release(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
	now, err := m.begin(ctx, MethodRelease)
	if err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	r := m.keys[c.Key]
	if r == nil {
		return false, nil
	}
	granted, found, changed := r.release(c.ID, o.Keep, now)
	if changed {
		m.wrote(c.Key, granted...)
	}
	return found, nil
}

// Extend implements [dsync.Store].
func (m *Memory) Extend(ctx context.Context, c dsync.Claim) (time.Time, error) {
	now, err := m.begin(ctx, MethodExtend)
	if err != nil {
		return time.Time{}, err
	}
	defer m.mu.Unlock()
	if r := m.keys[c.Key]; r != nil && c.Lease > 0 {
		for i := range r.holders {
			h := &r.holders[i]
			if h.Claim != c.ID || h.Until.IsZero() || !now.Before(h.Until) {
				continue
			}
			if end := now.Add(ceilMilli(c.Lease)); end.After(h.Until) {
				h.Until, r.used = end, now
				m.wrote(c.Key)
			}
			return h.Until, nil
		}
	}
	return time.Time{}, notHeldError(c)
}

// Publish implements [dsync.Store].
func (m *Memory) Publish(ctx context.Context, c dsync.Claim, value []byte) error {
	now, err := m.begin(ctx, MethodPublish)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	if len(value) > maxValue {
		return fmt.Errorf("dsynctest: %w: the value for key %q has %d bytes, it may have %d", dsync.ErrRefused, c.Key, len(value), maxValue)
	}
	r := m.keys[c.Key]
	if r == nil {
		return notHeldError(c)
	}
	held, changed := r.publish(c.ID, value, now)
	if !held {
		return notHeldError(c)
	}
	if changed {
		m.wrote(c.Key)
	}
	return nil
}

// Load implements [dsync.Store].
func (m *Memory) Load(ctx context.Context, key string) (dsync.State, error) {
	now, err := m.begin(ctx, MethodLoad)
	if err != nil {
		return dsync.State{}, err
	}
	defer m.mu.Unlock()
	r := m.keys[key]
	if r == nil {
		return dsync.State{Key: key, Now: now}, nil
	}
	return r.state(key, "", now, maxShown), nil
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
			c := *s
			c.Meta = maps.Clone(s.Meta)
			found = append(found, c)
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

func notHeldError(c dsync.Claim) error {
	return fmt.Errorf("dsynctest: %w: claim %s of key %q", dsync.ErrNotHeld, c.ID, c.Key)
}

func deadError(session string) error {
	return fmt.Errorf("dsynctest: %w: %s", dsync.ErrSessionDead, session)
}
