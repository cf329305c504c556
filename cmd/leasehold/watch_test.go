package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// happenings are the changes of keys, one by one: each is shown by one reading.
func happenings(s scene) []func() {
	first, second := claim("k", "a.1", dsync.KindMutex, 1, 1), claim("k", "b.1", dsync.KindMutex, 1, 1)
	elected := claim("e", "a.2", dsync.KindElection, 1, 1)
	once := claim("o", "b.2", dsync.KindOnce, 1, 1)
	return []func(){
		func() { s.acquire(first) },
		func() { s.acquire(second) },
		func() { s.release(first, driver.Leave{}) },
		func() { s.release(second, driver.Leave{}) },
		func() { s.acquire(elected) },
		func() { s.publish(elected, 1, "there") },
		func() { s.acquire(once) },
		func() { s.release(once, driver.Leave{Seal: true, Result: []byte("42")}) },
		func() { s.acquire(claim("s", "b.3", dsync.KindSemaphore, 2, 5)) },
		func() {
			if _, err := storecmd.Resize(s.t.Context(), s, "s", dsync.KindSemaphore, 5, 7); err != nil {
				s.t.Fatal(err)
			}
		},
		func() { s.acquire(claim("c", "c.1", dsync.KindMutex, 1, 1)) },
		func() { time.Sleep(11 * time.Second) },
		func() {
			if _, err := s.Heartbeat(s.t.Context(), "c", nil); err != nil {
				s.t.Fatal(err)
			}
		},
	}
}

// What watch prints of keys that come while it watches, and that it writes nothing.
func TestWatchGolden(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
	}{
		{"watch.txt", []string{"watch"}},
		{"watch.jsonl", []string{"watch", "--json"}},
		{"watch-prefix.txt", []string{"watch", "e", "o"}},
		{"watch-exact.txt", []string{"watch", "--exact", "k", "s"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.acquire(claim("k0", "a.9", dsync.KindMutex, 1, 1)) // before the watch began
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				watched := &writeCounter{Store: s.Memory}
				_, end := start(ctx, watched, c.args...)
				time.Sleep(100 * time.Millisecond)
				for _, happens := range happenings(s) {
					happens()
					time.Sleep(2 * time.Second)
				}
				cancel()
				got := <-end
				if got.status != exitInterrupted || got.err != "" {
					t.Errorf("exit status %d, %q on standard error", got.status, got.err)
				}
				if n := watched.wrote.Load(); n != 0 {
					t.Errorf("%d commands that write were sent", n)
				}
				golden(t, c.file, got.out)
			})
		})
	}
}

// A writeCounter counts the commands that could write.
type writeCounter struct {
	driver.Store
	wrote atomic.Int64
}

func (s *writeCounter) Register(ctx context.Context, m dsync.Member) (time.Time, error) {
	s.wrote.Add(1)
	return s.Store.Register(ctx, m)
}

func (s *writeCounter) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	s.wrote.Add(1)
	return s.Store.Edit(ctx, e)
}

func (s *writeCounter) Expire(ctx context.Context, id string, owner bool) (time.Duration, error) {
	s.wrote.Add(1)
	return s.Store.Expire(ctx, id, owner)
}

// While the store does not answer, watch says so once and goes on; afterwards it shows the
// changes of that time.
func TestWatchEnduresAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.acquire(claim("k", "a.1", dsync.KindMutex, 1, 1))
		store := &outage{Memory: s.Memory}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, end := start(ctx, store, "watch")
		time.Sleep(100 * time.Millisecond)
		store.down.Store(true)
		time.Sleep(10 * time.Second)
		s.release(claim("k", "a.1", dsync.KindMutex, 1, 1), driver.Leave{})
		time.Sleep(10 * time.Second)
		store.down.Store(false)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if got := out.take(); !strings.Contains(got, "k  ended: ") || strings.Count(got, "\n") != 2 {
			t.Errorf("%q, want the holder, and that it does not hold any more", got)
		}
		s.acquire(claim("k", "b.1", dsync.KindMutex, 1, 1))
		time.Sleep(time.Second)
		if got := out.take(); !strings.Contains(got, "k  granted: ") {
			t.Errorf("%q, want what comes after it", got)
		}
		cancel()
		got := <-end
		if strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "no answer, still trying") {
			t.Errorf("%q on standard error, want one line", got.err)
		}
	})
}

// An outage is a store that can be down.
type outage struct {
	*dsynctest.Memory
	down atomic.Bool
}

var errDown = errors.New("down")

func (s *outage) Keys(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
	if s.down.Load() {
		return nil, errDown
	}
	return s.Memory.Keys(ctx, prefix, after, n)
}

// The end of its reader ends the watch.
func TestWatchEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		in, out := io.Pipe()
		in.Close()
		s.acquire(claim("k", "a.1", dsync.KindMutex, 1, 1))
		a := &app{stdout: out, stderr: io.Discard, store: s.Memory}
		if status := a.main(t.Context(), []string{"watch"}); status != exitFailed {
			t.Errorf("exit status %d, want %d", status, exitFailed)
		}
	})
}
