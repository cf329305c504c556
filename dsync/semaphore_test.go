package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

var _ interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
} = (*dsync.Semaphore)(nil)

// acquire acquires n units of m within five minutes.
func acquire(t testing.TB, m *dsync.Semaphore, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, 5*time.Minute)
	defer cancel()
	if err := m.Acquire(ctx, n); err != nil {
		t.Fatalf("Acquire(%d): %v", n, err)
	}
}

// acquiring acquires n units of m in the background, and sends the error on the channel.
func acquiring(m *dsync.Semaphore, n int64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.Acquire(background, n) }()
	synctest.Wait()
	return done
}

// sum returns the total weight of key's holders in the store.
func sum(t testing.TB, store driver.Store, key string) (n int64) {
	t.Helper()
	for _, h := range holders(t, store, key) {
		n += h.Weight
	}
	return n
}

// Promise 6: a waiter for few units does not overtake a waiter for many, neither in the same process nor in another.
// The waiter for many gets its units as soon as enough are free.
func TestSemaphoreServesInOrder(t *testing.T) {
	for _, sessions := range []int{1, 2, 5} {
		inBubble(t, fmt.Sprint(sessions, " sessions"), func(t *testing.T) {
			store := dsynctest.NewMemory()
			var all []*dsync.Semaphore
			for range sessions {
				all = append(all, newSession(t, store, nil).Semaphore("k", 4))
			}
			of := func(i int) *dsync.Semaphore { return all[i%sessions] }
			acquire(t, of(0), 2)
			acquire(t, of(1), 1)
			heavy := acquiring(of(2), 3) // 1 is free
			light := acquiring(of(3), 1)
			if of(4).TryAcquire(1) {
				t.Error("TryAcquire overtook a waiter")
			}
			time.Sleep(ttl)
			if len(heavy)+len(light) != 0 {
				t.Fatal("the waiter for 1 overtook the one for 3, or 3 units were granted although fewer were free")
			}
			of(1).Release(1)
			synctest.Wait()
			if len(heavy)+len(light) != 0 {
				t.Fatal("the waiter for 1 overtook the one for 3, or 3 units were granted although fewer were free")
			}
			of(0).Release(2)
			synctest.Wait()
			if len(heavy) != 1 || len(light) != 1 {
				t.Errorf("with all units free, %d waiters for 3 and %d for 1 were served, want one each", len(heavy), len(light))
			}
			of(2).Release(3)
			of(3).Release(1)
		})
	}
}

// Invalid arguments are refused with an error or a panic that says what is valid.
func TestSemaphoreMisuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		m := s.Semaphore("k", 3)
		before := store.Counts()
		for _, n := range []int64{0, -1, 4, -1 << 63, 1<<63 - 1} {
			for what, err := range map[string]error{
				"Acquire": m.Acquire(background, n),
				"Hold":    errOf(m.Hold(background, n)),
				"TryHold": errOf(m.TryHold(background, n)),
				"Do":      m.Do(background, n, nil),
			} {
				if msg := fmt.Sprint(err); !strings.Contains(msg, "from 1 to its size 3") || !strings.Contains(msg, fmt.Sprint(n)) || !strings.Contains(msg, `"k"`) {
					t.Errorf("%s(%d): %v", what, n, err)
				}
			}
			if m.TryAcquire(n) {
				t.Errorf("TryAcquire(%d) succeeded", n)
			}
		}
		for _, size := range []int64{0, -1} {
			wantPanic(t, "Semaphore", func() { s.Semaphore("k", size) }, "at least 1", fmt.Sprint(size), `"k"`)
			if err := m.Resize(background, size); err == nil || !strings.Contains(err.Error(), "at least 1") {
				t.Errorf("Resize(%d): %v", size, err)
			}
		}
		if d := store.Counts().Since(before); d.Total() != 0 {
			t.Errorf("calls with invalid arguments sent %v", d.Commands)
		}
		wantPanic(t, "Release of nothing", func() { m.Release(1) }, "more than it holds", `"k"`)
		acquire(t, m, 2)
		other := s.Semaphore("k", 3)
		before = store.Counts()
		for _, n := range []int64{0, -1, 3} {
			wantPanic(t, "Release", func() { m.Release(n) }, "more than it holds, or less than 1")
		}
		wantPanic(t, "Release of another's", func() { other.Release(1) }, "more than it holds")
		if d := store.Counts().Since(before); d.Total() != 0 || sum(t, store, "k") != 2 {
			t.Error("a Release that panicked released something")
		}
		m.Release(2)
	})
}

// Processes that use different sizes get an error that names both sizes.
func TestSemaphoreSizesDiffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		m := s.Semaphore("k", 30)
		acquire(t, m, 1)
		for where, o := range map[string]*dsync.Session{"here": s, "elsewhere": other} {
			for _, err := range []error{
				o.Semaphore("k", 50).Acquire(background, 1),
				errOf(o.Semaphore("k", 50).TryHold(background, 1)),
			} {
				wantErr(t, where, err, dsync.ErrMismatch)
				var mismatch *driver.MismatchError
				if msg := fmt.Sprint(err); !errors.As(err, &mismatch) || !strings.Contains(msg, "30") || !strings.Contains(msg, "50") || !strings.Contains(msg, `"k"`) {
					t.Errorf("%s: %q does not name both sizes", where, msg)
				}
			}
		}
		if h := holders(t, store, "k"); len(h) != 1 {
			t.Errorf("the key is held by %v after errors", h)
		}
		m.Release(1)
		big := other.Semaphore("k", 50) // a free key can change its size
		acquire(t, big, 50)
		wantErr(t, "Acquire", m.Acquire(background, 1), dsync.ErrMismatch)
		big.Release(50)
	})
}

// The units of one Acquire may be released in parts, or together with the units of other Acquires. The units of an
// Acquire become free for other processes only when all of them have been released.
func TestReleaseInOtherParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		m := newSession(t, store, nil).Semaphore("k", 10)
		acquire(t, m, 5)
		acquire(t, m, 3)
		acquire(t, m, 2)
		for _, c := range []struct{ release, held int64 }{
			{3, 7}, // exactly the units of one hold
			{1, 7}, // one unit of the oldest hold
			{3, 7},
			{1, 2}, // the rest of the oldest hold
			{2, 0},
		} {
			m.Release(c.release)
			if n := sum(t, store, "k"); n != c.held {
				t.Errorf("%d units are held in the store after Release(%d), want %d", n, c.release, c.held)
			}
		}
		acquire(t, m, 4)
		acquire(t, m, 6)
		m.Release(9)
		if n := sum(t, store, "k"); n != 6 {
			t.Errorf("%d units are held in the store, want 6 until the last of them is released", n)
		}
		wantPanic(t, "Release", func() { m.Release(2) }, "more than it holds")
		m.Release(1)
		if sum(t, store, "k") != 0 {
			t.Error("units are still held after all were released")
		}
	})
}

// If a Release ends several acquisitions, it waits for the store for at most a third of the TTL in total. It logs
// only the releases that the store has not confirmed by then.
func TestReleaseOfSeveralWaitsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		const n, hung = 20, 3
		var claims []string // the claims in the order of their releases
		store := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodRelease {
				if !slices.Contains(claims, r.Claim) {
					claims = append(claims, r.Claim)
				}
				if slices.Index(claims, r.Claim) < hung {
					f.Hang = time.Minute
				}
			}
			return f
		})
		s := newSession(t, store, &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		m := s.Semaphore("k", n)
		for range n {
			noErr(t, m.Acquire(background, 1))
		}
		start := time.Now()
		m.Release(n)
		if took := time.Since(start); took > ttl/3 {
			t.Errorf("Release of %d acquisitions took %v, want at most a third of the TTL: %v", n, took, ttl/3)
		}
		synctest.Wait() // for the log
		if got := strings.Count(log.String(), "goes on in the background"); got != hung {
			t.Errorf("logged %d unanswered releases, want %d:\n%s", got, hung, &log)
		}
	})
}

// Goroutines of one process can hold units at the same time, each with a claim and a token of its own. At most one of
// the waiting goroutines is in the store's queue.
func TestSemaphoreWithinAProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		var tokens []int64
		var held []*dsync.Hold
		for range 3 {
			h := units(t, s.Semaphore("k", 3), 1)
			tokens = append(tokens, h.Token())
			held = append(held, h)
		}
		if n := len(holders(t, store, "k")); n != 3 || !slices.IsSorted(tokens) || tokens[0] == tokens[1] || tokens[1] == tokens[2] {
			t.Errorf("%d holders with tokens %v, want 3 that increase", n, tokens)
		}
		wantErr(t, "TryHold", errOf(s.Semaphore("k", 3).TryHold(background, 1)), dsync.ErrHeld)
		var wg sync.WaitGroup
		for range 100 {
			m := s.Semaphore("k", 3)
			wg.Go(func() {
				acquire(t, m, 1)
				m.Release(1)
			})
		}
		synctest.Wait()
		if n := queueLength(t, store, "k"); n > 1 {
			t.Errorf("100 goroutines of one process have %d claims in the queue, want at most 1", n)
		}
		for _, h := range held {
			h.Release(background)
		}
		wg.Wait()
	})
}

// Each hold of a Semaphore has its own token and ends independently of the others.
func TestSemaphoreHoldsEndByThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		m := newSession(t, store, nil).Semaphore("k", 3)
		first, second := units(t, m, 1), units(t, m, 2)
		if first.Token() == 0 || second.Token() <= first.Token() {
			t.Errorf("tokens %d and %d, want two that increase", first.Token(), second.Token())
		}
		first.Release(background)
		if !isClosed(first.Lost()) || first.Token() != 0 || isClosed(second.Lost()) || second.Token() == 0 {
			t.Errorf("after the release of the first: %v; %v; want only the first ended", first, second)
		}
		second.Release(background)
		if !isClosed(second.Lost()) || sum(t, store, "k") != 0 {
			t.Error("held after the last release")
		}
	})
}
