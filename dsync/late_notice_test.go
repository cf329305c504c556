package dsync_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// lateNotices returns the store with every notice to a listener delayed by the given time.
func lateNotices(t *testing.T, store driver.Store, late time.Duration) driver.Store {
	return newFaulty(t, store, func(r dsynctest.Request) (f dsynctest.Fault) {
		if r.Method == dsynctest.MethodNotice {
			f.Delay = late
		}
		return f
	})
}

// B35: a key kept by ReleaseAfter stays held even if the notice of its grant arrives late. By then the session may have
// forgotten the claim.
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
				kept := take(t, b.Hold) // learns of the grant by polling
				if err := kept.ReleaseAfter(background, keep); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				lock(t, c)
				if d := time.Since(began); d < keep-time.Millisecond { // the store's clock counts milliseconds
					t.Errorf("the key was kept for %v, want at least %v", d, keep)
				}
			})
		})
	}
}

// Break frees a key kept by ReleaseAfter before its time is over.
func TestBreakFreesAKeyKeptByReleaseAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		h := take(t, s.Mutex("k").Hold)
		if err := h.ReleaseAfter(background, 100*ttl); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := admin.New(newSession(t, memory, nil)).Break(background, "k"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > ttl {
			t.Errorf("Break returned after %v, want at most a TTL", d)
		}
	})
}

// A late copy of a lease's request may be granted the key under the lease's claim id. Extend then reports that the
// lease was lost. The copy's grant is discarded once no further copy can join.
func TestExtendOfAnotherGrantIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		l, err := s.Mutex("k").Lease(background, ttl)
		if err != nil {
			t.Fatal(err)
		}
		h := holders(t, memory, "k")[0]
		memory.Skew(2 * ttl) // the store's clock jumps forward, which ends the lease in the store
		again := driver.Claim{Key: "k", ID: h.Claim, Session: h.Session, Kind: driver.KindMutex, Weight: 1, Limit: 1, Lease: 100 * ttl}
		if _, _, err := storecmd.Acquire(background, memory, again, false, nil, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		_, err = l.Extend(background)
		wantErr(t, "Extend", err, dsync.ErrLost)
		if l.Token() != 0 || !isClosed(l.Lost()) {
			t.Error("the lease has not ended")
		}
		time.Sleep(ttl)
		if h := holders(t, memory, "k"); len(h) > 0 {
			t.Errorf("the key is held by %v", h)
		}
	})
}
