package dsynctest_test

import (
	"context"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongAcquires are defects of Acquire and Load.
func wrongAcquires() []plant {
	return []plant{
		{"Load makes a record", "Load/UnusedKeyIsZero", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				if s.Kind == "" {
					s.Kind = dsync.KindMutex
				}
				return s, err
			}
		}},
		{"Load reads other times than Acquire returned", "Load/AsAcquired_B25", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				for i := range s.Holders {
					s.Holders[i].Since = s.Holders[i].Since.Add(time.Microsecond)
				}
				return s, err
			}
		}},
		{"the state is as before the command", "Acquire/GrantsFreeKey", staleState},
		{"the line is as before the command", "Acquire/JoinsLine", staleState},
		{"a repeated try gives up what it was granted", "Acquire/TryIsGranted", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); !wait && holds(s, c) {
					m.Release(ctx, c, dsync.Outcome{})
					return m.Load(ctx, c.Key)
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"a late Acquire joins a free key", "Acquire/AfterNotAfterJoinsNothing", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); len(s.Holders) == 0 {
					notAfter = s.Now.Add(time.Hour)
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"a late Acquire hides its own claim", "Acquire/AfterNotAfterReportsOwnClaim", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if s.Now.After(notAfter) {
					s.Holders, s.Place = nil, 0
				}
				return s, err
			}
		}},
		{"a try leaves its claim in line", "Acquire/TryLeavesNothing", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, _ bool, dead []string, notAfter time.Time) (dsync.State, error) {
				return m.Acquire(ctx, c, true, dead, notAfter)
			}
		}},
		{"a repeated Acquire joins twice", "Acquire/WaiterMayRepeat", func(m *dsynctest.Memory, w *wrong) {
			asked := make(map[string]bool)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if asked[c.ID] {
					c.ID += "again"
				}
				asked[c.ID] = true
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"a repeated Acquire is granted again", "Acquire/HolderMayRepeat", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				m.Release(ctx, c, dsync.Outcome{})
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"keys fold case", "Acquire/KeysAreApart", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				c.Key = strings.ToLower(c.Key)
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
	}
}

func staleState(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
		s, _ := m.Load(ctx, c.Key)
		_, err := m.Acquire(ctx, c, wait, dead, notAfter)
		return s, err
	}
}
