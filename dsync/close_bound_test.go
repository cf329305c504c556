package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A shutdown describes what a process holds when the store stops answering, and what the process then does.
type shutdown struct {
	name string
	hold func(t *testing.T, s *dsync.Session, cut func()) (keys []string)
}

// keys returns the names of n keys.
func keys(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("k", i))
	}
	slices.Sort(all)
	return all
}

// holds returns a shutdown's hold function. The function acquires n keys, cuts off the store, and calls release with
// each hold.
func holds(n int, release func(h *dsync.Hold)) func(*testing.T, *dsync.Session, func()) []string {
	return func(t *testing.T, s *dsync.Session, cut func()) []string {
		for _, key := range keys(n) {
			defer release(take(t, s.Mutex(key).Hold)) // runs after cut
		}
		cut()
		return keys(n)
	}
}

var shutdowns = []shutdown{
	{"nothing", func(t *testing.T, s *dsync.Session, cut func()) []string {
		if _, err := engine.Of(s).Register(background); err != nil {
			t.Fatal(err)
		}
		cut()
		return nil
	}},
	{"a hold", holds(1, func(*dsync.Hold) {})},
	{"10,000 holds", holds(10_000, func(*dsync.Hold) {})},
	{"300 holds that end when they are lost", holds(300, func(h *dsync.Hold) {
		lost := h.Lost()
		go func() {
			<-lost
			h.Release(background)
		}()
	})},
	{"a hold that is being released", holds(1, func(h *dsync.Hold) { go h.Release(background) })},
	{"640 leases that are being released", func(t *testing.T, s *dsync.Session, cut func()) []string {
		ended, cancel := context.WithCancel(background)
		cancel()
		for _, key := range keys(640) {
			l, err := s.Mutex(key).Lease(background, time.Hour)
			noErr(t, err)
			defer l.Release(ended) // the release goes on in the background
		}
		cut()
		return keys(640)
	}},
	{"a waiter", func(t *testing.T, s *dsync.Session, cut func()) []string {
		go s.Mutex("held by another").LockContext(background)
		time.Sleep(time.Second)
		cut()
		return []string{"held by another"}
	}},
}

// B39: on a store that does not answer, Close returns within the grace plus one attempt's time, no matter what the
// process holds. If its ctx ends earlier, Close returns within one attempt's time after that. The error of Close names
// the keys that may still be held.
func TestCloseOnASilentStore_B39(t *testing.T) {
	const bound = 30 * time.Second / 6
	for _, down := range shutdowns {
		for _, wait := range []time.Duration{0, 4 * time.Second, time.Hour} {
			if testing.Short() && down.name == "10,000 holds" && wait > 0 {
				continue
			}
			inBubble(t, fmt.Sprintf("%s, ctx ends after %v", down.name, wait), func(t *testing.T) {
				memory := dsynctest.NewMemory()
				other := newSession(t, memory, nil)
				lock(t, other.Mutex("held by another"))
				f := newFaulty(t, memory, nil)
				s := newSession(t, f, &dsync.Options{TTL: 30 * time.Second})
				held := down.hold(t, s, f.Cut)
				ctx, cancel := context.WithTimeout(background, wait)
				defer cancel()
				began := time.Now()
				err := s.Close(ctx)
				took := time.Since(began)
				most := s.Options().Grace + bound
				if wait < most {
					most = wait + bound
				}
				if took > most {
					t.Errorf("Close took %v, want at most %v", took, most)
				}
				wantErr(t, "Close", err, dsync.ErrNotUnregistered, context.DeadlineExceeded)
				wantNotReleased(t, err, held)
				if again := s.Close(background); again != err {
					t.Errorf("a second Close: %v, want the first one's error", again)
				}
			})
		}
	}
}

// wantNotReleased checks which keys Close's error names.
func wantNotReleased(t *testing.T, err error, want []string) {
	t.Helper()
	e := (*dsync.NotReleasedError)(nil)
	if errors.As(err, &e) != (len(want) > 0) || errors.Is(err, dsync.ErrNotReleased) != (len(want) > 0) {
		t.Errorf("Close: %v, want it to name %d keys", err, len(want))
	} else if len(want) > 0 && !slices.Equal(e.Keys, want) {
		t.Errorf("Close reports %d keys as not released, such as %q, want %d, such as %q", len(e.Keys), e.Keys[0], len(want), want[0])
	}
}

// B39: if the store takes 4 s for each reply and Close's ctx has ended, all 300 keys are released when Close returns.
// There is no time left to unregister.
func TestCloseOnASlowStore_B39(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, slow := dsynctest.NewMemory(), false
		f := newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
			if slow {
				return dsynctest.Fault{ReplyDelay: 4 * time.Second}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, f, &dsync.Options{TTL: 30 * time.Second})
		for _, key := range keys(300) {
			lock(t, s.Mutex(key))
		}
		slow = true
		ctx, cancel := context.WithCancel(background)
		cancel()
		began := time.Now()
		err := s.Close(ctx)
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("Close took %v, want at most 5s", d)
		}
		wantErr(t, "Close", err, dsync.ErrNotUnregistered)
		wantNotReleased(t, err, nil)
		time.Sleep(10 * time.Second) // the grace is over
		other := newSession(t, memory, nil)
		for _, key := range keys(300) {
			if mu := other.Mutex(key); mu.TryLock() {
				mu.Unlock()
			} else {
				t.Fatalf("%s is still held, but Close's error does not name it", key)
			}
		}
	})
}

// In each case, the network loses all commands of one method, or none. Unregistering a session frees all its claims
// except leases. So while a holder is not done, Close unregisters the session only if the store has confirmed a Release
// that keeps the key for the grace.
func TestWhatCloseSays_B39(t *testing.T) {
	lose := func(method dsynctest.Method) func(dsynctest.Request) dsynctest.Fault {
		return func(r dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{LoseRequest: r.Method == method} }
	}
	for _, tt := range []struct {
		name    string
		lease   bool
		unlock  bool // before Close
		lost    dsynctest.Method
		listed  bool     // the session stays registered
		unheard []string // keys that Close names
	}{
		{"all is done", false, true, "none", false, nil},
		{"unregister has no answer", false, true, dsynctest.MethodUnregister, true, nil},
		{"a release has no answer, and its holder is not done", false, false, dsynctest.MethodRelease, true, []string{"k"}},
		{"the release of a lease has no answer", true, true, dsynctest.MethodRelease, true, []string{"k"}},
		{"a lease is held", true, false, "none", false, nil},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			s := newSession(t, newFaulty(t, memory, lose(tt.lost)), nil)
			ended, cancel := context.WithCancel(background)
			cancel()
			if tt.lease {
				l, err := s.Mutex("k").Lease(background, time.Hour)
				noErr(t, err)
				if tt.unlock {
					l.Release(ended)
				}
			} else {
				h := take(t, s.Mutex("k").Hold)
				if tt.unlock {
					h.Release(ended)
				}
			}
			err := s.Close(ended)
			if errors.Is(err, dsync.ErrNotUnregistered) != tt.listed {
				t.Errorf("Close: %v, want it to report that the session stays registered: %t", err, tt.listed)
			}
			wantNotReleased(t, err, tt.unheard)
			if err != nil && !tt.listed && tt.unheard == nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// When the ctx of a second Close ends, the first Close stops waiting as well.
func TestSecondCloseHurriesTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := take(t, s.Mutex("k").Hold)
		first := make(chan error, 1)
		go func() { first <- s.Close(background) }()
		ctx, cancel := context.WithTimeout(background, grace/4)
		defer cancel()
		began := time.Now()
		if err := s.Close(ctx); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		if d := time.Since(began); d > grace/2 {
			t.Errorf("the second Close took %v, want at most half the grace", d)
		}
		if err := <-first; err != nil {
			t.Errorf("the first Close: %v", err)
		}
		h.Release(background)
	})
}

// B39: Release and ReleaseAfter return nil only if the store has confirmed the release. If the session is lost before
// that, the error is ErrLost. If the session is closed before that, the error is ErrNotReleased.
func TestWhatReleaseSays_B39(t *testing.T) {
	release := func(h *dsync.Hold) error { return h.Release(background) }
	for _, tt := range []struct {
		name    string
		acquire func(s *dsync.Session) (*dsync.Hold, error)
		release func(h *dsync.Hold) error
	}{
		{"Release", func(s *dsync.Session) (*dsync.Hold, error) { return s.Mutex("k").Hold(background) }, release},
		{"ReleaseAfter", func(s *dsync.Session) (*dsync.Hold, error) { return s.Mutex("k").Hold(background) }, func(h *dsync.Hold) error {
			return h.ReleaseAfter(background, time.Second)
		}},
		{"Release of a reader", func(s *dsync.Session) (*dsync.Hold, error) { return s.RWMutex("k").RHold(background) }, release},
		{"Release of units", func(s *dsync.Session) (*dsync.Hold, error) { return s.Semaphore("k", 3).Hold(background, 2) }, release},
		{"Release of a lease", func(s *dsync.Session) (*dsync.Hold, error) { return s.Mutex("k").Lease(background, time.Hour) }, release},
	} {
		for _, closed := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, and the session is closed: %t", tt.name, closed), func(t *testing.T) {
				memory := dsynctest.NewMemory()
				f := newFaulty(t, memory, nil)
				s := newSession(t, f, nil)
				h, err := tt.acquire(s)
				noErr(t, err)
				f.Cut()
				want := []error{dsync.ErrLost}
				if closed {
					time.AfterFunc(time.Second, func() { s.Close(background) })
					want = []error{dsync.ErrNotReleased, dsync.ErrClosed}
				}
				wantErr(t, tt.name, tt.release(h), want...)
				if len(holders(t, memory, "k")) != 1 {
					t.Error("the store has released the key, so this tests nothing")
				}
			})
		}
	}
}

// B39: if the store never answers a lease's release, Release returns an error once the lease is over, even if the
// session was lost long before. The error reports the end of the lease.
func TestLeaseReleaseEndsWithTheLease_B39(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, nil)
		l, err := s.Mutex("k").Lease(background, time.Minute)
		noErr(t, err)
		began := time.Now()
		f.Cut()
		released := make(chan error, 1)
		go func() { released <- l.Release(background) }()
		select {
		case err := <-released:
			wantErr(t, "Release", err, dsync.ErrLost, dsync.ErrLeaseOver)
			if d := time.Since(began); d < time.Minute || d > time.Minute+5*time.Second {
				t.Errorf("Release returned after %v, want a minute to 65s", d)
			}
		case <-time.After(3 * time.Hour):
			t.Fatal("Release has not returned after 3 h")
		}
		f.Heal()
	})
}
