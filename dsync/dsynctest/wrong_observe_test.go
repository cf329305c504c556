package dsynctest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongObserves are defects of Observe, Observers and Queue.
func wrongObserves() []plant {
	return []plant{
		{"observed keys fold case", "Observers/ComparesKeysExactly", comparing(strings.EqualFold)},
		{"observed keys are prefixes", "Observers/ComparesKeysExactly", comparing(strings.HasPrefix)},
		{"Observers has expired and lapsed sessions", "Observers/AreTheLiving", comparing(func(a, b string) bool { return a == b })},
		{"Observers has ids alone", "Observers/HaveEveryField", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]driver.Member, error) {
				found, err := storecmd.Observers(ctx, m, key, after, n)
				for i := range found {
					found[i] = driver.Member{ID: found[i].ID}
				}
				return found, err
			}
		}},
		{"Observers has the first page only", "Observers/AfterAndUpToN", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]driver.Member, error) {
				return storecmd.Observers(ctx, m, key, "", n)
			}
		}},
		{"a page of observers may be short", "Observers/AfterAndUpToN", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]driver.Member, error) {
				return storecmd.Observers(ctx, m, key, after, n-1)
			}
		}},
		{"Observers are a hundred", "Members/WithoutIDsAreAtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.observers = func(ctx context.Context, key, after string, n int) ([]driver.Member, error) {
				return storecmd.Observers(ctx, m, key, after, min(n, 100))
			}
		}},
		{"Queue has eight", "Queue/HasAllInTheirOrder", func(m *dsynctest.Memory, w *wrong) {
			w.queue = func(ctx context.Context, key string) ([]driver.Waiter, error) {
				queue, err := storecmd.Queue(ctx, m, key)
				return queue[:min(8, len(queue))], err
			}
		}},
	}
}

// comparing makes the store find the observers of a key by the function equal, which compares the key with each
// observed key. The store then finds even sessions that are not alive.
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
		w.observers = func(ctx context.Context, key, after string, n int) ([]driver.Member, error) {
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
func details(ctx context.Context, m *dsynctest.Memory, ids []string) ([]driver.Member, error) {
	if len(ids) == 0 {
		return nil, ctx.Err()
	}
	slices.Sort(ids)
	found, _, err := storecmd.Members(ctx, m, ids...)
	return found, err
}

// wrongChanges are defects of the notices for observers of keys.
func wrongChanges() []plant {
	// passesBy leaves out the changes of some keys.
	passesBy := func(where func(key string) bool) func(*dsynctest.Memory, *wrong) {
		return omitting(func(n driver.Notice) bool { return n.Type == driver.NoticeChange && where(n.Key) })
	}
	return []plant{
		{"every key is observed", "Notice/ChangesOnlyOfObservedKeys", observed(func(_, _ string) bool { return true })},
		{"keys with the same prefix are observed", "Notice/ChangesOnlyOfObservedKeys", observed(func(key, named string) bool { return strings.HasPrefix(key, named) })},
		{"observed keys fold case", "Notice/ChangesOnlyOfObservedKeys", observed(strings.EqualFold)},
		{"a key is observed until one listener ends", "Notice/ChangeOfAKeyThatSeveralObserve", func(m *dsynctest.Memory, w *wrong) {
			var mu sync.Mutex
			over := make(map[string]bool)
			w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
				err := m.Listen(ctx, id, keys, f)
				mu.Lock()
				defer mu.Unlock()
				for _, key := range keys {
					over[key] = true
				}
				return err
			}
			passesBy(func(key string) bool {
				mu.Lock()
				defer mu.Unlock()
				return over[key]
			})(m, w)
		}},
		{"observing a key sets its kind", "Notice/ObservingAKeyChangesNothing", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
				for _, key := range keys {
					c := driver.Claim{Key: key, ID: id + ".o", Session: id, Kind: driver.KindElection, Weight: 1, Limit: 1}
					storecmd.Acquire(ctx, m, c, false, nil, time.Now().Add(time.Minute))
					storecmd.Release(ctx, m, c, driver.Release{})
				}
				return m.Listen(ctx, id, keys, f)
			}
		}},
		{"Sweep forgets observers", "Sweep/ObservedKeysStayObserved", func(m *dsynctest.Memory, w *wrong) {
			swept := false
			passesBy(func(string) bool { return swept })(m, w)
			w.sweep = func(ctx context.Context, by string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
				swept = true
				return m.Sweep(ctx, by, last, retention)
			}
		}},
	}
}

// observed makes commands return more NoticeChanges. A command on a key returns one if the function like returns true
// for this key and any listener's key, even if nobody observes the command's key.
func observed(like func(key, named string) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var named []string
		w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
			named = append(named, keys...)
			return m.Listen(ctx, id, keys, f)
		}
		noticing(func(key string, n []driver.Notice) []driver.Notice {
			if slices.ContainsFunc(named, func(name string) bool { return like(key, name) }) {
				n = append(n, driver.Notice{Type: driver.NoticeChange, Key: key})
			}
			return n
		})(m, w)
	}
}
