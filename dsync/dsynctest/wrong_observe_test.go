package dsynctest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongObserves are defects of Observe, Observers and Line.
func wrongObserves() []plant {
	return []plant{
		{"Observe keeps one key", "Observe/IsFoundByEachKey", observing(func(keys []string) []string { return keys[:min(1, len(keys))] })},
		{"Observe shares its caller's list", "Observe/IsFoundByEachKey", noting(func(old, keys []string) []string { return keys })},
		{"who holds observes", "Observe/IsFoundByEachKey", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
				found, err := m.Observers(ctx, key, after, n)
				if s, _ := m.Load(ctx, key); len(s.Holders) > 0 && err == nil {
					holder, _, _ := m.Members(ctx, s.Holders[0].Session)
					found = append(found, holder...)
				}
				slices.SortFunc(found, func(a, b dsync.Member) int { return strings.Compare(a.ID, b.ID) })
				return found, err
			}
		}},
		{"Observe adds to the list", "Observe/ReplacesTheListBefore", noting(func(old, keys []string) []string {
			return append(slices.Clone(keys), old...)
		})},
		{"Observe of no keys does nothing", "Observe/ReplacesTheListBefore", func(m *dsynctest.Memory, w *wrong) {
			w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
				if len(keys) == 0 {
					return nil
				}
				return m.Observe(ctx, id, seq, keys)
			}
		}},
		{"a late list counts", "Observe/LateOlderOneChangesNothing", noting(func(old, keys []string) []string { return slices.Clone(keys) })},
		{"an empty list has no number", "Observe/LateOlderOneChangesNothing", noSeqOfNothing()},
		{"Heartbeat forgets what is observed", "Observe/StaysWithItsSession", func(m *dsynctest.Memory, w *wrong) {
			w.heartbeat = func(ctx context.Context, id string, given []dsync.Revocation) (dsync.Pulse, error) {
				m.Observe(ctx, id, 1<<40, nil)
				return m.Heartbeat(ctx, id, given)
			}
		}},
		{"Observe takes revocations off", "Observe/StaysWithItsSession", func(m *dsynctest.Memory, w *wrong) {
			w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
				p, _ := m.Heartbeat(ctx, id, nil)
				m.Heartbeat(ctx, id, p.Revoked)
				return m.Observe(ctx, id, seq, keys)
			}
		}},
		{"Observe is a heartbeat", "Observe/IsNoHeartbeat", func(m *dsynctest.Memory, w *wrong) {
			w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
				m.Heartbeat(ctx, id, nil)
				return m.Observe(ctx, id, seq, keys)
			}
		}},
		{"Observe registers the unknown", "Observe/DeadOrUnknown", func(m *dsynctest.Memory, w *wrong) {
			w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
				if found, _, _ := m.Members(ctx, id); len(found) == 0 {
					m.Register(ctx, dsync.Member{ID: id, TTL: time.Minute})
				}
				return m.Observe(ctx, id, seq, keys)
			}
		}},
		{"Observe of the dead is no error", "Observe/DeadOrUnknown", func(m *dsynctest.Memory, w *wrong) {
			w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
				m.Observe(ctx, id, seq, keys)
				return nil
			}
		}},
		{"observed keys fold case", "Observers/ComparesKeysExactly", comparing(strings.EqualFold)},
		{"observed keys are prefixes", "Observers/ComparesKeysExactly", comparing(strings.HasPrefix)},
		{"Observers has the dead and the lapsed", "Observers/AreTheLiving", comparing(func(a, b string) bool { return a == b })},
		{"Observers has ids alone", "Observers/HaveEveryField", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
				found, err := m.Observers(ctx, key, after, n)
				for i := range found {
					found[i] = dsync.Member{ID: found[i].ID}
				}
				return found, err
			}
		}},
		{"Observers has the first page only", "Observers/AfterAndUpToN", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
				return m.Observers(ctx, key, "", n)
			}
		}},
		{"a page of observers may be short", "Observers/AfterAndUpToN", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
				return m.Observers(ctx, key, after, n-1)
			}
		}},
		{"Observers are a hundred", "Members/WithoutIDsAreAtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
				return m.Observers(ctx, key, after, min(n, 100))
			}
		}},
		{"Line has eight", "Line/HasAllInTheirOrder", func(m *dsynctest.Memory, w *wrong) {
			w.line = func(ctx context.Context, key string) ([]dsync.Waiter, error) {
				line, err := m.Line(ctx, key)
				return line[:min(8, len(line))], err
			}
		}},
		{"Line is in the order of ids", "Line/HasAllInTheirOrder", func(m *dsynctest.Memory, w *wrong) {
			w.line = func(ctx context.Context, key string) ([]dsync.Waiter, error) {
				line, err := m.Line(ctx, key)
				slices.SortFunc(line, func(a, b dsync.Waiter) int { return strings.Compare(a.Claim, b.Claim) })
				return line, err
			}
		}},
		{"Line has the holder", "Line/HasAllInTheirOrder", func(m *dsynctest.Memory, w *wrong) {
			w.line = func(ctx context.Context, key string) ([]dsync.Waiter, error) {
				line, err := m.Line(ctx, key)
				if s, _ := m.Load(ctx, key); len(s.Holders) > 0 {
					h := s.Holders[0]
					line = append([]dsync.Waiter{{Claim: h.Claim, Session: h.Session, Weight: h.Weight}}, line...)
				}
				return line, err
			}
		}},
	}
}

// observing records what keep leaves of a list.
func observing(keep func(keys []string) []string) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
			return m.Observe(ctx, id, seq, keep(keys))
		}
	}
}

// noting has the list of a session be what next says, by the one before and the one
// that came, whatever its number.
func noting(next func(old, keys []string) []string) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		lists := make(map[string][]string)
		w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
			mu.Lock()
			defer mu.Unlock()
			lists[id] = next(lists[id], keys)
			return nil
		}
		w.observers = func(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
			mu.Lock()
			defer mu.Unlock()
			var ids []string
			for id, keys := range lists {
				if slices.Contains(keys, key) {
					ids = append(ids, id)
				}
			}
			return details(ctx, m, ids)
		}
	}
}

// comparing finds whom it observes by equal, and also those that don't live.
func comparing(equal func(observed, key string) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		lists := make(map[string][]string)
		w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
			mu.Lock()
			defer mu.Unlock()
			lists[id] = slices.Clone(keys)
			return m.Observe(ctx, id, seq, keys)
		}
		w.observers = func(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
			mu.Lock()
			defer mu.Unlock()
			var ids []string
			for id, keys := range lists {
				if slices.ContainsFunc(keys, func(observed string) bool { return equal(observed, key) }) {
					ids = append(ids, id)
				}
			}
			return details(ctx, m, ids)
		}
	}
}

// details reads the sessions in the order of their ids.
func details(ctx context.Context, m *dsynctest.Memory, ids []string) ([]dsync.Member, error) {
	if len(ids) == 0 {
		return nil, ctx.Err()
	}
	slices.Sort(ids)
	found, _, err := m.Members(ctx, ids...)
	return found, err
}

// noSeqOfNothing forgets the number of a list with the list.
func noSeqOfNothing() func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		last, shift := make(map[string]int64), int64(0)
		w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
			mu.Lock()
			defer mu.Unlock()
			if seq <= last[id] {
				return nil
			}
			if last[id] = seq; len(keys) == 0 {
				last[id] = 0
			}
			shift++
			return m.Observe(ctx, id, shift, keys)
		}
	}
}
