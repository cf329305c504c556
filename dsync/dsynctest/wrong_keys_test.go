package dsynctest_test

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongKeys are defects of Keys.
func wrongKeys() []plant {
	return []plant{
		{"prefixes are patterns", "Keys/WithThatPrefix", matching(func(key, prefix string) bool {
			ok, _ := regexp.MatchString("^"+prefix, key)
			return ok
		})},
		{"prefixes fold case", "Keys/WithThatPrefix", matching(func(key, prefix string) bool {
			return strings.HasPrefix(strings.ToLower(key), strings.ToLower(prefix))
		})},
		{"prefixes may be anywhere", "Keys/WithThatPrefix", matching(strings.Contains)},
		{"a key is no prefix of itself", "Keys/WithThatPrefix", matching(func(key, prefix string) bool {
			return strings.HasPrefix(key, prefix) && key != prefix
		})},
		{"prefixes end with U+FFFF", "Keys/WithThatPrefix", matching(func(key, prefix string) bool {
			return key >= prefix && key < prefix+"\uffff" && !strings.HasPrefix(key, prefix+"\uffff")
		})},
		{"keys are in the order of a dictionary", "Keys/InTheOrderOfTheirBytes", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
				slices.SortStableFunc(states, func(a, b driver.State) int { return cmp.Compare(strings.ToLower(a.Key), strings.ToLower(b.Key)) })
				return states, err
			}
		}},
		{"a page may have fewer that match", "Keys/AfterAndUpToN", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{After: after, Limit: n})
				return slices.DeleteFunc(states, func(s driver.State) bool { return !strings.HasPrefix(s.Key, prefix) }), err
			}
		}},
		{"none are all", "Keys/AfterAndUpToN", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				return m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: cmp.Or(n, 1000)})
			}
		}},
		{"Keys has no values", "Keys/AsLoadHasThem", listed(func(s *driver.State) { s.Value = nil })},
		{"Keys has no time", "Keys/AsLoadHasThem", listed(func(s *driver.State) { s.Now = time.Time{} })},
		{"Keys has no holders", "Keys/AsLoadHasThem", listed(func(s *driver.State) { s.Holders = nil })},
		{"Keys has no weights", "Keys/AsLoadHasThem", listed(func(s *driver.State) {
			for i := range s.Holders {
				s.Holders[i].Weight = 1
			}
		})},
		{"Keys has no queue", "Keys/AsLoadHasThem", listed(func(s *driver.State) { s.WaitersAhead = nil })},
		{"Keys has those in the queue that are shown", "Keys/AsLoadHasThem", listed(func(s *driver.State) { s.Waiting = len(s.WaitersAhead) })},
		{"Keys has no terms", "Keys/AsLoadHasThem", listed(func(s *driver.State) { s.Term = 0 })},
		{"no prefix is nothing", "Keys/WithoutPrefixAreAll", matching(func(key, prefix string) bool {
			return prefix != "" && strings.HasPrefix(key, prefix)
		})},
		{"the keys that are named are in their order", "Keys/ThoseThatAreNamed", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			slices.SortFunc(states, func(a, b driver.State) int { return slices.Index(q.Keys, a.Key) - slices.Index(q.Keys, b.Key) })
			return states
		})},
		{"a key that is named has a record", "Keys/ThoseThatAreNamed", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			return append(states, driver.State{Key: q.Keys[0] + "more"})
		})},
		{"a key that is named and has no record is found", "Keys/WhatASessionHolds", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			return append(states, driver.State{Key: q.Keys[len(q.Keys)-1]})
		})},
		{"what others hold is the session's", "Keys/WhatASessionHolds", func(m *dsynctest.Memory, w *wrong) {
			w.own = func(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
				q.Session = ""
				return m.Keys(ctx, q)
			}
		}},
		{"a session holds nothing", "Keys/WhatASessionHolds", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			for i := range states {
				states[i].Holders = nil
			}
			return states
		})},
		{"a session's lease has no end", "Keys/WhatASessionHolds", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			for i := range states {
				for j := range states[i].Holders {
					states[i].Holders[j].Until = time.Time{}
				}
			}
			return states
		})},
		{"a session holds one part", "Keys/WhatASessionHolds", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			for i := range states {
				states[i].Holders = states[i].Holders[:min(1, len(states[i].Holders))]
			}
			return states
		})},
		{"Keys has a hundred", "Keys/AtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				return m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: min(n, 100)})
			}
		}},
	}
}

// matching makes Keys select the keys that match accepts instead of those with the prefix.
func matching(match func(key, prefix string) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
			states, err := m.Keys(ctx, driver.KeyQuery{After: after, Limit: 1000})
			states = slices.DeleteFunc(states, func(s driver.State) bool { return !match(s.Key, prefix) })
			return states[:min(n, len(states))], err
		}
	}
}

// named changes the states that Keys returns for a query with KeyQuery.Keys.
func named(change func(q driver.KeyQuery, states []driver.State) []driver.State) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.own = func(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
			states, err := m.Keys(ctx, q)
			return change(q, states), err
		}
	}
}

// listed changes every state that Keys returns.
func listed(change func(*driver.State)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
			states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
			for i := range states {
				change(&states[i])
			}
			return states, err
		}
	}
}
