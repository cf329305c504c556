package dsync_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// resize sets m's size.
func resize(t testing.TB, m *dsync.Semaphore, size int64) {
	t.Helper()
	if err := m.Resize(background, size); err != nil {
		t.Fatalf("Resize(%d): %v", size, err)
	}
}

// If Resize makes a semaphore larger, waiters get the units that are now free, both in this process and in others.
func TestResizeUpLetsWaitersIn(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			s := newSession(t, store, nil)
			m, here := s.Semaphore("k", 2), s.Semaphore("k", 2)
			elsewhere := newSession(t, store, nil).Semaphore("k", 2)
			acquire(t, m, 2)
			var waiting []<-chan error
			for range 2 {
				waiting = append(waiting, acquiring(here, 1), acquiring(elsewhere, 2))
			}
			resize(t, m, 5)
			time.Sleep(2 * time.Second)
			for i, in := range []int{1, 1, 0, 0} { // 2 + 1 + 2
				if len(waiting[i]) != in {
					t.Errorf("waiter %d: served %d times, want %d", i, len(waiting[i]), in)
				}
			}
			resize(t, elsewhere, 8)
			for i, w := range waiting {
				if err := <-w; err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
			}
			if n := sum(t, store, "k"); n != 8 {
				t.Errorf("%d units are held, want all of the new size", n)
			}
			m.Release(2)
			here.Release(2)
			elsewhere.Release(4)
		})
	}
}

// If Resize makes a semaphore smaller, nobody loses units. The new size takes effect as holders release their units.
func TestResizeDownTakesEffectAsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		m, other := newSession(t, store, nil).Semaphore("k", 6), newSession(t, store, nil).Semaphore("k", 6)
		for range 6 {
			acquire(t, m, 1)
		}
		resize(t, m, 2)
		waiting := acquiring(other, 1)
		for held := int64(5); held >= 2; held-- {
			m.Release(1)
			time.Sleep(ttl)
			if n := sum(t, store, "k"); len(waiting) != 0 || n != held {
				t.Errorf("more units were granted than the new size allows, or a holder lost units: %d are held", n)
			}
		}
		m.Release(1)
		if err := <-waiting; err != nil {
			t.Errorf("Acquire: %v", err)
		}
		if n := sum(t, store, "k"); n != 2 {
			t.Errorf("%d are held, want 2", n)
		}
		// This try fits the old size, but not the new size.
		wantErr(t, "TryHold", errOf(other.TryHold(background, 5)), dsync.ErrMismatch)
		m.Release(1)
		other.Release(1)
	})
}

// Processes with the old size can go on beside processes with the new size. Both can acquire all units of the new
// size. A process with a third size gets an error.
func TestOldSizeStillWorksAfterResize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		old, olds := newSession(t, store, nil).Semaphore("k", 2), newSession(t, store, nil)
		acquire(t, old, 1)
		resize(t, newSession(t, store, nil).Semaphore("k", 2), 5)
		fresh := newSession(t, store, nil).Semaphore("k", 5)
		acquire(t, fresh, 1)
		other := olds.Semaphore("k", 2)
		if !other.TryAcquire(1) || !other.TryAcquire(2) {
			t.Error("a process with the old size can't acquire all units of the new size")
		}
		wantErr(t, "TryHold", errOf(old.TryHold(background, 1)), dsync.ErrHeld)
		err := errOf(newSession(t, store, nil).Semaphore("k", 7).TryHold(background, 1))
		wantErr(t, "a third size", err, dsync.ErrMismatch)
		other.Release(3)
		old.Release(1)
		fresh.Release(1)
		// After the key has become free, a process with the old size still gets the new size.
		acquire(t, old, 2)
		acquire(t, fresh, 3)
		old.Release(2)
		fresh.Release(3)
	})
}

// A Resize may be repeated or undone. Resize may also be called for a free key or for a key that was never used.
func TestResizeRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		m := newSession(t, store, nil).Semaphore("k", 2)
		for range 3 {
			resize(t, m, 4)
		}
		before := store.Counts()
		resize(t, m, 4)
		if d := store.Counts().Since(before); d.Writes != 0 || d.Total() != 1 {
			t.Errorf("a repeated Resize took %v and %d writes", d.Commands, d.Writes)
		}
		old := newSession(t, store, nil).Semaphore("k", 2)
		acquire(t, old, 2)
		acquire(t, m, 2)
		resize(t, m, 2)
		resize(t, old, 4)
		resize(t, m, 2)
		old.Release(2)
		if m.TryAcquire(1) {
			t.Error("units beyond the size were granted")
		}
		m.Release(2)
		for size := int64(10); size < 18; size++ { // the last 8 former sizes are remembered
			resize(t, m, size)
		}
		acquire(t, newSession(t, store, nil).Semaphore("k", 10), 10)
	})
}

// While somebody waits for more than the new size, Resize is refused and changes nothing.
func TestResizeRefusedForAWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		m, other := newSession(t, store, nil).Semaphore("k", 5), newSession(t, store, nil).Semaphore("k", 5)
		acquire(t, m, 3)
		waiting := acquiring(other, 4)
		wantErr(t, "Resize", m.Resize(background, 3), dsync.ErrRefused)
		if err := errOf(m.TryHold(background, 5)); !errors.Is(err, dsync.ErrHeld) {
			t.Errorf("a try for the old size after a refused Resize: %v", err)
		}
		resize(t, m, 4)
		m.Release(3)
		if err := <-waiting; err != nil {
			t.Errorf("Acquire: %v", err)
		}
		other.Release(4)
	})
}

// If a waiter in the local queue wants more than the new size, its wait ends with an error, so it does not block the
// waiters behind it.
func TestResizeFailsALocalWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		m := s.Semaphore("k", 5)
		acquire(t, m, 4)
		first := acquiring(s.Semaphore("k", 5), 2) // in the store's queue
		heavy := acquiring(s.Semaphore("k", 5), 5) // in the local queue
		light := acquiring(s.Semaphore("k", 5), 1)
		resize(t, m, 4)
		m.Release(4)
		synctest.Wait()
		if len(first) != 1 || len(heavy) != 1 || len(light) != 1 {
			t.Fatalf("ended waits for 2, 5 and 1: %d, %d, %d; want one each", len(first), len(heavy), len(light))
		}
		wantErr(t, "Acquire of more than the size", <-heavy, dsync.ErrMismatch)
	})
}

// Within a process, too, Acquires of the full size are served in FIFO order. Later grants have greater tokens, even if
// the size changes in the meantime.
func TestFullAcquiresKeepTheirOrder(t *testing.T) {
	for _, size := range []int64{1, 3} {
		for _, resized := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("size %d resized %t", size, resized), func(t *testing.T) {
				store := dsynctest.NewMemory()
				s := newSession(t, store, &dsync.Options{Linger: time.Second})
				var (
					mu     sync.Mutex
					order  []int
					tokens []int64
					at     []time.Time
					wg     sync.WaitGroup
				)
				for i := range 8 {
					m := s.Semaphore("k", size)
					wg.Go(func() {
						h := units(t, m, size)
						mu.Lock()
						order, tokens, at = append(order, i), append(tokens, h.Token()), append(at, time.Now())
						mu.Unlock()
						time.Sleep(10 * time.Millisecond)
						h.Release(background)
					})
					synctest.Wait()
				}
				if resized {
					resize(t, newSession(t, store, nil).Semaphore("k", size), 3*size)
				}
				wg.Wait()
				if !resized && !slices.IsSorted(order) {
					t.Errorf("waiters were served in the order %v", order)
				}
				for i := range tokens {
					for j := range tokens {
						if at[i].Before(at[j]) && tokens[i] >= tokens[j] {
							t.Errorf("token %d, and after it %d", tokens[i], tokens[j])
						}
					}
				}
				// The next holder has a greater token than all holders so far.
				h := units(t, s.Semaphore("k", size), size)
				if h.Token() <= slices.Max(tokens) {
					t.Errorf("token %d after %v", h.Token(), tokens)
				}
				h.Release(background)
			})
		}
	}
}
