package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		noErr(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	noErr(t, err)
	if got != string(want) {
		t.Errorf("got\n%s\nwant, from %s,\n%s", got, path, want)
	}
}

// A scene is a store in memory. Its sessions have the same IDs and hosts in every run, and in a bubble also the same
// times.
type scene struct {
	*dsynctest.Memory
	t *testing.T
}

// newScene returns a scene with three sessions: a and b have a TTL of ten minutes, and c has a TTL
// of ten seconds.
func newScene(t *testing.T) scene {
	s := scene{dsynctest.NewMemory(), t}
	for _, m := range []driver.Member{
		{ID: "a", Name: "worker-a", Host: "host-a", PID: 11, App: "app 1.2", TTL: 10 * time.Minute, Meta: map[string]string{"zone": "eu 1", "pool": "x"},
			Settings: driver.Settings{Version: "v1.2.3", Heartbeat: 10 * time.Second, Margin: 500 * time.Millisecond, Grace: 3 * time.Second}},
		{ID: "b", Name: "host-b", Host: "host-b", PID: 22, TTL: 10 * time.Minute},
		{ID: "c", TTL: 10 * time.Second},
	} {
		if _, err := s.Register(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// claim returns a claim whose session is named by the first letter of id.
func claim(key, id string, kind driver.Kind, weight, limit int64) driver.Claim {
	return driver.Claim{Key: key, ID: id, Session: id[:1], Kind: kind, Weight: weight, Limit: limit}
}

func (s scene) acquire(c driver.Claim) driver.Claim {
	s.t.Helper()
	if _, _, err := storecmd.Acquire(s.t.Context(), s, c, true, nil, time.Now().Add(time.Hour)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s scene) release(c driver.Claim, o driver.Release) {
	s.t.Helper()
	if found, _, err := storecmd.Release(s.t.Context(), s, c, o); !found || err != nil {
		s.t.Fatal(found, err)
	}
}

func (s scene) publish(c driver.Claim, seq int64, value string) {
	s.t.Helper()
	if _, err := storecmd.Publish(s.t.Context(), s, c, seq, []byte(value)); err != nil {
		s.t.Fatal(err)
	}
}

// allKinds acquires keys of every kind, in several states.
func (s scene) allKinds() {
	s.acquire(claim("done", "a.1", driver.KindOnce, 1, 1))
	s.release(claim("done", "a.1", driver.KindOnce, 1, 1), driver.Release{Seal: 1, Result: []byte("\xff\x00")})
	s.acquire(claim("elected", "b.1", driver.KindElection, 1, 1))
	s.publish(claim("elected", "b.1", driver.KindElection, 1, 1), 1, "http://host-b:8080/ and more than fits into forty columns")
	if err := s.Observe(s.t.Context(), "a", 1, []string{"elected"}); err != nil {
		s.t.Fatal(err)
	}
	s.acquire(claim("free", "a.2", driver.KindMutex, 1, 1))
	s.release(claim("free", "a.2", driver.KindMutex, 1, 1), driver.Release{})
	lease := claim("lease", "b.2", driver.KindMutex, 1, 1)
	lease.Lease = time.Minute
	st, _, err := storecmd.Acquire(s.t.Context(), s, lease, true, nil, time.Now().Add(time.Hour))
	if err != nil {
		s.t.Fatal(err)
	}
	lease.Token = st.Token
	if _, err := storecmd.Extend(s.t.Context(), s, lease, 1); err != nil { // before Extend, the hold would end with its session
		s.t.Fatal(err)
	}
	s.acquire(claim("lapsed", "c.1", driver.KindMutex, 1, 1))
	time.Sleep(12 * time.Second)
	for _, id := range []string{"a.3", "b.3", "a.4", "b.4", "a.5", "b.5", "a.6", "b.6", "a.7", "b.7", "a.8"} {
		s.acquire(claim("long\x1b[31m", id, driver.KindMutex, 1, 1))
	}
	night := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)
	for i, id := range []string{"a.12", "b.12"} {
		c := claim("nightly", id, driver.KindPeriodic, 1, 1)
		c.Tick = night.AddDate(0, 0, i).UnixMilli()
		s.acquire(c)
		if i == 0 { // the second run has not ended
			s.release(c, driver.Release{Seal: c.Tick, Result: []byte("up to 7")})
		}
	}
	s.acquire(claim("once", "a.9", driver.KindOnce, 1, 1))
	s.acquire(claim("rw", "a.10", driver.KindRWMutex, 1, 100))
	s.acquire(claim("rw", "b.10", driver.KindRWMutex, 100, 100))
	s.acquire(claim("sem", "a.11", driver.KindSemaphore, 2, 5))
	s.acquire(claim("sem", "b.11", driver.KindSemaphore, 3, 5))
	time.Sleep(1234 * time.Millisecond)
}

// wrote fails the test if a command has written anything, or has sent the store anything but reads.
// The parameter before has the store's counts from before that command.
func (s scene) wrote(before dsynctest.Counts) {
	s.t.Helper()
	d := s.Counts().Since(before)
	for method, n := range d.Commands {
		switch method {
		case dsynctest.MethodLoad, dsynctest.MethodKeys, dsynctest.MethodMembers, dsynctest.MethodObservers:
		default:
			s.t.Errorf("a read-only command sent %d commands %s", n, method)
		}
	}
	if d.Writes != 0 {
		s.t.Errorf("a read-only command wrote %d records", d.Writes)
	}
}

// start runs a command line in a goroutine, and interrupts it when ctx ends.
func start(ctx context.Context, store driver.Store, args ...string) (out *screen, end <-chan result) {
	out = new(screen)
	done := make(chan result, 1)
	go func() {
		var bad screen
		a := &app{stdin: strings.NewReader(""), stdout: out, stderr: &bad, getenv: func(string) string { return "" }, store: store}
		status := a.main(ctx, args)
		done <- result{status, out.take(), bad.take()}
	}()
	return out, done
}
