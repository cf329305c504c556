package dsynctest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongChanges are defects of the changes that Watch reports.
func wrongChanges() []plant {
	return []plant{
		{"Watch tells no changes", "Watch/EveryChangeOfAKey", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, _ []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, nil, f)
			}
		}},
		{"Watch passes by what is published", "Watch/EveryChangeOfAKey", func(m *dsynctest.Memory, w *wrong) {
			skip := passBy(m, w)
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				skip.Add(1)
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"Watch passes by an end that is moved", "Watch/EveryChangeOfAKey", func(m *dsynctest.Memory, w *wrong) {
			skip := passBy(m, w)
			w.extend = func(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
				skip.Add(1)
				return m.Extend(ctx, c)
			}
		}},
		{"Watch passes by who joins", "Watch/EveryChangeOfAKey", func(m *dsynctest.Memory, w *wrong) {
			skip := passBy(m, w)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); wait && len(s.Holders) > 0 {
					skip.Add(1)
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"Watch tells everybody's grants of a watched key", "Watch/EveryChangeOfAKey", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					f(e)
					if e.Type == dsync.EventChange {
						f(dsync.Event{Type: dsync.EventGrant, Key: e.Key, Claim: "x.1"})
					}
				})
			}
		}},
		{"Watch tells of keys with the same prefix", "Watch/ChangesOnlyOfItsKeys", alsoWatching(func(key string) string { return key + "1" })},
		{"watched keys fold case", "Watch/ChangesOnlyOfItsKeys", alsoWatching(strings.ToLower)},
		{"no keys are all keys", "Watch/ChangesOnlyOfItsKeys", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					f(e)
					if len(keys) == 0 && e.Type == dsync.EventGrant {
						f(dsync.Event{Type: dsync.EventChange, Key: e.Key})
					}
				})
			}
		}},
		{"a grant hides the change", "Watch/ChangeWithGrantIsBoth", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				granted := ""
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventChange || e.Key != granted {
						f(e)
					}
					granted = ""
					if e.Type == dsync.EventGrant {
						granted = e.Key
					}
				})
			}
		}},
		{"a change hides the grant", "Watch/ChangeWithGrantIsBoth", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventGrant || len(keys) == 0 {
						f(e)
					}
				})
			}
		}},
		{"Watch takes a thousand keys", "Watch/ManyKeys", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys[:min(len(keys), 1000)], f)
			}
		}},
		{"Sweep deletes silently", "Sweep/OfAWatchedKeyIsAChange", carelessSweep},
	}
}

// passBy lets a Watch drop as many changes as are added to skip.
func passBy(m *dsynctest.Memory, w *wrong) (skip *atomic.Int32) {
	skip = new(atomic.Int32)
	w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
		return m.Watch(ctx, id, keys, func(e dsync.Event) {
			if e.Type != dsync.EventChange || skip.Add(-1) < 0 {
				skip.Store(max(0, skip.Load()))
				f(e)
			}
		})
	}
	return skip
}

// alsoWatching lets a Watch report changes of other keys too.
func alsoWatching(other func(key string) string) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
			watched := keys
			for _, key := range keys {
				watched = append(watched[:len(watched):len(watched)], other(key))
			}
			return m.Watch(ctx, id, watched, f)
		}
	}
}
