//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

const (
	// firstSaid is how long the server must be silent before leasehold first reports the silence.
	// Most fail-overs end sooner.
	firstSaid = 3 * time.Second

	// saidAgain is the shortest time between two reports.
	saidAgain = time.Minute
)

// A silence is for the time when leasehold waits for a key: it reports on standard error if the server does not answer.
// Without a report, a silent server would look as if another process held the key for a long time. Its methods are
// called by the session's hooks and by the job.
type silence struct {
	say func(error)
	key string
	ttl time.Duration

	mu      sync.Mutex
	waiting bool
	began   time.Time // time of the first failure since the last success; zero: the server answers
	said    time.Time // time of the last report; zero: none yet
}

// wait records whether leasehold is waiting for the key.
func (s *silence) wait(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.began, s.said = waiting, time.Time{}, time.Time{}
}

// answered records a command that succeeded.
func (s *silence) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.said.IsZero() {
		s.say(fmt.Errorf("the server answers again after %v; still waiting for %q", span(time.Since(s.began)), s.key))
	}
	s.began, s.said = time.Time{}, time.Time{}
}

// failed records a command that failed, and reports the silence if failures persist.
func (s *silence) failed(op string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Only these commands matter to a waiter. Don't report a refusal, because it ends the wait.
	if !s.waiting || errors.Is(err, dsync.ErrRefused) || !slices.Contains([]string{"Register", "Heartbeat", "Acquire", "Load", "Read"}, op) {
		return
	}
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	}
	if now.Sub(s.began) < firstSaid || !s.said.IsZero() && now.Sub(s.said) < saidAgain {
		return
	}
	s.said = now
	why := oneLine(err)
	var selection topology.ServerSelectionError // the text of such an error describes the whole deployment
	if errors.As(err, &selection) {
		if last := lastError(selection); last != nil {
			why = oneLine(last)
		}
	}
	if attempt := s.ttl / 6; attempt < 2*time.Second && errors.Is(err, context.DeadlineExceeded) {
		why += fmt.Sprintf(" (a command times out after %v, a sixth of --ttl: raise --ttl if the network is that slow)", span(attempt))
	}
	s.say(fmt.Errorf("the server has not answered for %v; still waiting for %q: %s", span(now.Sub(s.began)), s.key, why))
}
