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
	// firstSaid is how long the server does not answer before leasehold says so: a fail-over or a lost packet
	// is over sooner, or nearly.
	firstSaid = 3 * time.Second

	// saidAgain is how often it says so again.
	saidAgain = time.Minute
)

// A silence says on standard error that the server does not answer while leasehold waits for a key: the wait may
// take days, and looks like one for another holder. Its methods are called by the session's hooks and by the
// job.
type silence struct {
	say func(error)
	key string
	ttl time.Duration

	mu      sync.Mutex
	waiting bool
	began   time.Time // when a command failed, after which none has succeeded; zero: the server answers
	said    time.Time // zero: not yet
}

// wait says whether leasehold waits for the key.
func (s *silence) wait(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.began, s.said = waiting, time.Time{}, time.Time{}
}

// answered takes note of a command that succeeded.
func (s *silence) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.said.IsZero() {
		s.say(fmt.Errorf("the server answers again after %v; %q is still waited for", span(time.Since(s.began)), s.key))
	}
	s.began, s.said = time.Time{}, time.Time{}
}

// failed takes note of a command that failed, and says so if that lasts.
func (s *silence) failed(op string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Whoever waits needs these. A refusal ends the wait.
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
	var selection topology.ServerSelectionError // it describes the whole deployment
	if errors.As(err, &selection) {
		if last := lastError(selection); last != nil {
			why = oneLine(last)
		}
	}
	if attempt := s.ttl / 6; attempt < 2*time.Second && errors.Is(err, context.DeadlineExceeded) {
		why += fmt.Sprintf(" (a command has %v, a sixth of --ttl, to be answered: raise --ttl if the network is that slow)", span(attempt))
	}
	s.say(fmt.Errorf("the server has not answered for %v; %q is still waited for: %s", span(now.Sub(s.began)), s.key, why))
}
