package dsynctest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongListeners are defects of Listen and Notify.
func wrongListeners() []plant {
	return []plant{
		{"Listen is never ready", "Listen/ReadyFirstOrUnsupportedAtOnce", hearing(func(n driver.Notice) []driver.Notice {
			if n.Type == driver.NoticeReady {
				return nil
			}
			return []driver.Notice{n}
		})},
		{"Listen blocks where it is not supported", "Listen/ReadyFirstOrUnsupportedAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(context.Context, string, []string, func(driver.Notice)) error {
				time.Sleep(20 * time.Second)
				return errors.ErrUnsupported
			}
		}},
		{"Listen hears no grants", "Listen/HearsWhatIsSent", deafFor(driver.NoticeGrant)},
		{"Listen hears no wakes", "Listen/HearsWhatIsSent", deafFor(driver.NoticeWake)},
		{"Listen hears no yields", "Listen/HearsWhatIsSent", deafFor(driver.NoticeYield)},
		{"Listen hears no revocations", "Listen/HearsWhatIsSent", deafFor(driver.NoticeRevoke)},
		{"Listen hears no changes", "Listen/HearsWhatIsSent", deafFor(driver.NoticeChange)},
		{"Listen hears no terms", "Listen/HearsWhatIsSent", hearing(func(n driver.Notice) []driver.Notice {
			n.Term = 0
			return []driver.Notice{n}
		})},
		{"Listen hears what was not sent", "Listen/HearsWhatIsSent", hearing(func(n driver.Notice) []driver.Notice {
			if n.Type == driver.NoticeGrant {
				return []driver.Notice{n, {Type: driver.NoticeWake, Session: n.Session, Key: n.Key, Claim: n.Claim}}
			}
			return []driver.Notice{n}
		})},
		{"sessions hear those with the same prefix", "Listen/OnlyItsSession", routing(func(session string, keys []string, n driver.Notice) bool {
			return session != "" && strings.HasPrefix(n.Session, session)
		})},
		{"sessions fold case", "Listen/OnlyItsSession", routing(func(session string, keys []string, n driver.Notice) bool {
			return strings.EqualFold(n.Session, session)
		})},
		{"no keys are all keys", "Listen/OnlyItsKeys", routing(func(session string, keys []string, n driver.Notice) bool {
			return len(keys) == 0 || slices.Contains(keys, n.Key)
		})},
		{"keys are prefixes", "Listen/OnlyItsKeys", routing(func(session string, keys []string, n driver.Notice) bool {
			return slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(n.Key, key) })
		})},
		{"keys fold case", "Listen/OnlyItsKeys", routing(func(session string, keys []string, n driver.Notice) bool {
			return slices.ContainsFunc(keys, func(key string) bool { return strings.EqualFold(n.Key, key) })
		})},
		{"no session is every session", "Listen/WithoutASession", routing(func(session string, keys []string, n driver.Notice) bool {
			return session == "" || n.Session == session
		})},
		{"Listen without a session hears nothing", "Listen/WithoutASession", routing(func(session string, keys []string, n driver.Notice) bool {
			return session != "" && n.Session == session
		})},
		{"observers of a key hear its grants", "Listen/WithoutASession", routing(func(session string, keys []string, n driver.Notice) bool {
			return n.Session == session || slices.Contains(keys, n.Key)
		})},
		{"Listen takes a thousand keys", "Listen/ManyKeys", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
				return m.Listen(ctx, id, keys[:min(len(keys), 1000)], f)
			}
		}},
		{"a thousand keys are heard", "Listen/ManyKeys", routing(func(session string, keys []string, n driver.Notice) bool {
			return slices.Contains(keys[:min(len(keys), 1000)], n.Key)
		})},
		{"only one Listen a session", "Listen/TwoOfOneSession", func(m *dsynctest.Memory, w *wrong) {
			var listening atomic.Bool
			w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
				if listening.Swap(true) {
					f(driver.Notice{Type: driver.NoticeReady})
					<-ctx.Done()
					return ctx.Err()
				}
				return m.Listen(ctx, id, keys, f)
			}
		}},
		{"Listen calls concurrently", "Listen/OneCallAtATime", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
				var wg sync.WaitGroup
				defer wg.Wait()
				return m.Listen(ctx, id, keys, func(n driver.Notice) { wg.Go(func() { f(n) }) })
			}
		}},
		{"Listen hides why it ended", "Listen/EndsWithItsContext", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
				m.Listen(ctx, id, keys, f)
				return errors.New("broken")
			}
		}},
		{"Notify sends the first notice", "Notify/SeveralAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.notify = func(ctx context.Context, n []driver.Notice) error { return m.Notify(ctx, n[:min(1, len(n))]) }
		}},
		{"Notify sends all to each", "Notify/SeveralAtOnce", routing(func(session string, keys []string, n driver.Notice) bool { return true })},
		{"notices are returned although nobody can listen", "Notice/NoneWhereNobodyCanListen", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(context.Context, string, []string, func(driver.Notice)) error { return errors.ErrUnsupported }
		}},
		{"Notify fails where nobody can listen", "Notice/NoneWhereNobodyCanListen", func(m *dsynctest.Memory, w *wrong) {
			m.Polling = true
			w.notify = func(context.Context, []driver.Notice) error { return errors.New("not connected") }
		}},
		{"Notify of nobody fails", "Notify/NobodyListens", func(m *dsynctest.Memory, w *wrong) {
			w.notify = func(context.Context, []driver.Notice) error { return errors.New("nobody listens") }
		}},
	}
}

// hearing changes the notices that a Listen receives.
func hearing(change func(n driver.Notice) []driver.Notice) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
			return m.Listen(ctx, id, keys, func(n driver.Notice) {
				for _, n := range change(n) {
					f(n)
				}
			})
		}
	}
}

// deafFor makes listeners lose all notices of a type.
func deafFor(t driver.NoticeType) func(*dsynctest.Memory, *wrong) {
	return hearing(func(n driver.Notice) []driver.Notice {
		if n.Type == t {
			return nil
		}
		return []driver.Notice{n}
	})
}

// routing sends each notice to the listeners for which hears returns true.
func routing(hears func(session string, keys []string, n driver.Notice) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		type listener struct {
			session string
			keys    []string
			f       func(driver.Notice)
		}
		var mu sync.Mutex
		var listeners []listener
		w.listen = func(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
			return m.Listen(ctx, id, keys, func(n driver.Notice) { // passes on NoticeReady only
				mu.Lock()
				defer mu.Unlock()
				listeners = append(listeners, listener{id, keys, f})
				f(n)
			})
		}
		w.notify = func(_ context.Context, notices []driver.Notice) error {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range listeners {
				for _, n := range notices {
					if hears(l.session, l.keys, n) {
						l.f(n)
					}
				}
			}
			return nil
		}
	}
}
