package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A staleStore reads sessions from a stale copy of the store, in which they are missing or expired.
type staleStore struct {
	*dsynctest.Memory
	dead bool
}

func (s *staleStore) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	m, now, err := s.Memory.Sessions(ctx, q)
	if !s.dead {
		return nil, now, err
	}
	for i := range m {
		m[i].Expired = true
	}
	return m, now, err
}

// Promise 3: a reading that shows a session as missing or expired may be stale. So other sessions do not rely on it:
// only the reply to an Expire decides.
func TestStaleReadingExpiresNobody(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprint("expired ", dead), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				a, b := newSession(t, memory, nil), newSession(t, &staleStore{memory, dead}, nil)
				mu, other := a.Mutex("k"), b.Mutex("k")
				lock(t, mu)
				wantErr(t, "TryHold", errOf(other.TryHold(background)), dsync.ErrHeld)
				ctx, cancel := context.WithTimeout(background, 2*ttl)
				defer cancel()
				wantErr(t, "LockContext", other.LockContext(ctx), context.DeadlineExceeded)
				if h := holders(t, memory, "k"); len(h) != 1 || h[0].Token != mu.Token() {
					t.Errorf("the key is held by %v", h)
				}
				mu.Unlock()
			})
		})
	}
}

// Waiters do not all check at the same time whether the holder has lapsed: those further back in the queue check later.
// So a crash does not make all waiters send commands at once.
func TestCrashIsCheckedInTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var expiries atomic.Int64
		count := func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodExpire {
				expiries.Add(1)
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
		if n := expiries.Load(); n < 1 || n > 3 {
			t.Errorf("%d of 50 waiters tried to expire the session when it lapsed, want 1 to 3", n)
		}
		cancel()
		wg.Wait()
		if first == nil {
			t.Fatal("no waiter got the key")
		}
		first.Unlock()
	})
}

// A narrowStore behaves like a server that limits replies to 16 MB, and accepts at most 1,000 session ids in a query.
// It counts the readings of sessions.
type narrowStore struct {
	*dsynctest.Memory
	full, slim atomic.Int64
}

func (s *narrowStore) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	if q.Liveness {
		s.slim.Add(1)
	} else {
		s.full.Add(1)
	}
	found, now, err := s.Memory.Sessions(ctx, q)
	size := 0
	for _, m := range found {
		size += 200 + len(m.Name) + len(m.Host) + len(m.App)
		for k, v := range m.Meta {
			size += len(k) + len(v)
		}
	}
	if size > 16<<20 || len(q.IDs) > 1000 {
		return nil, time.Time{}, fmt.Errorf("BSONObjectTooLarge: %d bytes about %d sessions", size, len(q.IDs))
	}
	return found, now, err
}

// crowded returns a store in which n sessions each hold one unit of the semaphore "k" of size n. The Meta of each
// session is nearly as large as is allowed. The last session lapses after ttl.
func crowded(t *testing.T, n int) *narrowStore {
	store := &narrowStore{Memory: dsynctest.NewMemory()}
	meta := map[string]string{"about": strings.Repeat("x", 4000)}
	for i := range n {
		id := fmt.Sprintf("s%05d", i)
		life := time.Hour
		if i == n-1 {
			life = ttl
		}
		if _, err := store.Register(background, driver.Member{ID: id, TTL: life, Host: "host of " + id, PID: 1 + i, Meta: meta}); err != nil {
			t.Fatal(err)
		}
		c := driver.Claim{Key: "k", ID: id + ".1", Session: id, Kind: driver.KindSemaphore, Weight: 1, Limit: int64(n)}
		if _, _, err := storecmd.Acquire(background, store, c, true, nil, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// Even if thousands of sessions with large metadata hold a key, a waiter finds the one that has lapsed.
func TestExpiredSessionIsFoundAmongThousands(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		const n = 4500
		store := crowded(t, n)
		var log strings.Builder
		s := newSession(t, store, &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		k := s.Semaphore("k", n)
		start := time.Now()
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		if err := k.Acquire(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > ttl+ttl/5 {
			t.Errorf("the lapsed session's unit was acquired after %v, want soon after its TTL of %v", took, ttl)
		}
		if slim, full := store.slim.Load(), store.full.Load(); slim < 5 || full > 3 {
			t.Errorf("%d short readings and %d full ones, want at least 5 short ones, of 1,000 sessions each, and at most 3 full ones", slim, full)
		}
		k.Release(1)
		synctest.Wait() // the session's record is read for the log in the background
		if err := s.Close(background); err != nil {
			t.Error(err)
		}
		synctest.Wait() // for the log
		if want := fmt.Sprintf(`session=s%05d host="host of s%05d" pid=%d`, n-1, n-1, n); !strings.Contains(log.String(), want) {
			t.Errorf("the log does not name the expired session, want %q:\n%s", want, log.String())
		}
	})
}

// The error of a try names one holder even if there are thousands. The session reads that holder's record only once.
func TestHolderAmongThousandsIsNamed(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		const n = 4500
		store := crowded(t, n)
		k := newSession(t, store, nil).Semaphore("k", n)
		for try := range 3 {
			var held *dsync.HeldError
			if err := errOf(k.TryHold(background, 1)); !errors.As(err, &held) || held.Host != "host of s00000" || held.PID != 1 {
				t.Errorf("try %d: %v, want an error that names process 1 on the host of s00000", try, err)
			}
		}
		if full := store.full.Load(); full != 1 {
			t.Errorf("%d full readings, want 1", full)
		}
	})
}

// Members accepts any number of ids.
func TestMembersOfThousands(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		const n = 4500
		store := crowded(t, n)
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("s%05d", i))
		}
		members, now, err := admin.New(newSession(t, store, nil)).Members(background, ids...)
		if err != nil || len(members) != n || now.IsZero() {
			t.Fatalf("%d members at %v, %v; want %d", len(members), now, err, n)
		}
		for i, m := range members {
			if m.ID != ids[i] || m.PID != 1+i {
				t.Fatalf("member %d is %s, process %d", i, m.ID, m.PID)
			}
		}
	})
}
