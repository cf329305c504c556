package dsynctest_test

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongListeners are defects of Listen and Notify.
func wrongListeners() []plant {
	return []plant{
		{"Listen blocks where it is not supported", "Listen/CallsWhenItHasBegunOrIsUnsupportedAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(context.Context, string, func()) error {
				time.Sleep(20 * time.Second)
				return errors.ErrUnsupported
			}
		}},
		{"Listen does not say when it has begun", "Listen/CallsWhenItHasBegunOrIsUnsupportedAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(ctx context.Context, id string, f func()) error {
				first := true
				return m.Listen(ctx, id, func() {
					if !first {
						f()
					}
					first = false
				})
			}
		}},
		{"one of two listeners is called", "Listen/NotifyCalls", func(m *dsynctest.Memory, w *wrong) {
			var calls []func()
			w.listen = func(ctx context.Context, id string, f func()) error {
				calls = append(calls, f)
				f()
				<-ctx.Done()
				return ctx.Err()
			}
			w.notify = func(context.Context, string) error { calls[0](); return nil }
		}},
		{"Notify calls everybody", "Listen/OnlyItsSession", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(ctx context.Context, _ string, f func()) error { return m.Listen(ctx, "all", f) }
			w.notify = func(ctx context.Context, _ string) error { return m.Notify(ctx, "all") }
		}},
		{"Listen outlives its context", "Listen/EndsWithItsContext", func(m *dsynctest.Memory, w *wrong) {
			w.listen = func(ctx context.Context, id string, f func()) error {
				err := m.Listen(ctx, id, f)
				time.Sleep(time.Minute)
				return err
			}
		}},
		{"Notify of nobody fails", "Notify/NobodyListens", func(m *dsynctest.Memory, w *wrong) {
			w.notify = func(context.Context, string) error { return errors.New("nobody listens") }
		}},
	}
}
