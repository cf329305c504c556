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
	"github.com/leasehold-go/leasehold/internal/storecmd"
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
		{"sessions are keys", "Keys/WithThatPrefix", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
				if found, now, _ := storecmd.Members(ctx, m, prefix); len(found) > 0 {
					states = append(states, driver.State{Key: prefix, Now: now, Kind: "session"})
				}
				return states, err
			}
		}},
		{"keys are in the order of UTF-16", "Keys/InTheOrderOfTheirBytes", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
				high := func(s driver.State) bool { return strings.ContainsAny(s.Key, "\ue000\uffff") }
				slices.SortStableFunc(states, func(a, b driver.State) int {
					return cmp.Compare(b2i(high(a)), b2i(high(b)))
				})
				return states, err
			}
		}},
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
		{"a page begins with the last of the one before", "Keys/AfterAndUpToN", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, Limit: 1000})
				i := slices.IndexFunc(states, func(s driver.State) bool { return s.Key >= after })
				states = states[max(0, i):]
				return states[:min(n, len(states))], err
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
		{"Keys has all of the queue", "Keys/AsLoadHasThem", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
				for i := range states {
					s, _ := m.Load(ctx, states[i].Key, 1000)
					states[i].WaitersAhead = s.WaitersAhead
				}
				return states, err
			}
		}},
		{"no prefix is nothing", "Keys/WithoutPrefixAreAll", matching(func(key, prefix string) bool {
			return prefix != "" && strings.HasPrefix(key, prefix)
		})},
		{"all are sessions too", "Keys/WithoutPrefixAreAll", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
				if found, now, _ := storecmd.Members(ctx, m); after == "" && prefix == "" {
					states = append(states, driver.State{Key: "\U0010ffff\U0010ffff" + found[0].ID, Now: now, Kind: "session"})
				}
				return states, err
			}
		}},
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
		{"a session holds one part", "Keys/WhatASessionHolds", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			for i := range states {
				states[i].Holders = states[i].Holders[:min(1, len(states[i].Holders))]
			}
			return states
		})},
		{"what a session holds has no tokens", "Keys/WhatASessionHolds", named(func(q driver.KeyQuery, states []driver.State) []driver.State {
			for _, s := range states {
				for i := range s.Holders {
					s.Holders[i].Token = 0
				}
			}
			return states
		})},
		{"Keys has a hundred", "Keys/AtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				return m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: min(n, 100)})
			}
		}},
		{"Keys has no bound", "Keys/AtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.keys = func(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
				states, err := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
				if len(states) == 1000 && n > 1000 {
					more, _ := m.Keys(ctx, driver.KeyQuery{Prefix: prefix, After: states[999].Key, Limit: n - 1000})
					states = append(states, more...)
				}
				return states, err
			}
		}},
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// matching makes Keys select keys by match instead of by their prefix.
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
