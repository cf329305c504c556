package dsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// inner is the key of a value that a test puts into a context under a scope's context.
type inner struct{}

// pair runs f in a bubble with two sessions on one store.
func pair(t *testing.T, f func(t *testing.T, store *dsynctest.Memory, a, b *dsync.Session)) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f(t, store, newSession(t, store, nil), newSession(t, store, nil))
	})
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A hold of any kind is live until Release. Release closes the hold's channel, and ends the hold's context with the
// cause context.Canceled. A second Release does nothing.
func TestHoldEndsByRelease(t *testing.T) {
	for name, acquire := range map[string]func(context.Context, *dsync.Session) (*dsync.Hold, error){
		"Mutex.Hold":      func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) { return s.Mutex("k").Hold(ctx) },
		"Mutex.TryHold":   func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) { return s.Mutex("k").TryHold(ctx) },
		"Mutex.ForceHold": func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) { return s.Mutex("k").ForceHold(ctx) },
		"Mutex.HoldChan": func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) {
			return <-s.Mutex("k").HoldChan(ctx), nil
		},
		"Mutex.Lease": func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) {
			return s.Mutex("k").Lease(ctx, time.Minute)
		},
		"Mutex.TryLease": func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) {
			return s.Mutex("k").TryLease(ctx, time.Minute)
		},
		"RWMutex.Hold":  func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) { return s.RWMutex("k").Hold(ctx) },
		"RWMutex.RHold": func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) { return s.RWMutex("k").RHold(ctx) },
		"Semaphore.Hold": func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) {
			return s.Semaphore("k", 3).Hold(ctx, 2)
		},
		"Semaphore.TryHold": func(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) {
			return s.Semaphore("k", 3).TryHold(ctx, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pair(t, func(t *testing.T, _ *dsynctest.Memory, a, b *dsync.Session) {
				h := must[*dsync.Hold](t)(acquire(t.Context(), a))
				c := h.Context(t.Context())
				if h.Token() == 0 || isClosed(h.Lost()) || c.Err() != nil || h.Key() != "k" {
					t.Errorf("held: token %d, open %t, context %v, key %q", h.Token(), !isClosed(h.Lost()), c.Err(), h.Key())
				}
				if from := dsync.HoldFrom(c); from == nil || from.Token() != h.Token() {
					t.Errorf("HoldFrom of its context: %v, want %v", from, h)
				} else if err := from.Release(t.Context()); err == nil || h.Token() == 0 {
					t.Errorf("Release of the hold that HoldFrom returned: %v, want an error, and the hold unchanged", err)
				}
				if err := h.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				if h.Token() != 0 || !isClosed(h.Lost()) || context.Cause(c) != context.Canceled {
					t.Errorf("released: token %d, open %t, context's cause %v", h.Token(), !isClosed(h.Lost()), context.Cause(c))
				}
				if err := h.Release(t.Context()); err != nil {
					t.Errorf("second Release: %v", err)
				}
				if err := h.ReleaseAfter(t.Context(), 0); err == nil {
					t.Error("ReleaseAfter 0 returned nil")
				}
				if !b.Mutex("k").TryLock() {
					t.Error("the key is not free")
				}
			})
		})
	}
}

// If a hold is lost, its channel is closed, its context ends with the cause ErrLost, and Release returns ErrLost.
// Until Release the key stays locked in this process.
func TestHoldIsLost(t *testing.T) {
	pair(t, func(t *testing.T, store *dsynctest.Memory, a, _ *dsync.Session) {
		h := must[*dsync.Hold](t)(a.Mutex("k").Hold(t.Context()))
		c := h.Context(t.Context())
		store.DeleteRecord("k")
		<-h.Lost()
		if cause := context.Cause(c); !errors.Is(cause, dsync.ErrLost) || !errors.Is(cause, dsync.ErrRecordDeleted) {
			t.Errorf("the context's cause is %v, want ErrLost and ErrRecordDeleted", cause)
		}
		if err := h.Progress(time.Minute); !errors.Is(err, dsync.ErrLost) {
			t.Errorf("Progress: %v, want ErrLost", err)
		}
		time.Sleep(ttl)
		wait, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		if _, err := a.Mutex("k").Hold(wait); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second hold in this process: %v, want it to wait", err)
		}
		if err := h.Release(t.Context()); !errors.Is(err, dsync.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
		must[*dsync.Hold](t)(a.Mutex("k").Hold(t.Context())).Release(t.Context())
	})
}

// Readers of one process share a claim, but each has a hold of its own, which ends when that reader releases it.
func TestReadersHoldEndsAlone(t *testing.T) {
	pair(t, func(t *testing.T, _ *dsynctest.Memory, a, b *dsync.Session) {
		rw := a.RWMutex("k")
		one := must[*dsync.Hold](t)(rw.RHold(t.Context()))
		two := must[*dsync.Hold](t)(rw.RHold(t.Context()))
		if one.Token() != two.Token() {
			t.Fatalf("tokens %d and %d: the readers do not share a claim", one.Token(), two.Token())
		}
		c1, c2 := one.Context(t.Context()), two.Context(t.Context())
		if err := one.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if !isClosed(one.Lost()) || one.Token() != 0 || c1.Err() == nil || dsync.HoldFrom(c1).Token() != 0 {
			t.Error("the released hold has not ended")
		}
		if isClosed(two.Lost()) || two.Token() == 0 || c2.Err() != nil {
			t.Error("the other reader's hold has also ended")
		}
		if b.RWMutex("k").TryLock() {
			t.Error("a writer has locked the key while it is read-locked")
		}
		if err := two.Progress(time.Minute); err == nil {
			t.Error("a reader's Progress succeeded")
		}
		if err := two.ReleaseAfter(t.Context(), time.Minute); err == nil {
			t.Error("a reader's ReleaseAfter succeeded")
		}
		two.Release(t.Context())
		if !b.RWMutex("k").TryLock() {
			t.Error("the key is not free")
		}
	})
}

// ReleaseAfter keeps a mutex, a writer's lock or units of a semaphore held for a while after the release.
func TestReleaseAfterKeeps(t *testing.T) {
	for name, test := range map[string]struct {
		hold func(*dsync.Session) (*dsync.Hold, error)
		free func(*dsync.Session) bool
	}{
		"Mutex":     {func(s *dsync.Session) (*dsync.Hold, error) { return s.Mutex("k").Hold(context.Background()) }, func(s *dsync.Session) bool { return s.Mutex("k").TryLock() }},
		"RWMutex":   {func(s *dsync.Session) (*dsync.Hold, error) { return s.RWMutex("k").Hold(context.Background()) }, func(s *dsync.Session) bool { return s.RWMutex("k").TryRLock() }},
		"Semaphore": {func(s *dsync.Session) (*dsync.Hold, error) { return s.Semaphore("k", 2).Hold(context.Background(), 1) }, func(s *dsync.Session) bool { return s.Semaphore("k", 2).TryAcquire(2) }},
	} {
		t.Run(name, func(t *testing.T) {
			pair(t, func(t *testing.T, _ *dsynctest.Memory, a, b *dsync.Session) {
				h := must[*dsync.Hold](t)(test.hold(a))
				if err := h.ReleaseAfter(t.Context(), time.Minute); err != nil {
					t.Fatal(err)
				}
				a.Close(t.Context())
				time.Sleep(59 * time.Second)
				if test.free(b) {
					t.Error("ReleaseAfter did not keep the key held")
				}
				time.Sleep(2 * time.Second)
				if !test.free(b) {
					t.Error("ReleaseAfter kept the key held for too long")
				}
			})
		})
	}
}

// Each scope's context carries its hold, and only the scope itself can release it.
func TestHoldFromScopes(t *testing.T) {
	for name, do := range map[string]func(context.Context, *dsync.Session, func(context.Context) error) error{
		"Mutex.Do": func(ctx context.Context, s *dsync.Session, f func(context.Context) error) error {
			return s.Mutex("k").Do(ctx, f)
		},
		"RWMutex.Do": func(ctx context.Context, s *dsync.Session, f func(context.Context) error) error {
			return s.RWMutex("k").Do(ctx, f)
		},
		"Semaphore.Do": func(ctx context.Context, s *dsync.Session, f func(context.Context) error) error {
			return s.Semaphore("k", 3).Do(ctx, 1, f)
		},
		"Once.Do": func(ctx context.Context, s *dsync.Session, f func(context.Context) error) error {
			return s.Once("k").Do(ctx, f)
		},
		"Periodic.Do": func(ctx context.Context, s *dsync.Session, f func(context.Context) error) error {
			_, err := s.Periodic("k").Do(ctx, time.UnixMilli(1000), f)
			return err
		},
		"leader.Run": func(ctx context.Context, s *dsync.Session, f func(context.Context) error) error {
			e, err := leader.New(s, "k", nil)
			if err != nil {
				return err
			}
			return e.Run(ctx, f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pair(t, func(t *testing.T, _ *dsynctest.Memory, a, _ *dsync.Session) {
				var after *dsync.Hold
				err := do(t.Context(), a, func(ctx context.Context) error {
					h := dsync.HoldFrom(context.WithValue(ctx, inner{}, 1))
					if h == nil {
						t.Fatal("HoldFrom returned no hold")
					}
					if h.Key() != "k" || h.Token() == 0 || isClosed(h.Lost()) {
						t.Errorf("got %v, want a hold of k", h)
					}
					if err := h.Progress(time.Minute); err != nil {
						t.Error(err)
					}
					if h.Release(ctx) == nil || h.ReleaseAfter(ctx, time.Minute) == nil || ctx.Err() != nil {
						t.Error("a scope's function has released the scope's hold")
					}
					after = h
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if after.Token() != 0 || !isClosed(after.Lost()) {
					t.Error("the hold has not ended with its scope")
				}
			})
		})
	}
	if h := dsync.HoldFrom(context.Background()); h != nil {
		t.Errorf("HoldFrom returned %v for a context without a hold", h)
	}
}
