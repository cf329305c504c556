package dsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Release gives up lost units first, and does not free units that were acquired later.
func TestReleaseTakesLostUnitsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		m := newSession(t, faulty, nil).Semaphore("k", 10)
		acquire(t, m, 3)
		faulty.Cut()
		time.Sleep(ttl)
		faulty.Heal()
		acquire(t, m, 1)
		acquire(t, m, 2)
		m.Release(1)
		m.Release(1) // one of the new holds also has 1 unit, but Release must not end that hold
		if h := holders(t, memory, "k"); h[len(h)-2].Weight != 1 || h[len(h)-1].Weight != 2 {
			t.Errorf("the key is held by %v: a hold that was not lost was released in place of a lost one", h)
		}
		time.Sleep(2 * ttl)
		m.Release(2) // this releases the last lost unit, and then the new hold of 1 unit
		if h := holders(t, memory, "k"); len(h) != 1 && len(h) != 2 || h[len(h)-1].Weight != 2 {
			t.Errorf("the key is held by %v, want by the new hold of 2", h) // the lost hold may remain until somebody requests its units
		}
		m.Release(2)
		other := newSession(t, memory, nil).Semaphore("k", 10)
		acquire(t, other, 10)
		other.Release(10)
	})
}

// Release gives up lost units first, even if the lost hold is not the oldest. Likewise, RUnlock ends a lost hold first.
func TestReleaseTakesRevokedUnitsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{AlwaysListen: true, HandOffTime: -1})
		m, rw := s.Semaphore("k", 10), s.RWMutex("rw")
		acquire(t, m, 1)
		acquire(t, m, 2)
		rlock(t, rw)
		rlock(t, rw) // HandOffTime is negative, so readers don't share a hold
		synctest.Wait()
		kept := make(map[string]int64)
		for _, key := range []string{"k", "rw"} {
			h := holders(t, store, key)
			if len(h) != 2 {
				t.Fatalf("the key is held by %v, want two holders", h)
			}
			kept[key] = h[0].Token
			notices, err := store.Revoke(background, s.ID(), driver.Revocation{Key: key, Claim: h[1].Claim})
			if err == nil {
				err = store.Notify(background, notices)
			}
			noErr(t, err)
		}
		synctest.Wait()
		m.Release(1) // one of the 2 lost units
		m.Release(1)
		rw.RUnlock()
		for key, token := range kept {
			if h := holders(t, store, key); len(h) != 1 || h[0].Token != token {
				t.Errorf("%s is held by %v, want only what was not lost, with token %d", key, h, token)
			}
		}
		m.Release(1)
		rw.RUnlock()
		for key := range kept {
			wantFree(t, store, key)
		}
	})
}

// Promise 9 holds for semaphores too: units lost to a Break become free at the end of the grace, even if their
// holder has not called Release.
func TestBreakFreesASemaphore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{AlwaysListen: true})
		m := s.Semaphore("k", 3)
		one, two := units(t, m, 1), units(t, m, 2)
		time.Sleep(time.Second)
		var here *dsync.Hold
		waiting := make(chan error, 1)
		go func() {
			waiting <- into(&here, func(ctx context.Context) (*dsync.Hold, error) { return m.Hold(ctx, 3) })(background)
		}()
		synctest.Wait()
		start := time.Now()
		if err := admin.New(newSession(t, store, nil)).Break(background, "k"); err != nil {
			t.Errorf("Break: %v", err)
		}
		if !isClosed(one.Lost()) || !isClosed(two.Lost()) {
			t.Error("a holder was not notified")
		}
		// If a key changes twice in quick succession, the second notice comes a little later.
		if err, d := <-waiting, time.Since(start); err != nil || d < grace || d > grace+20*time.Millisecond {
			t.Errorf("Hold: %v, %v after Break, want the grace of %v", err, d, grace)
		}
		for _, h := range []*dsync.Hold{one, two} {
			wantErr(t, "Release", h.Release(background), dsync.ErrLost, dsync.ErrRevoked)
		}
		time.Sleep(ttl)
		if isClosed(here.Lost()) || sum(t, store, "k") != 3 {
			t.Error("a late Release freed units that were acquired later")
		}
		here.Release(background)
	})
}
