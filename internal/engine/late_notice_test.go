package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// lateNotices returns store with every notice to a listener delayed by d.
func lateNotices(t *testing.T, store driver.Store, late time.Duration) driver.Store {
	return newFaulty(t, store, func(r dsynctest.Request) (f dsynctest.Fault) {
		if r.Method == dsynctest.MethodNotice {
			f.Delay = late
		}
		return f
	})
}

// B35: a key kept by UnlockAfter stays held even if the notice of its grant arrives long after the
// session has forgotten the claim.
func TestLateNoticeDoesNotFreeAKeptKey_B35(t *testing.T) {
	for _, late := range []time.Duration{ttl / 2, 2 * ttl, 5 * ttl} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const keep = 12 * ttl
				memory := dsynctest.NewMemory()
				a, c := newSession(t, memory, nil).Mutex("k"), newSession(t, memory, nil).Mutex("k")
				b := newSession(t, lateNotices(t, memory, late), nil).Mutex("k")
				lock(t, a)
				time.AfterFunc(time.Second, a.Unlock)
				lock(t, b) // learned by polling
				if err := b.UnlockAfter(background, keep); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				lock(t, c)
				if d := time.Since(began); d < keep-time.Millisecond { // the resolution of the clock
					t.Errorf("kept for %v, want %v", d, keep)
				}
			})
		})
	}
}

// Break frees a key kept by UnlockAfter, also for the session that kept it.
func TestBreakFreesAKeyKeptByUnlockAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		if err := mu.UnlockAfter(background, 100*ttl); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := newSession(t, memory, nil).Break(background, "k"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > ttl {
			t.Errorf("broken after %v", d)
		}
	})
}

// A fixed lease that lapsed before its grant was learned, and was granted again, has the token of
// its second grant, which is greater than those of all holders in between. The late notice of the
// first grant does not lower it.
func TestLeaseGrantedTwiceHasTheSecondToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = 3500 * time.Millisecond // less than a poll interval
		memory := dsynctest.NewMemory()
		a := newSession(t, memory, nil).Mutex("k")
		lock(t, a)
		store := &lateGrant{Memory: memory}
		s := newSession(t, store, nil)
		leased := make(chan *dsync.Lease, 1)
		go func() {
			l, err := s.Acquire(background, "k", d)
			if err != nil {
				t.Error(err)
			}
			leased <- l
		}()
		synctest.Wait()
		a.Unlock() // grants to s, which does not receive the notice
		time.Sleep(d)
		lock(t, a)
		between := a.Token()
		a.Unlock()
		// s requests again by itself, and its claim is granted once more.
		if token := (<-leased).Token(); token <= between {
			t.Errorf("leased with token %d, after another held with %d", token, between)
		}
	})
}

// A lateGrant delivers the notice of a grant when the session requests the same key again, and
// loses the reply to that request.
type lateGrant struct {
	*dsynctest.Memory
	mu      sync.Mutex
	deliver func()
}

func (s *lateGrant) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	return s.Memory.Listen(ctx, session, keys, func(e driver.Notice) {
		if e.Type != driver.NoticeGrant {
			f(e)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.deliver == nil {
			s.deliver = func() { f(e) }
		}
	})
}

func (s *lateGrant) Acquire(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
	st, notices, err := s.Memory.Acquire(ctx, c, wait, dead, notAfter)
	s.mu.Lock()
	deliver := s.deliver
	s.mu.Unlock()
	if deliver == nil {
		return st, notices, err
	}
	deliver()
	<-ctx.Done()
	return driver.State{}, nil, ctx.Err()
}

// An Extend that finds a different grant under the claim's id reports that the lease was lost, and
// releases that grant.
func TestExtendOfAnotherGrantIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		l, err := s.Acquire(background, "k", ttl)
		if err != nil {
			t.Fatal(err)
		}
		h := holders(t, memory, "k")[0]
		memory.Skew(2 * ttl) // the store's clock jumps ahead, and the lease ends there
		again := driver.Claim{Key: "k", ID: h.Claim, Session: h.Session, Kind: dsync.KindMutex, Weight: 1, Limit: 1, Lease: 100 * ttl}
		if _, _, err := memory.Acquire(background, again, false, nil, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, dsync.ErrLost)
		if l.Token() != 0 || !isClosed(l.Lost()) {
			t.Error("it is still held")
		}
		time.Sleep(2 * grace)
		if h := holders(t, memory, "k"); len(h) > 0 {
			t.Errorf("held by %v", h)
		}
	})
}
