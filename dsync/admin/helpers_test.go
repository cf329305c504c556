package admin_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

const ttl = testkit.TTL

var background = context.Background()

var (
	newSession = testkit.NewSession
	noErr      = testkit.NoErr
	inBubble   = testkit.InBubble
	newFaulty  = testkit.NewFaulty
	lock       = testkit.Lock
	turn       = testkit.Turn
	wantErr    = testkit.WantErr
	waitAt     = testkit.WaitAt
	bubble     = synctest.Test
)

// status returns the status of key, read by s.
func status(t testing.TB, s *dsync.Session, key string) admin.Status {
	t.Helper()
	st, err := admin.New(s).Status(background, key)
	if err != nil {
		t.Fatalf("Status of %q: %v", key, err)
	}
	return st
}

// A brokenStore makes one of its reading methods fail.
type brokenStore struct {
	*dsynctest.Memory
	mu     sync.Mutex
	method dsynctest.Method
	err    error
}

// fail makes the method fail with err from now on; if err is nil, no method fails.
func (s *brokenStore) fail(method dsynctest.Method, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.method, s.err = method, err
}

func (s *brokenStore) broken(method dsynctest.Method) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == s.method {
		return s.err
	}
	return nil
}

func (s *brokenStore) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	if err := s.broken(dsynctest.MethodLoad); err != nil {
		return driver.State{}, err
	}
	return s.Memory.Load(ctx, key, waiters)
}

func (s *brokenStore) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	if err := s.broken(dsynctest.MethodKeys); err != nil {
		return nil, err
	}
	return s.Memory.Keys(ctx, q)
}

func (s *brokenStore) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	if err := s.broken(dsynctest.MethodMembers); err != nil {
		return nil, time.Time{}, err
	}
	return s.Memory.Sessions(ctx, q)
}
