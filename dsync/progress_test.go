package dsync_test

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
)

// The holders in these tests must report progress within limit.
const limit = 20 * time.Second

// If a holder hangs, it loses its hold at the end of its limit. Other processes do not get the key before the end of
// the grace. They get the key then or, if the store can't notify, with their next poll. The session keeps everything
// else that it holds.
func TestStalledHoldEnds(t *testing.T) {
	for _, polling := range []bool{false, true} {
		for _, here := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("polling %t, others wait here %t", polling, here), func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				wake := time.Duration(0)
				if polling {
					wake = 300 * time.Millisecond // the poll interval of the first waiter in the queue
				}
				var ends []string
				s := newSession(t, store, &dsync.Options{Hooks: &dsync.Hooks{
					Released: func(r dsync.HoldInfo) { ends = append(ends, "released "+r.Key) },
					Lost: func(l dsync.HoldInfo) {
						ends = append(ends, fmt.Sprintf("lost %s: %v; by the holder: %t", l.Key, l.Cause, l.ByHolder))
					},
				}})
				mu, kept, next := s.Mutex("k"), s.Mutex("kept"), newSession(t, store, nil).Mutex("k")
				lock(t, kept)
				h := take(t, mu.Hold)
				lost := closedAt(h.Lost())
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
					noErr(t, h.Progress(limit))
					last = time.Now()
					time.Sleep(limit - time.Millisecond)
				}
				// From now on, the holder hangs.
				e, at := <-got, <-lost
				if d := at.Sub(last); d != limit {
					t.Errorf("Lost closed %v after the last report, want %v", d, limit)
				}
				if d := e.at.Sub(at); e.err != nil || d < grace || d > grace+wake {
					t.Errorf("another process got the key %v after Lost closed (%v), want between %v and %v", d, e.err, grace, grace+wake)
				}
				t.Logf("Lost closed %v after the last report, and another process had the key %v later", at.Sub(last), e.at.Sub(at))
				if here && len(waits) > 0 {
					t.Error("a waiter in this process got the key before its holder was done")
				}
				cancel()
				<-waits
				synctest.Wait()
				if got, want := strings.Join(ends, ", "), "lost k: dsync: hold lost: dsync: no progress within the limit; by the holder: false"; got != want {
					t.Errorf("hooks report %q, want %q", got, want)
				}
				h.Release(background)
				if kept.Token() == 0 || next.Token() == 0 {
					t.Errorf("held after the late Release: another key of the session %t, the key by its next holder %t", kept.Token() != 0, next.Token() != 0)
				}
				kept.Unlock()
				next.Unlock()
			})
		}
	}
}

// Progress does not revive a hold that has stalled, and ReleaseAfter does not keep its key, whether during the grace or
// later. After the grace, Healthy reports the hold until it is released.
func TestStalledHoldStaysOver(t *testing.T) {
	for _, late := range []time.Duration{0, grace / 2, 2 * grace} {
		inBubble(t, fmt.Sprint(late), func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			hold := take(t, s.Mutex("k").Hold)
			ctx := hold.Context(background)
			hold.Progress(limit)
			time.Sleep(limit + late)
			wantErr(t, "Progress", hold.Progress(time.Hour), dsync.ErrLost, dsync.ErrStalled)
			wantErr(t, "Progress without a limit", hold.Progress(0), dsync.ErrLost, dsync.ErrStalled)
			wantErr(t, "the context's cause", context.Cause(ctx), dsync.ErrLost, dsync.ErrStalled)
			if hold.Token() != 0 {
				t.Error("the stalled hold still has a token")
			}
			if late > grace {
				wantHealthy(t, "after the grace", s, dsync.ErrStillInUse)
			}
			wantErr(t, "ReleaseAfter", hold.ReleaseAfter(background, time.Hour), dsync.ErrLost, dsync.ErrStalled)
			wantHealthy(t, "after ReleaseAfter", s, nil)
			if h := holders(t, store, "k"); len(h) > 0 {
				t.Errorf("the key is still held by %v", h)
			}
		})
	}
}

// Reports of progress cost no command, no matter how many there are or which limits they set.
func TestProgressTakesNoCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		h := take(t, newSession(t, store, nil).Mutex("k").Hold)
		time.Sleep(2 * time.Second) // until the session listens
		before := store.Counts()
		for i := range 5000 {
			noErr(t, h.Progress(time.Duration(1+i%7)*time.Second))
			time.Sleep(999 * time.Millisecond)
		}
		if d := store.Counts().Since(before); d.Total() != 2*d.Commands[dsynctest.MethodHeartbeat] || d.Writes != d.Commands[dsynctest.MethodHeartbeat] {
			t.Errorf("sent %v, want only heartbeats and one reading with each", d.Commands)
		}
		h.Release(background)
	})
}

// Each report replaces the hold's limit, and a report of 0 removes it. The next hold of the key has no limit, even if
// that hold began with a hand-off or while the key lingered.
func TestNextHoldHasNoLimit(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, mu *dsync.Mutex, h *dsync.Hold) *dsync.Hold{
		"0":      func(_ *testing.T, _ *dsync.Mutex, h *dsync.Hold) *dsync.Hold { h.Progress(0); return h },
		"longer": func(_ *testing.T, _ *dsync.Mutex, h *dsync.Hold) *dsync.Hold { h.Progress(time.Hour); return h },
		"handed off": func(t *testing.T, mu *dsync.Mutex, h *dsync.Hold) *dsync.Hold {
			var next *dsync.Hold
			acquired := async(func() error { return into(&next, mu.Hold)(background) })
			synctest.Wait()
			h.Release(background)
			if e := <-acquired; e.err != nil {
				t.Fatal(e.err)
			}
			return next
		},
		"lingers": func(t *testing.T, mu *dsync.Mutex, h *dsync.Hold) *dsync.Hold {
			h.Release(background)
			time.Sleep(time.Second)
			return take(t, mu.Hold)
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			opt := &dsync.Options{}
			if name == "lingers" {
				opt = lingering()
			}
			s := newSession(t, dsynctest.NewMemory(), opt)
			mu := s.Mutex("k")
			makeLinger(mu)
			h := take(t, mu.Hold)
			noErr(t, h.Progress(limit))
			h = next(t, mu, h)
			time.Sleep(2 * limit)
			if h.Token() == 0 {
				t.Error("the old limit still applies")
			}
			h.Release(background)
		})
	}
}

// HoldFrom returns the hold that a context belongs to, or the innermost one if holds are nested.
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
					err = fmt.Errorf("the outer hold is lost, too: %w", context.Cause(ctx))
				}
				return err
			})
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			err := in(s, func(ctx context.Context) error {
				type key struct{}
				inner, cancel := context.WithCancel(context.WithValue(ctx, key{}, 1))
				defer cancel()
				if err := dsync.HoldFrom(inner).Progress(limit); err != nil {
					t.Error(err)
				}
				time.Sleep(limit - time.Millisecond)
				if ctx.Err() != nil {
					t.Error("the hold has stalled too early")
				}
				time.Sleep(time.Millisecond)
				wantErr(t, "the context's cause", context.Cause(ctx), dsync.ErrStalled)
				wantErr(t, "Progress", dsync.HoldFrom(inner).Progress(limit), dsync.ErrStalled)
				return nil
			})
			wantErr(t, "Do", err, dsync.ErrLost, dsync.ErrStalled)
			if strings.Contains(err.Error(), "outer") {
				t.Error(err)
			}
		})
	}
}

func TestProgressOfNoHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := take(t, s.Mutex("k").Hold)
		ctx := h.Context(background)
		for _, d := range []time.Duration{-1, driver.MaxDuration + 1} {
			if err := h.Progress(d); err == nil || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("Progress(%v): %v", d, err)
			}
		}
		if err := h.Progress(driver.MaxDuration); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		h.Release(background)
		wantErr(t, "released", h.Progress(limit), dsync.ErrLost)
		wantErr(t, "the context of a hold that is over", dsync.HoldFrom(ctx).Progress(limit), dsync.ErrLost)
		reads := take(t, s.RWMutex("rw").RHold)
		for name, h := range map[string]*dsync.Hold{"a reader's hold": reads, "that of its context": dsync.HoldFrom(reads.Context(background))} {
			if err := h.Progress(limit); err == nil || !strings.Contains(err.Error(), "readers") {
				t.Errorf("%s: %v", name, err)
			}
		}
		reads.Release(background)
		if h := dsync.HoldFrom(background); h != nil {
			t.Errorf("HoldFrom returned %v for a context without a hold", h)
		}
	})
}
