package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// limit is within which the holders in these tests must report progress.
const limit = 20 * time.Second

// A goroutine that hangs loses its hold when its limit is over. Others have the key when the grace is over, at once
// or, if they are not notified, with their next poll, and not before. Whatever else the session holds is kept.
func TestStalledHoldEnds(t *testing.T) {
	for _, polling := range []bool{false, true} {
		for _, here := range []bool{false, true} {
			t.Run(fmt.Sprintf("polling %t, others wait here %t", polling, here), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					store := dsynctest.NewMemory()
					store.Polling = polling
					wake := time.Duration(0)
					if polling {
						wake = 300 * time.Millisecond // at the first place in the queue
					}
					var ends []string
					s := newSession(t, store, &dsync.Options{Hooks: &dsync.Hooks{
						Released: func(r dsync.ReleasedInfo) { ends = append(ends, "released "+r.Key) },
						Lost: func(l dsync.LostInfo) {
							ends = append(ends, fmt.Sprintf("lost %s: %v; by the holder: %t", l.Key, l.Cause, l.ByHolder))
						},
					}})
					mu, kept, next := s.Mutex("k"), s.Mutex("kept"), newSession(t, store, nil).Mutex("k")
					lock(t, kept)
					lock(t, mu)
					lost := closedAt(mu.Lost())
					got := async(func() error { return next.LockContext(background) })
					ctx, cancel := context.WithCancel(background)
					waits := async(func() error {
						if !here {
							return nil
						}
						return s.Mutex("k").LockContext(ctx)
					})
					var last time.Time
					for range 4 {
						if err := mu.Progress(limit); err != nil {
							t.Fatal(err)
						}
						last = time.Now()
						time.Sleep(limit - time.Millisecond)
					}
					// From here on it hangs.
					e, at := <-got, <-lost
					if d := at.Sub(last); d != limit {
						t.Errorf("Lost closed %v after the last report, want %v", d, limit)
					}
					if d := e.at.Sub(at); e.err != nil || d < grace || d > grace+wake {
						t.Errorf("another process has the key %v after Lost closed (%v), want from %v to %v", d, e.err, grace, grace+wake)
					}
					t.Logf("Lost closed %v after the last report, and another process had the key %v later", at.Sub(last), e.at.Sub(at))
					if here && len(waits) > 0 {
						t.Error("somebody here has the key before its holder is done")
					}
					cancel()
					<-waits
					synctest.Wait()
					if got, want := strings.Join(ends, ", "), "lost k: dsync: hold lost: dsync: no progress within the limit; by the holder: false"; got != want {
						t.Errorf("hooks report %q, want %q", got, want)
					}
					mu.Unlock()
					if !kept.Held() || !next.Held() {
						t.Errorf("held after the late Unlock: another key of the session %t, the key by its next holder %t", kept.Held(), next.Held())
					}
					kept.Unlock()
					next.Unlock()
				})
			})
		}
	}
}

// No report revives a hold that has stalled, and no Unlock keeps its key: neither in its grace, nor later. Healthy
// reports it until it is unlocked.
func TestStalledHoldStaysOver(t *testing.T) {
	for _, late := range []time.Duration{0, grace / 2, 2 * grace} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				s := newSession(t, store, nil)
				mu := s.Mutex("k")
				lock(t, mu)
				ctx, cancel := mu.Context(background)
				defer cancel()
				mu.Progress(limit)
				time.Sleep(limit + late)
				wantErr(t, "Progress", mu.Progress(time.Hour), dsync.ErrLost, dsync.ErrStalled)
				wantErr(t, "Progress without a limit", mu.Progress(0), dsync.ErrLost, dsync.ErrStalled)
				wantErr(t, "the context's cause", context.Cause(ctx), dsync.ErrLost, dsync.ErrStalled)
				if mu.Held() || mu.Token() != 0 {
					t.Error("it is held")
				}
				if late > grace {
					wantHealthy(t, "after the grace", s, dsync.ErrStillInUse)
				}
				wantErr(t, "UnlockAfter", mu.UnlockAfter(background, time.Hour), dsync.ErrLost, dsync.ErrStalled)
				wantHealthy(t, "after Unlock", s, nil)
				if h := holders(t, store, "k"); len(h) > 0 {
					t.Errorf("it is kept: %v", h)
				}
			})
		})
	}
}

// A process that was frozen past the limit sees that first: neither a report nor an Unlock counts.
func TestStallIsSeenAfterAFreeze(t *testing.T) {
	for name, do := range map[string]func(mu *dsync.Mutex) error{
		"Progress":      func(mu *dsync.Mutex) error { return mu.Progress(time.Hour) },
		"UnlockContext": func(mu *dsync.Mutex) error { return mu.UnlockContext(background) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSession(t, dsynctest.NewMemory(), nil)
				mu := s.Mutex("k")
				lock(t, mu)
				mu.Progress(lease / 2)
				engine.Of(s).Freeze(lease / 2)
				wantErr(t, name, do(mu), dsync.ErrLost, dsync.ErrStalled)
			})
		})
	}
}

// A holder may report progress as often as it likes, with any limits: that sends nothing.
func TestProgressTakesNoCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		mu := newSession(t, store, unswept()).Mutex("k")
		lock(t, mu)
		time.Sleep(2 * time.Second) // until it listens
		before := store.Counts()
		for i := range 5000 {
			if err := mu.Progress(time.Duration(1+i%7) * time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(999 * time.Millisecond)
		}
		if d := store.Counts().Since(before); d.Total() != 2*d.Commands[dsynctest.MethodHeartbeat] || d.Writes != d.Commands[dsynctest.MethodHeartbeat] {
			t.Errorf("sent: %v, want heartbeats only, and a reading with each", d.Commands)
		}
		mu.Unlock()
	})
}

// A hold has the limit of its holder's last report, or none; the next hold of the key has none, whichever way it
// begins.
func TestNextHoldHasNoLimit(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, s *dsync.Session, mu *dsync.Mutex) *dsync.Mutex{
		"0":      func(_ *testing.T, _ *dsync.Session, mu *dsync.Mutex) *dsync.Mutex { mu.Progress(0); return mu },
		"longer": func(_ *testing.T, _ *dsync.Session, mu *dsync.Mutex) *dsync.Mutex { mu.Progress(time.Hour); return mu },
		"handed off": func(t *testing.T, s *dsync.Session, mu *dsync.Mutex) *dsync.Mutex {
			next := s.Mutex("k")
			locked := async(func() error { return next.LockContext(background) })
			synctest.Wait()
			mu.Unlock()
			if e := <-locked; e.err != nil {
				t.Fatal(e.err)
			}
			return next
		},
		"lingers": func(t *testing.T, _ *dsync.Session, mu *dsync.Mutex) *dsync.Mutex {
			mu.Unlock()
			time.Sleep(time.Second)
			lock(t, mu)
			return mu
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opt := unswept()
				if name == "lingers" {
					opt = lingering()
				}
				s := newSession(t, dsynctest.NewMemory(), opt)
				mu := s.Mutex("k")
				makeLinger(mu)
				lock(t, mu)
				if err := mu.Progress(limit); err != nil {
					t.Fatal(err)
				}
				mu = next(t, s, mu)
				time.Sleep(2 * limit)
				if !mu.Held() {
					t.Error("the limit of the report before counts")
				}
				mu.Unlock()
			})
		})
	}
}

// Progress(ctx) is for the hold whose context ctx is, of several the innermost one.
func TestProgressByContext(t *testing.T) {
	type scope func(s *dsync.Session, f func(context.Context) error) error
	for name, in := range map[string]scope{
		"Mutex": func(s *dsync.Session, f func(context.Context) error) error { return s.Mutex("k").Do(background, f) },
		"RWMutex": func(s *dsync.Session, f func(context.Context) error) error {
			return s.RWMutex("k").Do(background, f)
		},
		"Once": func(s *dsync.Session, f func(context.Context) error) error { return s.Once("k").Do(background, f) },
		"Periodic": func(s *dsync.Session, f func(context.Context) error) error {
			_, err := s.Periodic("k").Do(background, time.Now(), f)
			return err
		},
		"nested": func(s *dsync.Session, f func(context.Context) error) error {
			outer := s.Mutex("outer")
			return outer.Do(background, func(ctx context.Context) error {
				err := s.Mutex("k").Do(ctx, f)
				if ctx.Err() != nil {
					err = fmt.Errorf("the outer one is lost, too: %w", context.Cause(ctx))
				}
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSession(t, dsynctest.NewMemory(), nil)
				err := in(s, func(ctx context.Context) error {
					type key struct{}
					inner, cancel := context.WithCancel(context.WithValue(ctx, key{}, 1))
					defer cancel()
					if err := dsync.Progress(inner, limit); err != nil {
						t.Error(err)
					}
					time.Sleep(limit - time.Millisecond)
					if ctx.Err() != nil {
						t.Error("it has stalled too early")
					}
					time.Sleep(time.Millisecond)
					wantErr(t, "the context's cause", context.Cause(ctx), dsync.ErrStalled)
					wantErr(t, "Progress", dsync.Progress(inner, limit), dsync.ErrStalled)
					return nil
				})
				wantErr(t, "Do", err, dsync.ErrLost, dsync.ErrStalled)
				if strings.Contains(err.Error(), "outer") {
					t.Error(err)
				}
			})
		})
	}
}

func TestProgressOfNoHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		mu, rw := s.Mutex("k"), s.RWMutex("rw")
		wantErr(t, "unlocked", mu.Progress(limit), dsync.ErrLost)
		lock(t, mu)
		ctx, cancel := mu.Context(background)
		defer cancel()
		for _, d := range []time.Duration{-1, dsync.MaxDuration + 1} {
			if err := mu.Progress(d); err == nil || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("Progress(%v): %v", d, err)
			}
		}
		if err := mu.Progress(driver.MaxDuration); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		mu.Unlock()
		wantErr(t, "unlocked again", mu.Progress(limit), dsync.ErrLost)
		wantErr(t, "the context of a hold that is over", dsync.Progress(ctx, limit), dsync.ErrLost)
		rw.RLock()
		reads, cancel := rw.RContext(background)
		defer cancel()
		for name, ctx := range map[string]context.Context{"a reader's context": reads, "no hold's context": background} {
			if err := dsync.Progress(ctx, limit); err == nil || !strings.Contains(err.Error(), "Mutex.Do") {
				t.Errorf("%s: %v", name, err)
			}
		}
		wantErr(t, "the writer, while others read", rw.Progress(limit), dsync.ErrLost)
		rw.RUnlock()
	})
}
