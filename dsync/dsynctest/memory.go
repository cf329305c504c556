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
	// Polling makes Watch and Listen return an error that is [errors.ErrUnsupported], as a
	// database without change streams does. It must be set before first use.
	Polling bool

	mu       sync.Mutex
	skew     time.Duration
	sessions map[string]*member
	keys     map[string]*record
	watches  map[string]map[*watch]bool // by session
	watched  map[string]map[*watch]bool // by key
	listens  map[string]map[*watch]bool // by session
	swept    dsync.SweepState
	commands map[Method]int
	writes   int
}

var _ dsync.Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		sessions: make(map[string]*member),
		keys:     make(map[string]*record),
		watches:  make(map[string]map[*watch]bool),
		watched:  make(map[string]map[*watch]bool),
		listens:  make(map[string]map[*watch]bool),
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

// Records returns the keys of which there is a record, in order. It is not
// counted as a command.
func (m *Memory) Records() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.keys))
}

// Sessions returns the ids of which there is a record, also of the dead, in order. It is
// not counted as a command.
func (m *Memory) Sessions() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.sessions))
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

func notHeldError(c dsync.Claim) error {
	return fmt.Errorf("dsynctest: %w: claim %s of key %q", dsync.ErrNotHeld, c.ID, c.Key)
}

func deadError(session string) error {
	return fmt.Errorf("dsynctest: %w: %s", dsync.ErrSessionDead, session)
}
