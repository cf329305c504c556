package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

var (
	noErr    = testkit.NoErr
	inBubble = testkit.InBubble
)

// A result is the exit status and the output of a command line.
type result struct {
	status   int
	out, err string
}

// command runs a command line in this process. It uses store or, if store is nil, the server that
// the flags name. MONGODB_URI is not set.
func command(t *testing.T, store driver.Store, args ...string) result {
	t.Helper()
	var out, err screen // the keeper copies its output while leasehold writes messages
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: &err,
		getenv: func(string) string { return "" },
		store:  store,
	}
	status := a.main(t.Context(), args)
	return result{status, out.take(), err.take()}
}

// A screen collects what a running command writes.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// take returns what was written since the previous call.
func (s *screen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.b.String()
	s.b.Reset()
	return text
}

// holdAs acquires key, of the given kind, for session s.
func holdAs(t *testing.T, s *dsync.Session, key string, kind driver.Kind) *engine.Hold {
	t.Helper()
	w := engine.Whole(key, kind)
	if kind == driver.KindOnce || kind == driver.KindPeriodic {
		w.Tick = 1
	}
	h, err := engine.Of(s).Hold(t.Context(), w)
	noErr(t, err)
	return h
}
