package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Promise 1: right after a freeze, even before any timer has run, every check reports that the hold is lost.
func TestFirstCheckAfterFreezeSaysLost(t *testing.T) {
	type hold struct {
		lost   func() <-chan struct{}
		token  func() int64
		unlock func(context.Context) error
		err    func() error // Err of a context that ends with the hold
	}
	of := func(h *dsync.Hold) hold { return hold{h.Lost, h.Token, h.Release, h.Context(background).Err} }
	kinds := map[string]func(t *testing.T, s *dsync.Session) hold{
		"mutex": func(t *testing.T, s *dsync.Session) hold {
			return of(take(t, s.Mutex("k").Hold))
		},
		"lease": func(t *testing.T, s *dsync.Session) hold {
			l, err := s.Mutex("k").Lease(background, ttl)
			noErr(t, err)
			return of(l)
		},
		"reader": func(t *testing.T, s *dsync.Session) hold {
			return of(take(t, s.RWMutex("k").RHold))
		},
		"semaphore": func(t *testing.T, s *dsync.Session) hold {
			return of(units(t, s.Semaphore("k", 3), 2))
		},
		"election": func(t *testing.T, s *dsync.Session) hold {
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			noErr(t, err)
			ctx, _ := h.Context(background, nil)
			return hold{h.Lost, h.Token, h.Release, ctx.Err}
		},
	}
	looks := map[string]func(hold) bool{
		"Lost":   func(h hold) bool { return isClosed(h.lost()) },
		"Token":  func(h hold) bool { return h.token() == 0 },
		"Unlock": func(h hold) bool { return errors.Is(h.unlock(background), dsync.ErrLost) },
		"Err":    func(h hold) bool { return h.err() != nil },
	}
	for kind, begin := range kinds {
		for look, saysLost := range looks {
			inBubble(t, kind+" "+look, func(t *testing.T) {
				store := dsynctest.NewMemory()
				s := newSession(t, store, nil)
				h := begin(t, s)
				engine.Of(s).Freeze(ttl)
				if !saysLost(h) {
					t.Error("the first check reports that the key is held")
				}
				if look != "Unlock" {
					h.unlock(background)
				}
			})
		}
	}
}

// Promise 1: if a process was frozen past the deadline of a hold, nobody else in the process gets that hold: not by a
// hand-off, not from a key that lingers, and not as another reader.
func TestNothingIsHandedOffAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Linger: time.Minute})
		id := func() string { return s.ID() }
		fresh := func(what, old string) {
			t.Helper()
			if id() == old {
				t.Errorf("%s: the lost session is still in use", what)
			}
		}

		mu, next := s.Mutex("mutex"), s.Mutex("mutex")
		h := take(t, mu.Hold)
		var wg sync.WaitGroup
		wg.Go(func() { lock(t, next) })
		synctest.Wait()
		old := id()
		engine.Of(s).Freeze(ttl)
		wantErr(t, "Release", h.Release(background), dsync.ErrLost)
		wg.Wait()
		fresh("a hand-off", old)
		if isClosed(next.Lost()) {
			t.Error("the next hold is lost, too")
		}
		next.Unlock()

		makeLinger(s.Mutex("lingers"))
		old = id()
		engine.Of(s).Freeze(ttl)
		lock(t, s.Mutex("lingers"))
		fresh("a key that lingered", old)

		a, b := s.RWMutex("rw"), s.RWMutex("rw")
		aHold := take(t, a.RHold)
		old = id()
		engine.Of(s).Freeze(ttl)
		bHold := take(t, b.RHold)
		fresh("a second reader", old)
		if isClosed(bHold.Lost()) || !isClosed(aHold.Lost()) {
			t.Error("the second reader shares the lost hold")
		}
		aHold.Release(background)
		bHold.Release(background)
		time.Sleep(ttl)
	})
}

// After a loss no heartbeat is sent, even if a heartbeat was due before the deadline and both times passed during a
// freeze.
func TestNoHeartbeatAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		h := take(t, s.Mutex("k").Hold)
		before := store.Counts()
		synctest.Wait() // the session has set its timers
		engine.Of(s).Freeze(ttl)
		time.Sleep(ttl / 2) // the heartbeat's timer fires only now, after the deadline
		if n := store.Counts().Since(before).Commands[dsynctest.MethodHeartbeat]; n != 0 {
			t.Errorf("%d heartbeats were sent after the deadline", n)
		}
		if !isClosed(h.Lost()) {
			t.Error("Lost is still open after the deadline")
		}
		h.Release(background)
	})
}

// If a process learns of a grant only after the deadline, the grant does not count: Lock continues under the next
// session.
func TestGrantLearnedTooLateIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodAcquire {
				if asked++; asked == 1 {
					return dsynctest.Fault{ReplyDelay: time.Second}
				}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, f, nil)
		time.AfterFunc(time.Second/2, func() { engine.Of(s).Freeze(ttl) })
		mu := s.Mutex("k")
		lock(t, mu)
		if mu.Token() == 0 || asked < 2 {
			t.Errorf("locked with token %d after %d attempts; want a token, and at least 2 attempts, since the first grant came too late", mu.Token(), asked)
		}
		mu.Unlock()
	})
}

// If a process was frozen past the deadline of a reader's hold, another reader does not share that hold, even if a
// writer that waited between the two readers gives up.
func TestReaderDoesNotJoinAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{HandOffTime: time.Hour})
		reads, writes := take(t, s.RWMutex("k").RHold), s.RWMutex("k")
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		wg.Go(func() { wantErr(t, "LockContext", writes.LockContext(ctx), context.Canceled) })
		synctest.Wait()
		late := make(chan *dsync.Hold, 1)
		wg.Go(func() { late <- take(t, s.RWMutex("k").RHold) })
		synctest.Wait()
		engine.Of(s).Freeze(ttl)
		cancel()
		h := <-late
		if h.Token() == 0 || !isClosed(reads.Lost()) {
			t.Error("a reader shares a lost hold")
		}
		wg.Wait()
		reads.Release(background)
		h.Release(background)
	})
}

// The context of a Semaphore's hold ends at the first check after a freeze that outlasted the hold. It does not end
// when another hold of the Semaphore is released.
func TestSemaphoreContextEndsWithALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		m := s.Semaphore("k", 3)
		h, other := units(t, m, 1), units(t, m, 1)
		ctx := h.Context(background)
		other.Release(background)
		if err := ctx.Err(); err != nil {
			t.Errorf("after the release of another hold: %v", err)
		}
		engine.Of(s).Freeze(ttl)
		if ctx.Err() == nil {
			t.Error("the context has not ended at the first check after the freeze")
		}
		wantErr(t, "cause", context.Cause(ctx), dsync.ErrLost)
		h.Release(background)
	})
}

// If Healthy is the first call to notice a loss after a freeze, it returns nil, because the holder's grace only begins
// then.
func TestHealthyAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		mu := s.Mutex("k")
		lock(t, mu)
		engine.Of(s).Freeze(lease)
		if err := s.Healthy(); err != nil {
			t.Errorf("at the first check: Healthy returns %v, want nil", err)
		}
		mu.Unlock()
	})
}

// After a freeze, the first call of Err of LockAll's context already reports the loss, before any timer has run.
func TestLockAllIsLostAfterAFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		held, unlock, err := dsync.LockAll(background, s.Mutex("a"), s.Mutex("b"))
		noErr(t, err)
		engine.Of(s).Freeze(ttl)
		if held.Err() == nil {
			t.Error("Err is nil after the freeze, although the holds are lost")
		}
		wantErr(t, "unlock", unlock(), dsync.ErrLost)
	})
}

// If a process was frozen past the limit that Progress has set, the hold has stalled: neither Progress nor Release
// succeeds.
func TestStallIsSeenAfterAFreeze(t *testing.T) {
	for name, do := range map[string]func(h *dsync.Hold) error{
		"Progress": func(h *dsync.Hold) error { return h.Progress(time.Hour) },
		"Release":  func(h *dsync.Hold) error { return h.Release(background) },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			h := take(t, s.Mutex("k").Hold)
			h.Progress(lease / 2)
			engine.Of(s).Freeze(lease / 2)
			wantErr(t, name, do(h), dsync.ErrLost, dsync.ErrStalled)
		})
	}
}

// If a check of the clock finds that the session is lost, before any timer fires, the session can still be closed at
// once.
func TestCloseAfterALossFoundByACheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := take(t, s.Mutex("k").Hold)
		// Freeze between two heartbeats, and before the session opens a listener: the listener would wake the session's
		// goroutine.
		time.Sleep(time.Second / 2)
		engine.Of(s).Freeze(ttl)
		if h.Token() != 0 {
			t.Fatal("held after the freeze")
		}
		h.Release(background)
		start := time.Now()
		s.Close(background)
		if d := time.Since(start); d != 0 {
			t.Errorf("Close took %v, although there was nothing to wait for", d)
		}
	})
}

// If Release finds the loss after a freeze, the hooks report a loss and no release.
func TestHooksReportALossFoundByRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []string
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: &dsync.Hooks{
			Granted:  func(dsync.HoldInfo) { reported = append(reported, "granted") },
			Released: func(i dsync.HoldInfo) { reported = append(reported, fmt.Sprint("released ", i.Held)) },
			Lost:     func(i dsync.HoldInfo) { reported = append(reported, fmt.Sprint("lost ", i.Held)) },
		}})
		h := take(t, s.Mutex("k").Hold)
		engine.Of(s).Freeze(ttl)
		h.Release(background)
		synctest.Wait()
		if want := []string{"granted", fmt.Sprint("lost ", ttl)}; !slices.Equal(reported, want) {
			t.Errorf("the hooks reported %q, want %q", reported, want)
		}
	})
}
