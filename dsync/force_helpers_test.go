package dsync_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A party is one way to hold the key "k", or a part of it.
type party struct {
	name  string
	hold  func(ctx context.Context, s *dsync.Session) (*holding, error) // waits for the key
	force func(s *dsync.Session) func(context.Context) (*holding, error)
}

// A holding is what a party holds.
type holding struct {
	lost  <-chan struct{}
	done  func() error // unlocks; the error reports how the hold ended
	token func() int64
}

// holdingOf converts the results of a call such as Mutex.Hold to a holding.
func holdingOf(h *dsync.Hold, err error) (*holding, error) {
	if err != nil {
		return nil, err
	}
	return &holding{h.Lost(), func() error { return h.Release(background) }, h.Token}, nil
}

func forceMutex(s *dsync.Session) func(context.Context) (*holding, error) {
	return func(ctx context.Context) (*holding, error) { return holdingOf(s.Mutex("k").ForceHold(ctx)) }
}

// forceWriter takes the key of an RWMutex by force; only package engine offers that.
func forceWriter(s *dsync.Session) func(context.Context) (*holding, error) {
	return func(ctx context.Context) (*holding, error) {
		w := engine.Whole("k", driver.KindRWMutex)
		w.Weight, w.Limit, w.First = engine.RWLimit, engine.RWLimit, true
		h, err := engine.Of(s).Acquire(ctx, w)
		if err != nil {
			return nil, err
		}
		return &holding{h.Lost(), func() error { return h.Unlock(driver.Release{}).Wait(background) }, h.Token}, nil
	}
}

var parties = []party{
	{"mutex", func(ctx context.Context, s *dsync.Session) (*holding, error) {
		return holdingOf(s.Mutex("k").Hold(ctx))
	}, forceMutex},
	{"lease", func(ctx context.Context, s *dsync.Session) (*holding, error) {
		return holdingOf(s.Mutex("k").Lease(ctx, 5*time.Minute))
	}, forceMutex},
	{"writer", func(ctx context.Context, s *dsync.Session) (*holding, error) {
		return holdingOf(s.RWMutex("k").Hold(ctx))
	}, forceWriter},
	{"reader", func(ctx context.Context, s *dsync.Session) (*holding, error) {
		return holdingOf(s.RWMutex("k").RHold(ctx))
	}, forceWriter},
	{"semaphore", func(ctx context.Context, s *dsync.Session) (*holding, error) {
		return holdingOf(s.Semaphore("k", 3).Hold(ctx, 3))
	}, nil},
	{"once", run(nil), nil},
	{"hold", func(ctx context.Context, s *dsync.Session) (*holding, error) {
		h, err := engine.Of(s).Hold(ctx, engine.Whole("k", driver.KindElection))
		if err != nil {
			return nil, err
		}
		return &holding{h.Lost(), func() error { return h.Release(background) }, h.Token}, nil
	}, nil},
}

// run begins a run of a Once, whose function returns the given error when the holding is done.
func run(result error) func(context.Context, *dsync.Session) (*holding, error) {
	return func(ctx context.Context, s *dsync.Session) (*holding, error) {
		runs, over := make(chan context.Context, 1), make(chan error, 1)
		stop := make(chan struct{})
		go func() {
			over <- s.Once("k").Do(ctx, func(ctx context.Context) error {
				runs <- ctx
				<-stop
				return result
			})
		}()
		select {
		case c := <-runs:
			return &holding{c.Done(), func() error { close(stop); return <-over }, dsync.HoldFrom(c).Token}, nil
		case err := <-over:
			return nil, cmp.Or(err, errors.New("the Once is done"))
		}
	}
}

// take acquires "k" as p does, within five minutes.
func (p party) take(t testing.TB, s *dsync.Session) *holding {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(background), 5*time.Minute)
	if p.name != "once" { // a Once's run would end with ctx
		defer cancel()
	} else {
		t.Cleanup(cancel)
	}
	h, err := p.hold(ctx, s)
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return h
}

// The type ended has the error of a function, and the time at which the function returned.
type ended struct {
	err error
	at  time.Time
}

// async calls f on a goroutine. When f has returned, async sends f's error and the time on the channel.
func async(f func() error) <-chan ended {
	done := make(chan ended, 1)
	go func() {
		err := f()
		done <- ended{err, time.Now()}
	}()
	return done
}

func breakKey(s *dsync.Session) <-chan ended {
	return async(func() error { return admin.New(s).Break(background, "k") })
}

// closedAt returns a channel that receives the time at which c is closed.
func closedAt(c <-chan struct{}) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() { <-c; at <- time.Now() }()
	return at
}

// revocations returns the number of revocations in the session's record.
func revocations(t testing.TB, store driver.Store, session string) int {
	t.Helper()
	p, err := store.Heartbeat(background, session, nil)
	noErr(t, err)
	return len(p.Revoked)
}

// A test calls fail to make a method of an adminStore return an error.
type adminStore struct {
	*dsynctest.Memory
	mu   sync.Mutex
	errs map[dsynctest.Method]error
}

func (s *adminStore) fail(method dsynctest.Method, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errs == nil {
		s.errs = make(map[dsynctest.Method]error)
	}
	s.errs[method] = err
}

func (s *adminStore) broken(method dsynctest.Method) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errs[method]
}

func (s *adminStore) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	if err := s.broken(dsynctest.MethodLoad); err != nil {
		return driver.State{}, err
	}
	return s.Memory.Load(ctx, key, waiters)
}

func (s *adminStore) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	if err := s.broken(dsynctest.MethodKeys); err != nil {
		return nil, err
	}
	return s.Memory.Keys(ctx, q)
}

func (s *adminStore) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	if err := s.broken(dsynctest.MethodMembers); err != nil {
		return nil, time.Time{}, err
	}
	return s.Memory.Sessions(ctx, q)
}

func (s *adminStore) Revoke(ctx context.Context, session string, r driver.Revocation) ([]driver.Notice, error) {
	if err := s.broken(dsynctest.MethodRevoke); err != nil {
		return nil, err
	}
	return s.Memory.Revoke(ctx, session, r)
}

func (s *adminStore) Expire(ctx context.Context, session string, owner bool) (time.Duration, error) {
	if err := s.broken(dsynctest.MethodExpire); err != nil && !owner {
		return 0, err
	}
	return s.Memory.Expire(ctx, session, owner)
}
