package dsynctest_test

import (
	"context"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongAcquires are defects of Acquire and Load.
func wrongAcquires() []plant {
	return []plant{
		{"Load makes a record", "Load/UnusedKeyIsZero", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (driver.State, error) {
				s, err := m.Load(ctx, key, 1000)
				if s.Kind == "" {
					s.Kind = driver.KindMutex
				}
				return s, err
			}
		}},
		{"Load reads other times than Acquire returned", "Load/AsAcquired_B25", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (driver.State, error) {
				s, err := m.Load(ctx, key, 1000)
				for i := range s.Holders {
					s.Holders[i].Since = s.Holders[i].Since.Add(time.Microsecond)
				}
				return s, err
			}
		}},
		{"the state is as before the command", "Acquire/GrantsFreeKey", staleState},
		{"the queue is as before the command", "Acquire/JoinsQueue", staleState},
		{"a late Acquire joins a free key", "Acquire/AfterNotAfterJoinsNothing", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); len(s.Holders) == 0 {
					notAfter = s.Now.Add(time.Hour)
				}
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
		{"a repeated Acquire is granted again", "Acquire/HolderMayRepeat", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				storecmd.Release(ctx, m, c, driver.Release{})
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
		{"keys fold case", "Acquire/KeysAreApart", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				c.Key = strings.ToLower(c.Key)
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
	}
}

func staleState(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		s, _ := m.Load(ctx, c.Key, 1000)
		_, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
		return s, n, err
	}
}

// wrongTerms are defects in how an election's grants are counted.
func wrongTerms() []plant {
	return []plant{
		{"grants of one command are one term", "Term/CountsEachOfSeveralGrants", seen(func(s *driver.State) {
			s.Term -= int64(max(0, len(s.Holders)-1))
		})},
		{"waiters count", "Term/OnlyGrantsCount", seen(func(s *driver.State) { s.Term += int64(s.Waiting) })},
		{"notices have no terms", "Notice/GrantCarriesItsTerm", reading(func(n *driver.Notice) { n.Term = 0 })},
		{"notices have terms of other kinds", "Notice/GrantCarriesItsTerm", reading(func(n *driver.Notice) { n.Term = max(n.Term, 1) })},
	}
}

// seen changes every state that Acquire and Load return.
func seen(change func(*driver.State)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			change(&s)
			return s, n, err
		}
		w.load = func(ctx context.Context, key string) (driver.State, error) {
			s, err := m.Load(ctx, key, 1000)
			change(&s)
			return s, err
		}
	}
}
