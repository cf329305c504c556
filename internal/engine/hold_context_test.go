package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// The context of a hold ends with its parent or with the hold. A context made after the end of the hold has already
// ended.
func TestContextEndsWithTheHold(t *testing.T) {
	for name, acquire := range map[string]func(*dsync.Session) func(context.Context) (*dsync.Hold, error){
		"Mutex":  func(s *dsync.Session) func(context.Context) (*dsync.Hold, error) { return s.Mutex("k").Hold },
		"reader": func(s *dsync.Session) func(context.Context) (*dsync.Hold, error) { return s.RWMutex("k").RHold },
		"Semaphore": func(s *dsync.Session) func(context.Context) (*dsync.Hold, error) {
			return func(ctx context.Context) (*dsync.Hold, error) { return s.Semaphore("k", 2).Hold(ctx, 1) }
		},
	} {
		for how, c := range map[string]struct {
			end   func(link *dsynctest.Faulty, h *dsync.Hold, stop func())
			cause error
		}{
			"loss":     {func(link *dsynctest.Faulty, _ *dsync.Hold, _ func()) { link.Cut() }, dsync.ErrLost},
			"release":  {func(_ *dsynctest.Faulty, h *dsync.Hold, _ func()) { h.Release(background) }, context.Canceled},
			"its ctx":  {func(_ *dsynctest.Faulty, _ *dsync.Hold, stop func()) { stop() }, context.Canceled},
			"released": {nil, context.Canceled},
		} {
			inBubble(t, name+"/"+how, func(t *testing.T) {
				link := newFaulty(t, dsynctest.NewMemory(), nil)
				h := take(t, acquire(newSession(t, link, nil)))
				type key struct{}
				parent, stop := context.WithCancel(context.WithValue(background, key{}, 7))
				defer stop()
				if c.end == nil {
					h.Release(background)
				}
				ctx := h.Context(parent)
				if ctx.Value(key{}) != 7 {
					t.Error("the context lacks its parent's values")
				}
				if c.end != nil {
					synctest.Wait()
					if err := ctx.Err(); err != nil {
						t.Fatalf("the context ended with %v before the hold", err)
					}
					c.end(link, h, stop)
					select {
					case <-ctx.Done():
					case <-time.After(2 * ttl):
						t.Fatal("the context has not ended")
					}
				}
				wantErr(t, "the context's error", ctx.Err(), context.Canceled)
				wantErr(t, "the context's cause", context.Cause(ctx), c.cause)
				h.Release(background)
			})
		}
	}
}

// A second Release returns at once, even while the first waits for the store.
func TestSecondReleaseDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease {
				return dsynctest.Fault{Delay: time.Second}
			}
			return dsynctest.Fault{}
		})
		h, err := engine.Of(newSession(t, f, nil)).Hold(background, engine.Whole("k", driver.KindMutex))
		noErr(t, err)
		start := time.Now()
		first := make(chan time.Duration)
		go func() {
			if err := h.Release(background); err != nil {
				t.Errorf("Release: %v", err)
			}
			first <- time.Since(start)
		}()
		time.Sleep(time.Millisecond)
		if err := h.Release(background); err != nil || time.Since(start) != time.Millisecond {
			t.Errorf("the second Release: %v after %v, want nil after 1ms", err, time.Since(start))
		}
		select {
		case <-h.Finished():
			t.Error("Finished closed before the store had answered")
		default:
		}
		if d := <-first; d != time.Second {
			t.Errorf("the first Release returned after %v, want with the store's answer", d)
		}
	})
}
