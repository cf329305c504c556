package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
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
		noErr(t, err)
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
				noErr(t, h.ReleaseAfter(t.Context(), time.Minute))
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

// A HoldChan can be used in a select. The channel delivers the hold only once the key is held.
func TestHoldChan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		other := take(t, newSession(t, memory, nil).Mutex("k").Hold)
		acquired := newSession(t, memory, nil).Mutex("k").HoldChan(background)
		select {
		case <-acquired:
			t.Fatal("received a hold while another process held the key")
		case <-time.After(time.Minute):
		}
		other.Release(background)
		select {
		case h := <-acquired:
			if h == nil || h.Token() == 0 {
				t.Fatalf("received %v, want a hold", h)
			}
			defer h.Release(background)
		case <-time.After(time.Minute):
			t.Fatal("received no hold after the key was free")
		}
		if h := <-acquired; h != nil {
			t.Error("received a second hold")
		}
	})
}

// If nobody has received the hold when ctx ends, HoldChan releases it and closes the channel.
func TestUnreceivedHoldIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(background)
		acquired := newSession(t, memory, nil).Mutex("k").HoldChan(ctx)
		time.Sleep(time.Second)
		if len(holders(t, memory, "k")) != 1 {
			t.Fatal("the key was free, but HoldChan has not acquired it")
		}
		cancel()
		synctest.Wait()
		if h, open := <-acquired; h != nil || open {
			t.Errorf("received %v, open %t after ctx had ended, want a closed channel", h, open)
		}
		wantFree(t, memory, "k")
	})
}

// If the hold is lost before anybody receives it, the channel delivers nothing until the key is held again.
// Meanwhile another process can hold the key.
func TestUnreceivedHoldIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		acquired := newSession(t, faulty, nil).Mutex("k").HoldChan(background)
		time.Sleep(time.Second)
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		other := take(t, newSession(t, memory, nil).Mutex("k").Hold)
		select {
		case <-acquired:
			t.Error("received a value although the hold was lost and another process holds the key")
		case <-time.After(time.Minute):
		}
		other.Release(background)
		h := <-acquired
		if h == nil || h.Token() == 0 {
			t.Fatalf("received %v after the key was free again, want a hold", h)
		}
		if err := h.Release(background); err != nil {
			t.Error(err)
		}
	})
}

// Break ends an unreceived hold like any other. When the session closes, the channel is closed without a value.
func TestUnreceivedHoldGivesWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s, other := newSession(t, memory, nil), newSession(t, memory, nil)
		acquired := s.Mutex("k").HoldChan(background)
		time.Sleep(2 * time.Second)
		before := holders(t, memory, "k")
		noErr(t, admin.New(other).Break(background, "k"))
		time.Sleep(time.Second)
		if now := holders(t, memory, "k"); len(before) != 1 || len(now) != 1 || now[0].Token <= before[0].Token {
			t.Errorf("holders before a Break %v, after it %v, want one each, the second with a greater token", before, now)
		}
		noErr(t, s.Close(background))
		if h, open := <-acquired; h != nil || open {
			t.Errorf("received %v, open %t after Close, want a closed channel", h, open)
		}
	})
}

// If HoldChan fails, its channel is closed, and the reason is logged unless ctx has ended.
func TestHoldChanThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		rw := s.RWMutex("rw")
		mu := s.Mutex("k")
		lock(t, mu)
		rw.Lock()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if h := <-s.Mutex("k").HoldChan(ctx); h != nil {
			t.Error("HoldChan acquired a key that is held")
		}
		synctest.Wait() // for the log
		if strings.Contains(log.String(), "not acquired") {
			t.Errorf("logged the end of ctx:\n%s", &log)
		}
		if h := <-s.Mutex("rw").HoldChan(background); h != nil {
			t.Error("HoldChan acquired a key of another kind")
		}
		synctest.Wait() // for the log
		if n := strings.Count(log.String(), "not acquired"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, &log)
		}
		mu.Unlock()
		rw.Unlock()
	})
}

// The context of a reader's hold ends when that hold is lost or released. It does not end when other readers of the
// same claim release their holds.
func TestReaderContextEndsWithItsHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		rw := newSession(t, f, nil).RWMutex("k")
		first, second := take(t, rw.RHold), take(t, rw.RHold)
		one, two := first.Context(background), second.Context(background)
		first.Release(background)
		if one.Err() == nil || two.Err() != nil {
			t.Errorf("after the first reader's release: its context %v, the other's %v", one.Err(), two.Err())
		}
		f.Cut()
		<-two.Done()
		wantErr(t, "cause", context.Cause(two), dsync.ErrLost)
		wantErr(t, "Release of a hold that was lost", second.Release(background), dsync.ErrLost)
		f.Heal()
	})
}
