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

// crashed starts a session that locks the keys in held and waits for those in awaited. The function crash cuts the
// session off from the store, as if its process had crashed.
func crashed(t *testing.T, store driver.Store, held []string, awaited ...string) (crash func()) {
	t.Helper()
	f := newFaulty(t, store, nil)
	s := newSession(t, f, nil)
	for _, key := range held {
		lock(t, s.Mutex(key))
	}
	for _, key := range awaited {
		go s.Mutex(key).LockContext(background)
	}
	time.Sleep(20 * time.Millisecond)
	return f.Cut
}

// B06: a process waits for a hundred keys, and the process that holds them crashes. The waiting process gets all of the
// keys little more than a TTL after the crashed process's last heartbeat. The waiter that finds the session expired
// wakes all the others.
func TestEveryKeyOfACrashedProcessIsFreeInTime_B06(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 100
		memory := dsynctest.NewMemory()
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprint("k", i))
		}
		crash := crashed(t, memory, keys)
		const trip = 10 * time.Millisecond
		s := newSession(t, newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{ReplyDelay: trip}
		}), nil)
		began := time.Now()
		var wg sync.WaitGroup
		for _, key := range keys {
			wg.Go(func() {
				lock(t, s.Mutex(key))
				// One round trip expires the session; the other round trips acquire the keys, 8 at a time.
				if d := time.Since(began); d > ttl+(1+n/8+1)*trip {
					t.Errorf("%s was locked %v after the last heartbeat; the TTL is %v", key, d, ttl)
				}
			})
		}
		time.Sleep(ttl / 20) // all waiters are in the queue, and no heartbeat has been sent
		before := memory.Counts().Commands[dsynctest.MethodExpire]
		crash()
		wg.Wait()
		if n := memory.Counts().Commands[dsynctest.MethodExpire] - before; n != 1 {
			t.Errorf("%d commands to expire one session, want 1", n)
		}
	})
}

// B06: if the holder and the waiters ahead in the queue crash, the next waiter still gets the key in time. It may also
// wait for other keys of the crashed processes.
func TestKeyBehindCrashedWaitersIsFreeInTime_B06(t *testing.T) {
	for _, dead := range []int{1, 2, 5} {
		inBubble(t, fmt.Sprint(dead), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			crash := []func(){crashed(t, memory, []string{"k", "own0"})}
			for i := range dead {
				crash = append(crash, crashed(t, memory, []string{fmt.Sprint("own", i+1)}, "k"))
			}
			s := newSession(t, memory, nil)
			began := time.Now()
			for _, c := range crash {
				c()
			}
			var wg sync.WaitGroup
			wait := func(key string) {
				wg.Go(func() {
					lock(t, s.Mutex(key))
					if d := time.Since(began); d > ttl+time.Millisecond {
						t.Errorf("%s was locked %v after the crash; the TTL is %v", key, d, ttl)
					}
				})
			}
			wait("k")
			for i := range dead + 1 {
				wait(fmt.Sprint("own", i))
			}
			wg.Wait()
		})
	}
}

// A try expires any number of lapsed waiters, although each reply names only the first few waiters.
func TestTryExpiresManySessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		crash := []func(){crashed(t, memory, []string{"k"})}
		for range 29 {
			crash = append(crash, crashed(t, memory, nil, "k"))
		}
		for _, c := range crash {
			c()
		}
		time.Sleep(2 * ttl)
		if err := errOf(newSession(t, memory, nil).Mutex("k").TryHold(background)); err != nil {
			t.Errorf("try of a key whose holder and 29 waiters have crashed: %v", err)
		}
	})
}

// If two tries find the same lapsed holder, they share the result of one Expire. Until that result is known, neither
// reports the holder in an error.
func TestConcurrentTriesExpireTheSameSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		crash := crashed(t, memory, []string{"k", "l"})
		crash()
		time.Sleep(2 * ttl)
		slow := newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{ReplyDelay: 10 * time.Millisecond}
		})
		s := newSession(t, slow, nil)
		var wg sync.WaitGroup
		for _, key := range []string{"k", "l"} {
			wg.Go(func() {
				if err := errOf(s.Mutex(key).TryHold(background)); err != nil {
					t.Errorf("try of %s: %v", key, err)
				}
			})
		}
		wg.Wait()
	})
}

// After a process has crashed, another session's tries get all of its keys. The first try expires the crashed session;
// the later tries succeed although that session has already expired.
func TestTryTakesEveryKeyOfAnExpiredSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		crashed := newFaulty(t, memory, nil)
		a, b := newSession(t, crashed, nil), newSession(t, memory, nil)
		keys := []string{"a", "b", "c"}
		for _, k := range keys {
			lock(t, a.Mutex(k))
		}
		crashed.Cut()
		time.Sleep(ttl)
		for _, k := range keys {
			if err := errOf(b.Mutex(k).TryHold(background)); err != nil {
				t.Errorf("TryHold of %q after the expiry: %v", k, err)
			}
		}
	})
}

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
		inBubble(t, fmt.Sprint("expired ", dead), func(t *testing.T) {
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
		noErr(t, k.Acquire(ctx, 1))
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
