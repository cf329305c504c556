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
)

// A Memory is a [driver.Store] in the memory of this process, for tests. It stands in for
// the server that processes share. Its clock is the host's (in a bubble of
// testing/synctest, the bubble's), shifted by [Memory.Skew] and truncated to milliseconds
// like MongoDB's. It starts no goroutines.
//
// Create a Memory with [NewMemory]; it must not be copied. All its methods may be called
// concurrently.
type Memory struct {
	// Polling makes the Memory behave like a database that can't notify: Listen returns
	// an error that is [errors.ErrUnsupported], and commands return no notices. Set it
	// before first use. Default false.
	Polling bool

	mu        sync.Mutex
	skew      time.Duration
	sessions  map[string]*member
	keys      map[string]*record
	listeners map[string]map[*noticeQueue]bool // by session
	observers map[string]map[*noticeQueue]bool // by key
	swept     driver.SweepState
	commands  map[Method]int
	writes    int
}

var _ driver.Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		sessions:  make(map[string]*member),
		keys:      make(map[string]*record),
		listeners: make(map[string]map[*noticeQueue]bool),
		observers: make(map[string]map[*noticeQueue]bool),
		commands:  make(map[Method]int),
	}
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

// Records returns the keys that have a record, in order. It does not count as a command.
func (m *Memory) Records() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.keys))
}

// Sessions returns the ids of the sessions that have a record, expired ones included, in
// order. It does not count as a command.
func (m *Memory) Sessions() []string {
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

func notHeldError(c driver.Claim) error {
	return fmt.Errorf("dsynctest: %w: claim %s of key %q", driver.ErrNotHeld, c.ID, c.Key)
}

func expiredError(session string) error {
	return fmt.Errorf("dsynctest: %w: %s", driver.ErrSessionExpired, session)
}

// Acquire implements [driver.Store].
func (m *Memory) Acquire(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
	now, err := m.begin(ctx, MethodAcquire)
	if err != nil {
		return driver.State{}, nil, err
	}
	defer m.mu.Unlock()
	if c.Weight < 1 || c.Weight > c.Limit {
		// The claim could never be granted, and would block the queue.
		return driver.State{}, nil, fmt.Errorf("dsynctest: %w: claim %s has weight %d, it must be from 1 to its limit %d",
			driver.ErrRefused, c.ID, c.Weight, c.Limit)
	}
	r := m.keys[c.Key]
	if r == nil {
		r = newRecord()
	}
	fx, err := r.acquire(c, wait, expired, notAfter, now)
	if err != nil {
		return driver.State{}, nil, err
	}
	if fx.changed {
		m.keys[c.Key] = r
		m.writes++
	}
	return r.state(c.Key, c.ID, now, maxAhead), m.notices(c.Key, c.ID, fx), nil
}

// Release implements [driver.Store].
func (m *Memory) Release(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
	now, err := m.begin(ctx, MethodRelease)
	if err != nil {
		return false, nil, err
	}
	defer m.mu.Unlock()
	if o.Seal && len(o.Result) > maxValue {
		return false, nil, fmt.Errorf("dsynctest: %w: the result for key %q has %d bytes, it may have %d", driver.ErrRefused, c.Key, len(o.Result), maxValue)
	}
	r := m.keys[c.Key]
	if r == nil {
		return false, nil, nil
	}
	fx, found, err := r.release(c.ID, o, now)
	if err != nil {
		return false, nil, err
	}
	if fx.changed {
		m.writes++
	}
	return found, m.notices(c.Key, c.ID, fx), nil
}

// Extend implements [driver.Store].
func (m *Memory) Extend(ctx context.Context, c driver.Claim) (driver.Holder, error) {
	now, err := m.begin(ctx, MethodExtend)
	if err != nil {
		return driver.Holder{}, err
	}
	defer m.mu.Unlock()
	r := m.keys[c.Key]
	if r == nil || c.Lease <= 0 {
		return driver.Holder{}, notHeldError(c)
	}
	h, changed, held := r.extend(c, now)
	if !held {
		return driver.Holder{}, notHeldError(c)
	}
	if changed {
		m.writes++
	}
	return h, nil
}

// Discard implements [driver.Store].
func (m *Memory) Discard(ctx context.Context, claims []driver.Claim) (notices []driver.Notice, err error) {
	now, err := m.begin(ctx, MethodDiscard)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for _, c := range claims {
		r := m.keys[c.Key]
		if r == nil || slices.ContainsFunc(r.holders, func(h driver.Holder) bool { return h.Claim == c.ID && !h.Until.IsZero() }) {
			continue
		}
		fx, _, err := r.release(c.ID, driver.ReleaseOptions{}, now)
		if err != nil {
			return nil, err
		}
		if fx.changed {
			m.writes++
		}
		notices = append(notices, m.notices(c.Key, c.ID, fx)...)
	}
	return notices, nil
}

// Publish implements [driver.Store].
func (m *Memory) Publish(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
	now, err := m.begin(ctx, MethodPublish)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if len(value) > maxValue {
		return nil, fmt.Errorf("dsynctest: %w: the value for key %q has %d bytes, it may have %d", driver.ErrRefused, c.Key, len(value), maxValue)
	}
	r := m.keys[c.Key]
	if r == nil {
		return nil, notHeldError(c)
	}
	held, changed := r.publish(c.ID, seq, value, now)
	if !held {
		return nil, notHeldError(c)
	}
	if changed {
		m.writes++
	}
	return m.notices(c.Key, c.ID, effect{changed: changed}), nil
}

// Resize implements [driver.Store].
func (m *Memory) Resize(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
	now, err := m.begin(ctx, MethodResize)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if limit < 1 {
		return nil, fmt.Errorf("dsynctest: %w: limit %d for key %q, it must be at least 1", driver.ErrRefused, limit, key)
	}
	r := m.keys[key]
	if r == nil {
		r = newRecord()
	}
	fx, err := r.resize(key, kind, from, limit, now)
	if err != nil {
		return nil, err
	}
	if fx.changed {
		m.keys[key] = r
		m.writes++
	}
	return m.notices(key, "", fx), nil
}

// Load implements [driver.Store].
func (m *Memory) Load(ctx context.Context, key string) (driver.State, error) {
	now, err := m.begin(ctx, MethodLoad)
	if err != nil {
		return driver.State{}, err
	}
	defer m.mu.Unlock()
	r := m.keys[key]
	if r == nil {
		return driver.State{Key: key, Now: now}, nil
	}
	return r.state(key, "", now, maxShown), nil
}

// Queue implements [driver.Store].
func (m *Memory) Queue(ctx context.Context, key string) ([]driver.Waiter, error) {
	now, err := m.begin(ctx, MethodQueue)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	r := m.keys[key]
	if r == nil {
		return nil, nil
	}
	return r.state(key, "", now, len(r.queue)).WaitersAhead, nil
}

// Keys implements [driver.Store]. Keys that nobody holds or waits for are among
// them for as long as they have a record.
func (m *Memory) Keys(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
	now, err := m.begin(ctx, MethodKeys)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var keys []string
	for key := range m.keys {
		if key > after && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var states []driver.State
	for _, key := range keys[:max(0, min(len(keys), n, maxShown))] {
		states = append(states, m.keys[key].state(key, "", now, maxAhead))
	}
	return states, nil
}

// Counts is how much work a [Memory] was given.
type Counts struct {
	// Commands is the number of calls of each method. Those whose ctx had ended
	// before the call are not among them.
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

// Since returns what was counted after the earlier counts before. Methods that
// were not called since are not in its map.
func (c Counts) Since(before Counts) Counts {
	d := Counts{Commands: maps.Clone(c.Commands), Writes: c.Writes - before.Writes}
	for m := range d.Commands {
		if d.Commands[m] -= before.Commands[m]; d.Commands[m] == 0 {
			delete(d.Commands, m)
		}
	}
	return d
}
