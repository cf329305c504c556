package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongTerms are defects of the count of an election's grants.
func wrongTerms() []plant {
	return []plant{
		{"hand-overs are no terms", "Term/CountsEveryGrant", func(m *dsynctest.Memory, w *wrong) {
			terms := make(map[string]int64)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				before, _ := m.Load(ctx, c.Key)
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if holds(s, c) && !holds(before, c) {
					terms[c.Key]++
				}
				s.Term = terms[c.Key]
				return s, err
			}
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				s.Term = terms[key]
				return s, err
			}
		}},
		{"grants of one command are one term", "Term/CountsEveryGrant", seen(func(s *dsync.State) {
			s.Term -= int64(max(0, len(s.Holders)-1))
		})},
		{"a key that nobody leads has no term", "Term/CountsEveryGrant", seen(func(s *dsync.State) {
			if len(s.Holders) == 0 {
				s.Term = 0
			}
		})},
		{"a repeated Acquire is a term", "Term/OnlyGrantsCount", func(m *dsynctest.Memory, w *wrong) {
			more := make(map[string]int64)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); holds(s, c) {
					more[c.Key]++
				}
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				s.Term += more[c.Key]
				return s, err
			}
		}},
		{"who waits counts", "Term/OnlyGrantsCount", seen(func(s *dsync.State) { s.Term += int64(s.Waiting) })},
		{"other kinds have terms", "Term/ZeroOfOtherKinds", seen(func(s *dsync.State) {
			if s.Kind != dsync.KindElection && s.Token > 0 {
				s.Term = 1
			}
		})},
		{"another kind begins terms again", "Term/ZeroOfOtherKinds", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); s.Kind != c.Kind {
					m.Forget(true)
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"Watch tells no terms", "Watch/GrantCarriesItsTerm", told(func(e *dsync.Event) { e.Term = 0 })},
		{"Watch tells terms of other kinds", "Watch/GrantCarriesItsTerm", told(func(e *dsync.Event) { e.Term = max(e.Term, 1) })},
	}
}

// seen changes every state that is returned.
func seen(change func(*dsync.State)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
			s, err := m.Acquire(ctx, c, wait, dead, notAfter)
			change(&s)
			return s, err
		}
		w.load = func(ctx context.Context, key string) (dsync.State, error) {
			s, err := m.Load(ctx, key)
			change(&s)
			return s, err
		}
	}
}

// told changes every grant that is reported.
func told(change func(*dsync.Event)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
			return m.Watch(ctx, id, keys, func(e dsync.Event) {
				if e.Type == dsync.EventGrant {
					change(&e)
				}
				f(e)
			})
		}
	}
}
