package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// B20, L13: a crashed reader or writer is followed at its last heartbeat + TTL, not before, and at
// most one wake-up later. A writer must also wait for the live readers.
func TestCrashedReaderOrWriterIsFollowedAtExpiry(t *testing.T) {
	for _, c := range []struct {
		name           string
		crashed, taken string
	}{
		{"a reader by a writer", "reader", "writer"},
		{"a writer by a reader", "writer", "reader"},
		{"a writer by a writer", "writer", "writer"},
	} {
		for name, polling := range deliveries {
			t.Run(c.name+" "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					draws := testkit.Draw(t)
					for range 10 {
						memory := dsynctest.NewMemory()
						memory.Polling = polling
						faulty := newFaulty(t, memory, nil)
						a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
						rw := a.RWMutex("k")
						if c.crashed == "reader" {
							for range 3 { // one claim
								rlock(t, rw)
							}
						} else {
							wlock(t, rw)
						}
						time.Sleep(draws.Below(ttl))
						faulty.Cut()
						m, _, err := storecmd.Members(background, memory, a.ID())
						if err != nil {
							t.Fatal(err)
						}
						next := b.RWMutex("k")
						if c.taken == "writer" {
							wlock(t, next)
						} else {
							rlock(t, next)
						}
						h := holders(t, memory, "k")
						if len(h) != 1 || h[0].Session != b.ID() {
							t.Fatalf("held by %v, want %s alone", h, b.ID())
						}
						if d := h[0].Since.Sub(m[0].LastHeartbeat.Add(ttl)); d < 0 || d > 10*time.Millisecond {
							t.Errorf("granted %v after the crashed session's last heartbeat + TTL", d)
						}
					}
				})
			})
		}
	}
}

// B20: a crashed reader among live ones neither lets a writer in before they have unlocked nor
// keeps it out afterwards.
func TestCrashedReaderAmongLivingOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		crashed, living := newSession(t, faulty, nil).RWMutex("k"), newSession(t, memory, nil).RWMutex("k")
		rlock(t, crashed)
		rlock(t, living)
		faulty.Cut()
		writer := newSession(t, memory, nil).RWMutex("k")
		locked := make(chan struct{})
		go func() { writer.Lock(); close(locked) }()
		time.Sleep(5 * ttl)
		if isClosed(locked) || isClosed(living.RLost()) {
			t.Fatal("a writer holds the key beside a live reader")
		}
		if n := len(holders(t, memory, "k")); n != 1 {
			t.Errorf("%d holders, including one that crashed long ago", n)
		}
		living.RUnlock()
		synctest.Wait()
		if !isClosed(locked) {
			t.Error("a crashed reader keeps a writer out")
		}
		writer.Unlock()
	})
}

// B20 for tries.
func TestTryTakesALapsedReadersHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		a, b := newSession(t, faulty, nil).RWMutex("k"), newSession(t, memory, nil).RWMutex("k")
		rlock(t, a)
		faulty.Cut()
		wantErr(t, "try before expiry", b.TryLockContext(background), dsync.ErrHeld)
		time.Sleep(ttl)
		if err := b.TryLockContext(background); err != nil {
			t.Errorf("try after expiry: %v", err)
		}
	})
}

// RUnlock undoes lost holds of a reader first, whichever goroutine calls it, and does no harm to
// the reader's next hold.
func TestLostReadLockIsUndoneFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		rw := newSession(t, faulty, nil).RWMutex("k")
		rlock(t, rw)
		rlock(t, rw)
		old, token := rw.RLost(), rw.RToken()
		faulty.Cut()
		<-old
		if rw.RToken() != 0 {
			t.Error("a lost hold has a token")
		}
		faulty.Heal()
		rlock(t, rw) // a new hold beside the lost one
		if !isClosed(rw.RLost()) || rw.RToken() != 0 {
			t.Error("RLost is open while a hold that was lost is not undone")
		}
		for range 2 {
			wantErr(t, "RUnlockContext of the lost hold", rw.RUnlockContext(background), dsync.ErrLost)
		}
		if isClosed(rw.RLost()) || rw.RToken() <= token {
			t.Errorf("the new hold is over, or its token %d is not greater than %d", rw.RToken(), token)
		}
		time.Sleep(2 * ttl)
		if h := holders(t, memory, "k"); rw.RToken() == 0 || len(h) == 0 || h[len(h)-1].Token != rw.RToken() {
			t.Errorf("undoing the lost hold freed the new one: holders %v", h)
		}
		if err := rw.RUnlockContext(background); err != nil {
			t.Errorf("RUnlockContext of the new hold: %v", err)
		}
		writer := newSession(t, memory, nil).RWMutex("k")
		wlock(t, writer)
		writer.Unlock()
	})
}

// B32, promise 8: within a process a writer waits for the RUnlock of every reader, even of a lost
// hold. New readers do not wait.
func TestLocalWriterWaitsForLostReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		s := newSession(t, faulty, nil)
		lost, fresh := s.RWMutex("k"), s.RWMutex("k")
		rlock(t, lost)
		rlock(t, lost)
		faulty.Cut()
		<-lost.RLost()
		faulty.Heal()
		rlock(t, fresh)
		fresh.RUnlock()
		writer := s.RWMutex("k")
		locked := make(chan struct{})
		go func() { writer.Lock(); close(locked) }()
		for range 2 {
			time.Sleep(5 * ttl)
			if isClosed(locked) || s.RWMutex("k").TryLock() {
				t.Fatal("a writer is in before the RUnlock of a lost hold")
			}
			wantErr(t, "RUnlockContext", lost.RUnlockContext(background), dsync.ErrLost)
		}
		<-locked
		time.Sleep(ttl)
		if isClosed(writer.Lost()) {
			t.Error("a late RUnlock freed the writer")
		}
		writer.Unlock()
	})
}

// The same for a lost writer: readers of its process wait for its Unlock, other processes' readers
// don't.
func TestLocalReadersWaitForLostWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		s := newSession(t, faulty, nil)
		lost, reader, elsewhere := s.RWMutex("k"), s.RWMutex("k"), newSession(t, memory, nil).RWMutex("k")
		wlock(t, lost)
		faulty.Cut()
		<-lost.Lost()
		faulty.Heal()
		rlock(t, elsewhere)
		locked := make(chan struct{})
		go func() { reader.RLock(); close(locked) }()
		time.Sleep(5 * ttl)
		if isClosed(locked) {
			t.Fatal("a reader is in before the Unlock of a lost hold")
		}
		wantErr(t, "UnlockContext", lost.UnlockContext(background), dsync.ErrLost)
		<-locked
		reader.RUnlock()
		elsewhere.RUnlock()
	})
}

// Promise 9: readers are notified by ForceLock and Break like any holder, and have the grace, or
// until the last of them has unlocked.
func TestForceLockNotifiesReaders(t *testing.T) {
	for _, done := range []bool{false, true} {
		t.Run(fmt.Sprint("done ", done), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				readers := newSession(t, store, &dsync.Options{AlwaysListen: true}).RWMutex("k")
				rlock(t, readers)
				rlock(t, readers)
				time.Sleep(time.Second)
				writer := newSession(t, store, nil).RWMutex("k")
				locked := make(chan struct{})
				notified, start := readers.RLost(), time.Now()
				go func() { writer.ForceLock(background); close(locked) }()
				<-notified
				want := grace
				if done {
					time.Sleep(grace / 4)
					wantErr(t, "RUnlockContext", readers.RUnlockContext(background), dsync.ErrLost, dsync.ErrRevoked)
					time.Sleep(grace / 4)
					wantErr(t, "RUnlockContext", readers.RUnlockContext(background), dsync.ErrLost, dsync.ErrRevoked)
					want = grace / 2
				}
				<-locked
				if d := time.Since(start); d != want {
					t.Errorf("locked %v after the readers were notified, want %v", d, want)
				}
				writer.Unlock()
				if !done {
					readers.RUnlock()
					readers.RUnlock()
				}
			})
		})
	}
}

// Close notifies readers, waits until the last of them has unlocked, and ends the waits.
func TestCloseNotifiesReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		rw := s.RWMutex("k")
		rlock(t, rw)
		rlock(t, rw)
		lost := rw.RLost()
		errs := make(chan error, 2)
		go func() { errs <- s.RWMutex("k").LockContext(background) }()
		synctest.Wait()
		go func() { errs <- s.RWMutex("k").RLockContext(background) }()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- s.Close(background) }()
		<-lost
		for range 2 {
			wantErr(t, "a waiter", <-errs, dsync.ErrClosed)
		}
		rw.RUnlock()
		time.Sleep(grace / 2)
		if len(closed) != 0 || len(holders(t, store, "k")) != 1 {
			t.Error("closed before the last reader was done")
		}
		start := time.Now()
		wantErr(t, "the last RUnlock", rw.RUnlockContext(background), dsync.ErrLost, dsync.ErrClosed)
		if err := <-closed; err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v, %v after the last reader was done", err, time.Since(start))
		}
		if h := holders(t, store, "k"); len(h) != 0 {
			t.Errorf("left behind: %v", h)
		}
		wantErr(t, "RLockContext", rw.RLockContext(background), dsync.ErrClosed)
	})
}

// An RUnlock of one reader does not notify the others, even if each has a hold of its own. A loss
// does, and so does the last RUnlock.
func TestReadersAreNotifiedOfLossesOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, &dsync.Options{HandOffTime: -1})
		rw := s.RWMutex("k")
		rw.RLock()
		lost := rw.RLost()
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		for range 2 {
			rw.RLock() // with a hold of its own
			if rw.RToken() == 0 {
				t.Error("a reader holds nothing")
			}
			rw.RUnlock()
		}
		synctest.Wait()
		if isClosed(lost) || rw.RLost() != lost {
			t.Error("a reader was notified of another's RUnlock")
		}
		rw.RUnlock()
		if !isClosed(lost) || !isClosed(rw.RLost()) {
			t.Error("RLost is open after the last RUnlock")
		}

		rw.RLock()
		if lost = rw.RLost(); isClosed(lost) {
			t.Error("RLost is closed after another RLock")
		}
		rw.RLock()
		f.Cut()
		time.Sleep(2 * ttl)
		if !isClosed(lost) || rw.RToken() != 0 {
			t.Error("readers were not notified of the loss")
		}
		f.Heal()
		if err := rw.RLockContext(ctx); err != nil {
			t.Fatal(err)
		}
		if !isClosed(rw.RLost()) {
			t.Error("RLost is open before what was lost is unlocked")
		}
		wantErr(t, "RUnlock of what was lost", rw.RUnlockContext(background), dsync.ErrLost)
		wantErr(t, "RUnlock of what was lost", rw.RUnlockContext(background), dsync.ErrLost)
		if isClosed(rw.RLost()) || rw.RToken() == 0 {
			t.Error("RLost is closed after what was lost is unlocked")
		}
		rw.RUnlock()
	})
}
