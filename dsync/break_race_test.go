package dsync_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// If Break revokes a grant before the grantee's process has learned of it, the process gives up the grant. A Hold then
// requests the key again, at the end of the queue; a TryHold may fail with ErrHeld instead.
func TestBreakOfAGrantUnderWay(t *testing.T) {
	for _, try := range []bool{false, true} {
		inBubble(t, fmt.Sprint("try ", try), func(t *testing.T) {
			store := dsynctest.NewMemory()
			faulty := newFaulty(t, store, func(r dsynctest.Request) (f dsynctest.Fault) {
				if r.Method == dsynctest.MethodAcquire && r.Key == "k" {
					f.ReplyDelay = time.Second
				}
				return f
			})
			a, b := newSession(t, faulty, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
			lock(t, a.Mutex("warm"))
			time.Sleep(time.Second)
			var lost atomic.Int64
			a.AddHooks(&dsync.Hooks{Lost: func(dsync.HoldInfo) { lost.Add(1) }})
			mu := a.Mutex("k")
			acquire := mu.Hold
			if try {
				acquire = mu.TryHold
			}
			began := time.Now()
			var h *dsync.Hold
			locked := async(func() error { return into(&h, acquire)(background) })
			time.Sleep(5 * time.Millisecond)
			if h := holders(t, store, "k"); len(h) != 1 || h[0].Session != a.ID() {
				t.Fatalf("holders are %v, want only the session that has sent the Acquire", h)
			}
			noErr(t, admin.New(b).Break(background, "k"))
			// The process gives up the grant as soon as it learns of it. There is no grace, because nobody held the
			// key.
			if d := time.Since(began); d > 1100*time.Millisecond {
				t.Errorf("Break returned after %v, want at most 1.1s", d)
			}
			if next := b.Mutex("k"); next.TryLock() {
				time.Sleep(time.Second)
				if h := holders(t, store, "k"); len(h) != 1 || h[0].Session != b.ID() {
					t.Errorf("holders are %v, want only the session that called Break", h)
				}
				next.Unlock()
			}
			e := <-locked
			switch {
			case try && e.err != nil:
				wantErr(t, "TryHold", e.err, dsync.ErrHeld)
			case e.err != nil:
				t.Errorf("Hold: %v", e.err)
			case isClosed(h.Lost()):
				t.Error("the hold that was granted after the Break is lost")
			default:
				h.Release(background)
			}
			time.Sleep(ttl)
			if h, n := holders(t, store, "k"), revocations(t, store, a.ID()); len(h) != 0 || n != 0 || lost.Load() != 0 {
				t.Errorf("at the end there are the holders %v and %d revocations, and %d losses were reported; want none of these", h, n, lost.Load())
			}
		})
	}
}

// If a hold is being released, Break waits for the release. If the key was handed off within the process instead, Break
// notifies the next holder and waits for its grace and its release.
func TestBreakOfAHoldBeingReleased(t *testing.T) {
	for _, handed := range []bool{false, true} {
		inBubble(t, fmt.Sprint("handed off ", handed), func(t *testing.T) {
			store := dsynctest.NewMemory()
			faulty := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method == dsynctest.MethodRelease {
					return dsynctest.Fault{Delay: time.Second}
				}
				return dsynctest.Fault{}
			})
			a, b := newSession(t, faulty, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
			lock(t, b.Mutex("warm"))
			mu, other := a.Mutex("k"), a.Mutex("k")
			lock(t, mu)
			var second <-chan ended
			var next *dsync.Hold
			if handed {
				second = async(func() error { return into(&next, other.Hold)(background) })
				synctest.Wait()
			}
			go mu.Unlock()
			synctest.Wait()
			began := time.Now()
			broken := breakKey(b)
			want := time.Second
			if handed {
				<-second
				lost := closedAt(next.Lost())
				if d := (<-lost).Sub(began); d > 0 {
					t.Errorf("the next holder was notified after %v", d)
				}
				want += grace
			}
			if e := <-broken; e.err != nil || e.at.Sub(began) != want {
				t.Errorf("Break: %v after %v, want %v", e.err, e.at.Sub(began), want)
			}
			if handed {
				wantErr(t, "unlock", next.Release(background), dsync.ErrRevoked)
			}
			time.Sleep(ttl)
			if n := revocations(t, store, a.ID()); n != 0 {
				t.Errorf("%d revocations are left", n)
			}
		})
	}
}

// A hundred concurrent Breaks by two sessions have the same effect as a single Break: the holder is notified once, and
// each Break returns when the key is free.
func TestBreakTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b, c := newSession(t, store, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil), newSession(t, store, nil)
		var lost atomic.Int64
		a.AddHooks(&dsync.Hooks{Lost: func(dsync.HoldInfo) { lost.Add(1) }})
		mu := a.Mutex("k")
		lock(t, mu)
		time.Sleep(time.Second)
		var all []<-chan ended
		began := time.Now()
		for range 50 {
			all = append(all, breakKey(b), breakKey(c))
		}
		for _, e := range all {
			if e := <-e; e.err != nil || e.at.Sub(began) != grace {
				t.Errorf("Break: %v after %v, want nil after the grace", e.err, e.at.Sub(began))
			}
		}
		mu.Unlock()
		if n := lost.Load(); n != 1 {
			t.Errorf("%d losses were reported, want 1", n)
		}
		if n := store.Counts().Commands[dsynctest.MethodRelease]; n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
	})
}

// Break affects only the holders at the time of the call, not later ones. It also works within a single process.
func TestBreakInTheSameProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		later := newSession(t, store, nil).Mutex("k")
		first := take(t, s.Mutex("k").Hold)
		var second *dsync.Hold
		waits := async(func() error { return into(&second, s.Mutex("k").Hold)(background) })
		synctest.Wait()
		elsewhere := waitAt(t, store, "k", 1, later.LockContext, background)
		began := time.Now()
		noErr(t, admin.New(s).Break(background, "k"))
		if d := time.Since(began); d != grace {
			t.Errorf("Break of a hold in this process that was not unlocked took %v, want the grace of %v", d, grace)
		}
		// B32: after a Break, a waiter in the holder's process waits for the holder's Unlock. A waiter in another
		// process waits only for the end of the grace.
		if err := <-elsewhere; err != nil || isClosed(later.Lost()) {
			t.Errorf("the waiter in the other process: %v", err)
		}
		later.Unlock()
		time.Sleep(3 * ttl)
		if len(waits) > 0 {
			t.Fatal("Hold returned in this process before the broken hold was released")
		}
		if s.Mutex("k").TryLock() {
			t.Fatal("TryLock succeeded in this process before the broken hold was released")
		}
		if first.Token() != 0 || !isClosed(first.Lost()) {
			t.Error("the broken hold still has a token, or its Lost is open")
		}
		wantErr(t, "late unlock", first.Release(background), dsync.ErrLost, dsync.ErrRevoked)
		if e := <-waits; e.err != nil || isClosed(second.Lost()) {
			t.Errorf("the local waiter's error: %v; want none, and a hold that is not lost", e.err)
		}
		if n := store.Counts().Commands[dsynctest.MethodRevoke]; n != 0 {
			t.Errorf("%d revocations were written, although the hold is in this process", n)
		}

		// The holder may call Break in its own goroutine.
		if err := admin.New(s).Break(background, "k"); err != nil {
			t.Errorf("Break by the holder itself: %v", err)
		}
		wantErr(t, "unlock", second.Release(background), dsync.ErrRevoked)
	})
}

// If there are holders in several processes, each is notified and has a grace of its own. Break waits for the last
// of them.
func TestBreakOfSeveralReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		cut := newFaulty(t, store, nil)
		b := newSession(t, store, nil)
		var readers []*dsync.Hold
		var lost []<-chan time.Time
		sessions := []*dsync.Session{
			newSession(t, store, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil), newSession(t, cut, nil), b,
		}
		for _, s := range sessions {
			for range 2 { // in the store, the two readers of a session count as one holder
				h := take(t, s.RWMutex("k").RHold)
				readers = append(readers, h)
				lost = append(lost, closedAt(h.Lost()))
			}
		}
		cut.Cut()
		began := time.Now()
		var writer *dsync.Hold
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		waits := waitAt(t, store, "k", 1, into(&writer, newSession(t, store, nil).RWMutex("k").Hold), ctx)
		broken := breakKey(b)
		time.Sleep(grace / 2)
		readers[0].Release(background)
		if len(holders(t, store, "k")) != len(sessions) {
			t.Errorf("one reader released a hold that two readers share: %v", holders(t, store, "k"))
		}
		readers[1].Release(background)
		if len(holders(t, store, "k")) != len(sessions)-1 {
			t.Errorf("after both readers have released their holds, the key is held by %v", holders(t, store, "k"))
		}
		e := <-broken
		if e.err != nil {
			t.Fatal(e.err)
		}
		noErr(t, <-waits)
		if d := time.Since(began); d < ttl || d > ttl+20*time.Millisecond {
			t.Errorf("Break returned after %v, want as soon as the session that was cut off had lapsed", d)
		}
		for i, at := range lost {
			if d := time.Since(<-at); d < grace && i > 1 {
				t.Errorf("reader %d was notified only %v before Break returned", i, d)
			}
		}
		cut.Heal()
		for _, h := range readers[2:] {
			wantErr(t, "late release", h.Release(background), dsync.ErrLost)
		}
		if isClosed(writer.Lost()) {
			t.Error("the writer was notified as well")
		}
		// New readers in these sessions get the key as before.
		writer.Release(background)
		for _, s := range sessions {
			h := take(t, s.RWMutex("k").RHold)
			if isClosed(h.Lost()) {
				t.Error("a new reader's hold is lost")
			}
			h.Release(background)
		}
	})
}

// If the holder of a Semaphore releases its units in parts, Break waits for the last part.
func TestBreakOfAPartlyReleasedSemaphore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		m := newSession(t, store, &dsync.Options{AlwaysListen: true}).Semaphore("k", 10)
		acquire(t, m, 6)
		broken := breakKey(newSession(t, store, nil))
		m.Release(4)
		time.Sleep(grace / 2)
		if len(broken) > 0 || len(holders(t, store, "k")) != 1 {
			t.Error("Break returned before the holder was done")
		}
		m.Release(2)
		if e := <-broken; e.err != nil || time.Since(e.at) > 0 {
			t.Error(e)
		}
	})
}
