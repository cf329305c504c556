package dsynctest_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongWatches are defects of Watch.
func wrongWatches() []plant {
	return []plant{
		{"Watch is never ready", "Watch/ReadyFirstOrUnsupportedAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventReady {
						f(e)
					}
				})
			}
		}},
		{"Watch blocks where it is not supported", "Watch/ReadyFirstOrUnsupportedAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				time.Sleep(20 * time.Second)
				return errors.ErrUnsupported
			}
		}},
		{"Watch tells no grants", "Watch/GrantReachesItsWaiter", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventGrant {
						f(e)
					}
				})
			}
		}},
		{"Watch tells other tokens", "Watch/WhoeversCommandGrants", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					e.Token++
					f(e)
				})
			}
		}},
		{"Watch tells of sessions with the same prefix", "Watch/OnlyItsSession", watchEverybody},
		{"Watch tells of everybody", "Watch/SeveralGrantsOfOneCommand", watchEverybody},
		{"Watch tells one grant of a command", "Watch/SeveralGrantsOfOneCommand", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				var last int64
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type == dsync.EventReady || e.Token > last+4*1024 {
						f(e)
					}
					last = e.Token
				})
			}
		}},
		{"only one Watch a session", "Watch/TwoOfOneSession", func(m *dsynctest.Memory, w *wrong) {
			var watching atomic.Bool
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				if watching.Swap(true) {
					f(dsync.Event{Type: dsync.EventReady})
					<-ctx.Done()
					return ctx.Err()
				}
				return m.Watch(ctx, id, keys, f)
			}
		}},
		{"Watch calls concurrently", "Watch/OneCallAtATime", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				var wg sync.WaitGroup
				defer wg.Wait()
				return m.Watch(ctx, id, keys, func(e dsync.Event) { wg.Go(func() { f(e) }) })
			}
		}},
		{"Watch goes on after its ctx", "Watch/EndsWithItsContext", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				err := m.Watch(ctx, id, keys, f)
				time.Sleep(time.Minute)
				return err
			}
		}},
		{"Watch hides why it ended", "Watch/EndsWithItsContext", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				m.Watch(ctx, id, keys, f)
				return errors.New("broken")
			}
		}},
	}
}

func watchEverybody(m *dsynctest.Memory, w *wrong) {
	sessions := make(map[string]bool)
	w.register = func(ctx context.Context, s dsync.Member) (time.Time, error) {
		sessions[s.ID] = true
		return m.Register(ctx, s)
	}
	w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
		var mu sync.Mutex
		var wg sync.WaitGroup
		defer wg.Wait()
		for other := range maps.Clone(sessions) {
			if other == id {
				continue
			}
			ready := make(chan struct{})
			wg.Go(func() {
				m.Watch(ctx, other, nil, func(e dsync.Event) {
					if e.Type == dsync.EventReady {
						close(ready)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					f(e)
				})
			})
			<-ready
		}
		return m.Watch(ctx, id, keys, func(e dsync.Event) {
			mu.Lock()
			defer mu.Unlock()
			f(e)
		})
	}
}
