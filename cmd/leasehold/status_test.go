package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Golden files contain the output of status for every kind of key, as a table and as JSON, so that every change of that
// output is visible.
func TestStatusGolden(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
	}{
		{"status.txt", []string{"status"}},
		{"status.jsonl", []string{"status", "--json"}},
		{"status-prefix.txt", []string{"status", "l"}},
		{"status-exact.txt", []string{"status", "--exact", "long\x1b[31m"}},
		{"status-held.txt", []string{"status", "--held"}},
		{"members.txt", []string{"members"}},
		{"members.jsonl", []string{"members", "--json"}},
		{"members-of.txt", []string{"members", "elected"}},
		{"members-of.jsonl", []string{"members", "elected", "--json"}},
	} {
		inBubble(t, c.file, func(t *testing.T) {
			s := newScene(t)
			s.allKinds()
			before := s.Counts()
			got := command(t, s.Memory, c.args...)
			if got.status != 0 || got.err != "" {
				t.Errorf("status: exit status %d, %q on standard error", got.status, got.err)
			}
			s.wrote(before)
			golden(t, c.file, got.out)
		})
	}
}

// Deadlocks among the requested keys are printed after the keys. A deadlock that also needs another
// key is not printed.
func TestStatusOfDeadlocks(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
	}{
		{"status-deadlock.txt", []string{"status"}},
		{"status-deadlock.jsonl", []string{"status", "--json"}},
		{"status-deadlock-prefix.txt", []string{"status", "k"}},
	} {
		inBubble(t, c.file, func(t *testing.T) {
			s := newScene(t)
			if _, err := s.Register(t.Context(), driver.Member{ID: "d", Name: "d\x1b[31m", Host: "host d", PID: 44, TTL: 10 * time.Minute}); err != nil {
				t.Fatal(err)
			}
			for _, claims := range [][2]string{{"k1", "a.1"}, {"k2", "b.1"}, {"other", "d.1"}, {"k2", "a.2"}, {"other", "b.2"}, {"k1", "d.2"}, {"k1", "c.1"}} {
				s.acquire(claim(claims[0], claims[1], driver.KindMutex, 1, 1))
			}
			time.Sleep(5 * time.Second)
			before := s.Counts()
			got := command(t, s.Memory, c.args...)
			if got.status != 0 || got.err != "" {
				t.Errorf("status: exit status %d, %q on standard error", got.status, got.err)
			}
			s.wrote(before)
			golden(t, c.file, got.out)
		})
	}
}

// If nothing is found, status, members and break print a hint and exit with the status for "nothing found". With
// --exact and --json, status also prints an object of kind "".
func TestStatusOfNothing(t *testing.T) {
	s := newScene(t)
	s.release(s.acquire(claim("free", "a.1", driver.KindMutex, 1, 1)), driver.Release{})
	for _, args := range [][]string{
		{"status"}, {"status", "x"}, {"status", "--exact", "x"}, {"members"}, {"members", "x"}, {"break", "x"},
		{"status", "--json"}, {"status", "x", "--json"}, {"members", "--json"}, {"members", "x", "--json"},
	} {
		stores := []driver.Store{dsynctest.NewMemory()}
		if len(args) > 1 && args[1] != "--json" {
			stores = append(stores, s.Memory) // a store that has only other keys
		}
		for _, store := range stores {
			got := command(t, store, args...)
			if got.status != exitNothing || got.out != "" || !strings.Contains(got.err, "another --db") || strings.Count(got.err, "\n") != 1 {
				t.Errorf("%q: %+v, want status %d and a hint on standard error", args, got, exitNothing)
			}
		}
	}
	got := command(t, s.Memory, "status", "--exact", "x", "--json")
	if got.status != exitNothing || !strings.HasPrefix(got.out, `{"key":"x",`) || !strings.Contains(got.out, `"kind":""`) {
		t.Errorf("--exact --json: %+v, want status %d and an object of kind \"\"", got, exitNothing)
	}
	for _, args := range [][]string{{"status"}, {"status", "fr"}, {"status", "--exact", "free"}, {"members"}, {"break", "free"}} {
		if got := command(t, s.Memory, args...); got.status != 0 || got.err != "" {
			t.Errorf("%q: %+v, want status 0, because the key exists", args, got)
		}
	}
}

// A pagedStore counts the pages of keys that are read, and fails to read one of them.
type pagedStore struct {
	*dsynctest.Memory
	pages  atomic.Int64
	broken int64 // the number of the page that fails; 0: none
}

func (s *pagedStore) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	if s.pages.Add(1) == s.broken {
		return nil, errors.New("the page\ncan't be read")
	}
	return s.Memory.Keys(ctx, q)
}

// A noting is a writer that records how many pages were read before the first write.
type noting struct {
	io.Writer
	store *pagedStore
	first int64
	lines int
}

func (w *noting) Write(p []byte) (int, error) {
	if w.first == 0 {
		w.first = w.store.pages.Load()
	}
	w.lines += strings.Count(string(p), "\n")
	return len(p), nil
}

func manyKeys(t *testing.T, n int) *pagedStore {
	s := newScene(t)
	for i := range n {
		s.acquire(claim(fmt.Sprintf("key %05d", i), fmt.Sprintf("a.%d", i), driver.KindMutex, 1, 1))
	}
	return &pagedStore{Memory: s.Memory}
}

// The first lines are printed once the first page, of a hundred keys, has been read. Later pages
// have up to a thousand keys, and no page is read twice.
func TestStatusStreams(t *testing.T) {
	const keys = 10_000
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"status", "key "}} {
		store := manyKeys(t, keys)
		w := &noting{store: store}
		a := &app{stdout: w, stderr: io.Discard, store: store, frame: new(display)}
		if status := a.main(t.Context(), args); status != 0 {
			t.Errorf("%q: exit status %d", args, status)
		}
		if w.first != 1 {
			t.Errorf("%q: %d pages were read before the first line, want 1", args, w.first)
		}
		if want := int64(4 + 9); store.pages.Load() != want {
			t.Errorf("%q: %d pages were read, want %d", args, store.pages.Load(), want)
		}
		if w.lines < keys || w.lines > keys+1 {
			t.Errorf("%q: %d lines, want one for each of %d keys", args, w.lines, keys)
		}
	}
}

// The keys that were read are printed before the error, which is one line.
func TestStatusThatBreaks(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"status", "--json"}} {
		store := manyKeys(t, 400)
		store.broken = 3
		got := command(t, store, args...)
		if n := strings.Count(got.out, "key 00"); n != 300 {
			t.Errorf("%q: %d keys were shown, want 300", args, n)
		}
		if got.status != exitFailed || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "the page can't be read") {
			t.Errorf("%q: exit status %d, %q", args, got.status, got.err)
		}
	}
}

// Bad input is a usage error, reported in one line; no command is sent to the store.
func TestReadOnlyCommandsRefuseBadInput(t *testing.T) {
	long := strings.Repeat("x", 513)
	for _, args := range [][]string{
		{"status", "a", "b"}, {"status", "--exact"}, {"status", "--exact", long}, {"status", "--yaml"},
		{"members", "a", "b"}, {"members", ""}, {"members", long},
		{"break"}, {"break", ""}, {"break", long}, {"break", "a", "b"}, {"break", "a", "--timeout", "-1s"},
		{"clock", "a"}, {"clock", "--limit", "0"}, {"clock", "--limit", "-1s"}, {"clock", "--samples", "0"}, {"clock", "--samples", "1001"}, {"clock"},
		{"man"}, {"man", "a", "b"},
	} {
		store := dsynctest.NewMemory()
		got := command(t, store, args...)
		if got.status != exitUsage || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "leasehold: ") {
			t.Errorf("%.30q: exit status %d, %q, %q; want %d and one line", args, got.status, got.out, got.err, exitUsage)
		}
		if n := store.Counts().Total(); n != 0 {
			t.Errorf("%.30q: %d commands were sent", args, n)
		}
	}
}

// If no server answers, these commands print one line that says so, and nothing else.
func TestNoServer(t *testing.T) {
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"status", "--exact", "k"}, {"members"}, {"members", "k"}, {"break", "k"}, {"clock"}, {"serve", "--listen", "localhost:0"}, {"serve", "--allow-break", "--listen", "localhost:0"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			got := command(t, nil, append(args, "--uri", "mongodb://127.0.0.1:9/", "--connect-timeout", "1s")...)
			if got.status != exitUnreachable || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "127.0.0.1:9") {
				t.Errorf("%q: exit status %d, %q, %q", args, got.status, got.out, got.err)
			}
		})
	}
}
