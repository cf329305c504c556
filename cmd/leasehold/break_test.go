package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// holding returns a new session and its hold of key.
func holding(t *testing.T, store driver.Store, key string) (*dsync.Session, *engine.Hold) {
	t.Helper()
	s, err := dsync.New(store, &dsync.Options{Name: "holder", Host: "here", TTL: 10 * time.Second})
	noErr(t, err)
	h, err := engine.Of(s).Hold(t.Context(), engine.Whole(key, driver.KindMutex))
	noErr(t, err)
	return s, h
}

// bubble runs f in a synctest bubble that can use os/signal. The runtime starts its signal handling
// at the first use, which must be outside a bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT)
	signal.Stop(c)
	synctest.Test(t, f)
}

// alone fails the test unless the store has as many sessions left as there are ids.
func alone(t *testing.T, store driver.Store, ids ...string) {
	t.Helper()
	m, _, err := storecmd.Members(t.Context(), store)
	if err != nil || len(m) != len(ids) {
		t.Errorf("sessions %+v, %v are left, want %v", m, err, ids)
	}
}

// break notifies the holder and waits until the holder has released the key. It prints the names of the holder and of
// the first waiter, which gets the key. It leaves nothing behind in the store.
func TestBreak(t *testing.T) {
	for _, polling := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			s, h := holding(t, store, "k")
			defer s.Close(t.Context())
			token := h.Token()
			other, err := dsync.New(store, &dsync.Options{Name: "other", Host: "here"})
			noErr(t, err)
			defer other.Close(t.Context())
			next := make(chan error, 1)
			go func() { next <- other.Mutex("k").LockContext(context.Background()) }()
			time.Sleep(time.Second)
			since := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
			go func() {
				<-h.Lost()
				h.Release(context.Background())
			}()

			got := command(t, store, "break", "k")
			if got.status != 0 || got.err != "" {
				t.Errorf("exit status %d, %q on standard error, want 0 and nothing", got.status, got.err)
			}
			who, heir := fmt.Sprintf("holder (process %d on here)", os.Getpid()), fmt.Sprintf("other (process %d on here)", os.Getpid())
			lines := strings.Split(got.out, "\n")
			for i, want := range []string{
				fmt.Sprintf("k: asking %s to release it; token %d, held since %s", who, token, stamp(since)),
				"k: " + who + " released it (",
				"k: held by " + heir + ", token ",
				"",
			} {
				if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
					t.Errorf("line %d of\n%s\nwant it to begin with %q", i, got.out, want)
				}
			}
			if err := <-next; err != nil {
				t.Error(err)
			}
			alone(t, store, s.ID(), other.ID())
		})
	}
}

// A holder that does not stop keeps the key during its grace. If break's --timeout is shorter, break reports that the
// holder still has the key, and exits with the status for a timeout. The holder releases the key later.
func TestBreakTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, h := holding(t, store, "k")
		defer s.Close(t.Context())
		got := command(t, store, "break", "k", "--timeout", "1ms")
		if got.status != exitTimeout || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "leasehold status --exact k") {
			t.Errorf("exit status %d, %q on standard error, want %d and what to do next", got.status, got.err, exitTimeout)
		}
		if !strings.Contains(got.out, "still holds it") {
			t.Errorf("the output is %q, want a line that says that the holder still holds the key", got.out)
		}
		alone(t, store, s.ID())
		<-h.Finished()
		if got := command(t, store, "break", "k"); got.status != 0 || got.out != "k: nobody holds it\n" {
			t.Errorf("got %+v, want status 0 and that nobody holds the key", got)
		}
	})
}

// break waits until the session of a crashed holder expires, and does not report that the holder
// released the key.
func TestBreakOfACrashedHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t)
		s.acquire(claim("k", "c.1", driver.KindMutex, 1, 1))
		begin := time.Now()
		got := command(t, s.Memory, "break", "k")
		if took := time.Since(begin); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("break took %v, want the session's TTL of 10s", took)
		}
		if got.status != 0 || !strings.Contains(got.out, "c (process - on -) no longer holds it: its session expired") ||
			!strings.HasSuffix(got.out, "k: free now, 0 waiting\n") {
			t.Errorf("%+v", got)
		}
		alone(t, s.Memory, "a", "b")
	})
}

// An interrupted break stops waiting and leaves nothing behind in the store.
func TestBreakInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t)
		s.acquire(claim("k", "a.1", driver.KindMutex, 1, 1))
		ctx, cancel := context.WithCancel(t.Context())
		_, end := start(ctx, s.Memory, "break", "k")
		time.Sleep(time.Minute)
		alone(t, s.Memory, "a", "b", "break's own")
		cancel()
		if got := <-end; got.status != exitInterrupted || got.err != "" {
			t.Errorf("got %+v, want the status for an interrupt", got)
		}
		alone(t, s.Memory, "a", "b")
	})
}

// Breaking a key that does not exist writes nothing, and breaking one that nobody holds leaves nothing behind.
func TestBreakOfAFreeKey(t *testing.T) {
	s := newScene(t)
	before := s.Counts()
	if got, want := command(t, s.Memory, "break", "k"), (result{exitNothing, "", "leasehold: k: no such key; is it another --db or --collection?\n"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.wrote(before)
	s.release(s.acquire(claim("k", "a.1", driver.KindMutex, 1, 1)), driver.Release{})
	if got, want := command(t, s.Memory, "break", "k"), (result{0, "k: nobody holds it\n", ""}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	alone(t, s.Memory, "a", "b", "c")
}

// A deposedStore shows no holders until a session has registered, as a deposed primary may.
type deposedStore struct {
	*dsynctest.Memory
	met atomic.Bool
}

func (s *deposedStore) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	s.met.Store(true)
	return s.Memory.Register(ctx, m)
}

func (s *deposedStore) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	st, err := s.Memory.Load(ctx, key, waiters)
	if !s.met.Load() {
		st.Holders = nil
	}
	return st, err
}

// break does not report a key as free because a deposed primary shows no holder.
func TestBreakDoesNotBelieveADeposedPrimary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &deposedStore{Memory: dsynctest.NewMemory()}
		s, h := holding(t, store.Memory, "k")
		defer s.Close(t.Context())
		got := command(t, store, "break", "k")
		if got.status != 0 || !strings.Contains(got.out, "released it") || h.Live() {
			t.Errorf("%+v, want that the holder has released the key", got)
		}
	})
}

// A failingStore fails to register a session, with the error err, as many times as fails says.
type failingStore struct {
	*dsynctest.Memory
	fails atomic.Int64
	err   error
}

func (s *failingStore) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	if s.fails.Add(-1) >= 0 {
		return time.Time{}, s.err
	}
	return s.Memory.Register(ctx, m)
}

// If break can't register at first, because the store fails over, it tries again until its --timeout runs out, or until the
// store refuses.
func TestBreakDuringAFailOver(t *testing.T) {
	for _, c := range []struct {
		name   string
		fails  int64
		err    error
		status int
		says   string
	}{
		{"a few failures", 3, errors.New("no primary"), 0, ""},
		{"failures until the timeout", 1000, errors.New("no primary"), exitTimeout, "no primary"},
		{"refused", 1000, driver.ErrRefused, exitRefused, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := &failingStore{Memory: dsynctest.NewMemory(), err: c.err}
				s, h := holding(t, store.Memory, "k")
				defer s.Close(t.Context())
				store.fails.Store(c.fails)
				begin := time.Now()
				got := command(t, store, "break", "--timeout", "1m", "k")
				if got.status != c.status || !strings.Contains(got.err, c.says) || h.Live() != (c.status != 0) {
					t.Errorf("%+v, and the hold is live: %t; want status %d and an error with %q", got, h.Live(), c.status, c.says)
				}
				if took := time.Since(begin); (c.status == exitTimeout) != (took >= time.Minute) || took > 62*time.Second {
					t.Errorf("break took %v", took)
				}
			})
		})
	}
}

// After a signal, break exits with that signal's status and leaves nothing behind in the store.
func TestBreakEndsOnSignals(t *testing.T) {
	own := make(chan os.Signal, 1) // catches a signal that arrives too late, which would end the test
	signal.Notify(own, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(own)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		s := newScene(t)
		s.acquire(claim("k", "a.1", driver.KindMutex, 1, 1))
		out, end := start(t.Context(), s.Memory, "break", "k")
		asked := "" // what break has printed; it catches signals before it prints "asking"
		for !strings.Contains(asked, "asking") {
			time.Sleep(time.Millisecond)
			asked += out.take()
		}
		self, err := os.FindProcess(os.Getpid())
		noErr(t, err)
		noErr(t, self.Signal(sig))
		if got := <-end; got.status != 128+int(sig) || got.err != "" {
			t.Errorf("%v: %+v, want status %d", sig, got, 128+int(sig))
		}
		alone(t, s.Memory, "a", "b", "c")
	}
}

// forget prints what it has forgotten, and refuses to forget a key that is held.
func TestForget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t)
		s.release(s.acquire(claim("done", "a.1", driver.KindOnce, 1, 1)), driver.Release{Seal: 1})
		s.release(s.acquire(claim("elected", "a.2", driver.KindElection, 1, 1)), driver.Release{})
		s.release(s.acquire(claim("nightly", "a.4", driver.KindPeriodic, 1, 1)), driver.Release{Seal: 1_793_498_400_000})
		s.acquire(claim("held", "a.3", driver.KindMutex, 1, 1))
		if got := command(t, s.Memory, "break", "done"); got.status != 0 ||
			got.out != "done: nobody holds it: it is a once that is done; after leasehold forget it can run again\n" {
			t.Errorf("break of a once: %+v", got)
		}
		for _, c := range []struct{ key, out string }{
			{"done", "done: forgotten, a once that had been done\n"},
			{"done", "done: forgotten\n"},
			{"elected", "elected: forgotten, an election in term 1\n"},
			{"nightly", "nightly: forgotten, a periodic whose last tick was 2026-11-01T02:00:00.000Z\n"},
			{"other", "other: no such key\n"},
		} {
			if got := command(t, s.Memory, "forget", c.key); got.status != 0 || got.out != c.out || got.err != "" {
				t.Errorf("forget of %s: %+v, want %q", c.key, got, c.out)
			}
		}
		got := command(t, s.Memory, "forget", "held")
		if got.status != exitHeld || got.out != "" || !strings.HasPrefix(got.err, `leasehold: dsync: "held" is held by another`) {
			t.Errorf("forget of a held key: %+v, want status %d and an error that says that the key is held", got, exitHeld)
		}
	})
}
