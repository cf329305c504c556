package dsync_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// B20: if one of several readers crashes, a writer waits only until the crashed reader's session has lapsed and the
// live readers have unlocked.
func TestCrashedReaderAmongLivingOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		crashed, living := newSession(t, faulty, nil).RWMutex("k"), newSession(t, memory, nil).RWMutex("k")
		rlock(t, crashed)
		livingHold := take(t, living.RHold)
		faulty.Cut()
		writer := newSession(t, memory, nil).RWMutex("k")
		locked := make(chan struct{})
		go func() { writer.Lock(); close(locked) }()
		time.Sleep(5 * ttl)
		if isClosed(locked) || isClosed(livingHold.Lost()) {
			t.Fatal("a writer holds the key together with a live reader")
		}
		if n := len(holders(t, memory, "k")); n != 1 {
			t.Errorf("%d holders, want only the live reader", n)
		}
		livingHold.Release(background)
		synctest.Wait()
		if !isClosed(locked) {
			t.Error("a crashed reader keeps a writer out")
		}
		writer.Unlock()
	})
}

// If some of an RWMutex's read holds are lost, RUnlock releases the lost holds first, and does not end a newer hold.
func TestLostReadLockIsUndoneFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		rw := newSession(t, faulty, nil).RWMutex("k")
		rlock(t, rw)
		rlock(t, rw)
		lost := holders(t, memory, "k")
		faulty.Cut()
		time.Sleep(ttl)
		faulty.Heal()
		rlock(t, rw) // a new hold in addition to the lost one
		rw.RUnlock()
		rw.RUnlock()
		time.Sleep(2 * ttl)
		if h := holders(t, memory, "k"); len(h) == 0 || h[len(h)-1].Token <= lost[0].Token {
			t.Errorf("RUnlock of the lost hold %v freed the new one: holders %v", lost, h)
		}
		rw.RUnlock()
		writer := newSession(t, memory, nil).RWMutex("k")
		wlock(t, writer)
		writer.Unlock()
	})
}

// Promise 9: if the key is taken by force, readers are notified like any other holder. They keep the key until the grace
// is over or the last of them has unlocked.
func TestForceNotifiesReaders(t *testing.T) {
	for _, done := range []bool{false, true} {
		inBubble(t, fmt.Sprint("done ", done), func(t *testing.T) {
			store := dsynctest.NewMemory()
			readers := newSession(t, store, &dsync.Options{AlwaysListen: true}).RWMutex("k")
			first, second := take(t, readers.RHold), take(t, readers.RHold)
			time.Sleep(time.Second)
			start := time.Now()
			other := newSession(t, store, nil)
			var writer *holding
			locked := async(func() (err error) { writer, err = forceWriter(other)(background); return err })
			<-first.Lost()
			if !isClosed(second.Lost()) {
				t.Error("only one of two readers was notified")
			}
			want := grace
			if done {
				for _, h := range []*dsync.Hold{first, second} {
					time.Sleep(grace / 4)
					wantErr(t, "Release", h.Release(background), dsync.ErrLost, dsync.ErrRevoked)
				}
				want = grace / 2
			}
			if e := <-locked; e.err != nil {
				t.Fatal(e.err)
			}
			if d := time.Since(start); d != want {
				t.Errorf("the key was locked %v after the readers were notified, want %v", d, want)
			}
			writer.done()
			first.Release(background)
			second.Release(background)
		})
	}
}

// A reader's hold ends when it is lost or released. It does not end when another reader in the same process unlocks,
// even if both readers share a claim.
func TestReadersAreNotifiedOfLossesOnly(t *testing.T) {
	for name, turn := range map[string]time.Duration{"share": 0, "don't share": -1} {
		inBubble(t, name, func(t *testing.T) {
			f := newFaulty(t, dsynctest.NewMemory(), nil)
			rw := newSession(t, f, &dsync.Options{HandOffTime: turn}).RWMutex("k")
			first := take(t, rw.RHold)
			lost := first.Lost()
			for range 2 {
				h := take(t, rw.RHold)
				if h.Token() == 0 {
					t.Error("a reader's hold has no token")
				}
				h.Release(background)
				if !isClosed(h.Lost()) || h.Token() != 0 {
					t.Error("a reader's hold has not ended with its release")
				}
			}
			synctest.Wait()
			if isClosed(lost) || first.Lost() != lost || first.Token() == 0 {
				t.Error("a reader's hold ended with another reader's release")
			}
			first.Release(background)
			if !isClosed(lost) {
				t.Error("Lost is open after the last release")
			}

			both := []*dsync.Hold{take(t, rw.RHold), take(t, rw.RHold)}
			f.Cut()
			time.Sleep(2 * ttl)
			for _, h := range both {
				if !isClosed(h.Lost()) || h.Token() != 0 {
					t.Error("a reader was not notified of the loss")
				}
			}
			f.Heal()
			next := take(t, rw.RHold)
			for _, h := range both {
				wantErr(t, "Release of a lost hold", h.Release(background), dsync.ErrLost)
			}
			if isClosed(next.Lost()) || next.Token() == 0 {
				t.Error("the next reader's hold has ended, too")
			}
			next.Release(background)
		})
	}
}
