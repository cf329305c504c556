package dsync_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A staleStore reads sessions from a copy that has not heard of them yet, or says
// that they are dead.
type staleStore struct {
	*dsynctest.Memory
	dead bool
}

func (s *staleStore) Members(ctx context.Context, ids ...string) ([]dsync.Member, time.Time, error) {
	m, now, err := s.Memory.Members(ctx, ids...)
	if !s.dead {
		return nil, now, err
	}
	for i := range m {
		m[i].Dead = true
	}
	return m, now, err
}

// Promise 3: that a session is not there, or dead, by a reading that may be stale
// makes it suspected; only a burial makes it dead.
func TestStaleReadingBuriesNobody(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprint("dead ", dead), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				a, b := newSession(t, memory, nil), newSession(t, &staleStore{memory, dead}, nil)
				mu, other := a.Mutex("k"), b.Mutex("k")
				lock(t, mu)
				wantErr(t, "TryLockContext", other.TryLockContext(background), dsync.ErrHeld)
				ctx, cancel := context.WithTimeout(background, 2*ttl)
				defer cancel()
				wantErr(t, "LockContext", other.LockContext(ctx), context.DeadlineExceeded)
				if h := holders(t, memory, "k"); len(h) != 1 || h[0].Token != mu.Token() {
					t.Errorf("held by %v", h)
				}
				mu.Unlock()
			})
		})
	}
}

// The further back in line, the later a waiter looks whether the holder has died: a
// crash does not make all of them call at once.
func TestCrashIsLookedAtInTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var burials atomic.Int64
		count := func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodBury {
				burials.Add(1)
			}
			return dsynctest.Fault{}
		}
		crashed := newFaulty(t, memory, nil)
		c := newSession(t, crashed, nil)
		lock(t, c.Mutex("k"))
		lapse := time.Now().Add(ttl)
		crashed.Cut()
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		var first *dsync.Mutex
		for range 50 {
			mu := newSession(t, newFaulty(t, memory, count), nil).Mutex("k")
			wg.Go(func() {
				if mu.LockContext(ctx) == nil {
					first = mu
				}
			})
			synctest.Wait()
		}
		time.Sleep(time.Until(lapse.Add(ttl / 200)))
		if n := burials.Load(); n < 1 || n > 3 {
			t.Errorf("%d of 50 waiters tried to bury the session when it lapsed, want the first", n)
		}
		cancel()
		wg.Wait()
		if first == nil {
			t.Fatal("nobody locked it")
		}
		first.Unlock()
	})
}
