package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Promise 1: from the first instruction after a freeze, before any timer runs, every check says
// that the hold is lost.
func TestFirstCheckAfterFreezeSaysLost(t *testing.T) {
	type hold struct {
		lost   func() <-chan struct{}
		token  func() int64
		unlock func(context.Context) error
		err    func() error // of a context that ends with it, if it has one
	}
	kinds := map[string]func(t *testing.T, s *dsync.Session) hold{
		"mutex": func(t *testing.T, s *dsync.Session) hold {
			mu := s.Mutex("k")
			lock(t, mu)
			return hold{mu.Lost, mu.Token, mu.UnlockContext, nil}
		},
		"lease": func(t *testing.T, s *dsync.Session) hold {
			l, err := s.Lease(background, "k", ttl)
			if err != nil {
				t.Fatal(err)
			}
			return hold{l.Lost, l.Token, l.Release, nil}
		},
		"reader": func(t *testing.T, s *dsync.Session) hold {
			rw := s.RWMutex("k")
			rw.RLock()
			return hold{rw.RLost, rw.RToken, rw.RUnlockContext, nil}
		},
		"semaphore": func(t *testing.T, s *dsync.Session) hold {
			sem := s.Semaphore("k", 3)
			if err := sem.Acquire(background, 2); err != nil {
				t.Fatal(err)
			}
			return hold{sem.Lost, sem.Token, func(ctx context.Context) error { return sem.ReleaseContext(ctx, 2) }, nil}
		},
		"election": func(t *testing.T, s *dsync.Session) hold {
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			if err != nil {
				t.Fatal(err)
			}
			ctx, _ := h.Context(background)
			return hold{h.Lost, h.Token, h.Release, ctx.Err}
		},
	}
	looks := map[string]func(hold) bool{
		"Lost":   func(h hold) bool { return isClosed(h.lost()) },
		"Token":  func(h hold) bool { return h.token() == 0 },
		"Unlock": func(h hold) bool { return errors.Is(h.unlock(background), dsync.ErrLost) },
		"Err":    func(h hold) bool { return h.err == nil || h.err() != nil },
	}
	for kind, begin := range kinds {
		for look, saysLost := range looks {
			t.Run(kind+" "+look, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					store := dsynctest.NewMemory()
					s := newSession(t, store, nil)
					h := begin(t, s)
					engine.Of(s).Freeze(ttl)
					if !saysLost(h) {
						t.Error("the first check says that the key is held")
					}
					if look != "Unlock" {
						h.unlock(background)
					}
				})
			})
		}
	}
}

// Promise 1: a hold that was frozen past its deadline is handed to nobody in its process: not by an
// Unlock, not as a lingering key, and not to another reader.
func TestNothingIsHandedOffAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, lingering())
		id := func() string { return s.ID() }
		fresh := func(what, old string) {
			t.Helper()
			if id() == old {
				t.Errorf("%s: it went on under the session that was lost", what)
			}
		}

		mu, next := s.Mutex("mutex"), s.Mutex("mutex")
		lock(t, mu)
		var wg sync.WaitGroup
		wg.Go(func() { lock(t, next) })
		synctest.Wait()
		old := id()
		engine.Of(s).Freeze(ttl)
		wantErr(t, "UnlockContext", mu.UnlockContext(background), dsync.ErrLost)
		wg.Wait()
		fresh("a hand-off", old)
		if isClosed(next.Lost()) {
			t.Error("the hold that was handed off is lost")
		}
		next.Unlock()

		makeLinger(s.Mutex("lingers"))
		old = id()
		engine.Of(s).Freeze(ttl)
		lock(t, s.Mutex("lingers"))
		fresh("a key that lingered", old)

		a, b := s.RWMutex("rw"), s.RWMutex("rw")
		a.RLock()
		old = id()
		engine.Of(s).Freeze(ttl)
		b.RLock()
		fresh("a second reader", old)
		if isClosed(b.RLost()) || !isClosed(a.RLost()) {
			t.Error("the second reader shares what was lost")
		}
		a.RUnlock()
		b.RUnlock()
		time.Sleep(ttl)
	})
}

// After a loss no heartbeat is sent, whatever the store would answer, even if the heartbeat's timer
// runs before the deadline's after a freeze.
func TestNoHeartbeatAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		before := store.Counts()
		synctest.Wait() // the session has set its timers
		engine.Of(s).Freeze(ttl)
		time.Sleep(ttl / 2) // the heartbeat was due after a third, the deadline is not yet
		if n := store.Counts().Since(before).Commands[dsynctest.MethodHeartbeat]; n != 0 {
			t.Errorf("%d heartbeats were sent after the deadline", n)
		}
		if !isClosed(mu.Lost()) {
			t.Error("Lost is open")
		}
		mu.UnlockContext(background)
	})
}

// A grant that is learned after the deadline does not count: Lock continues under the next session.
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
			t.Errorf("locked with token %d after %d attempts; the first was granted too late", mu.Token(), asked)
		}
		mu.Unlock()
	})
}

// No reader shares a hold that was frozen past its deadline, even if it was waiting and the end of
// another wait lets it in.
func TestReaderDoesNotJoinAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{HandOffTime: time.Hour})
		reads, writes, late := s.RWMutex("k"), s.RWMutex("k"), s.RWMutex("k")
		reads.RLock()
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		wg.Go(func() { wantErr(t, "LockContext", writes.LockContext(ctx), context.Canceled) })
		synctest.Wait()
		in := make(chan struct{})
		wg.Go(func() { late.RLock(); close(in) })
		synctest.Wait()
		engine.Of(s).Freeze(ttl)
		cancel()
		<-in
		if late.RToken() == 0 || !isClosed(reads.RLost()) {
			t.Error("a reader shares what is lost")
		}
		wg.Wait()
		reads.RUnlock()
		late.RUnlock()
	})
}

// The context of a semaphore ends with a loss, also at the first check after a freeze, and not with
// the Release of a part.
func TestSemaphoreContextEndsWithALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		m := s.Semaphore("k", 3)
		acquire(t, m, 1)
		ctx, cancel := m.Context(background)
		defer cancel()
		acquire(t, m, 1)
		m.Release(1)
		if err := ctx.Err(); err != nil {
			t.Errorf("after the Release of a part: %v", err)
		}
		engine.Of(s).Freeze(ttl)
		if ctx.Err() == nil {
			t.Error("the first check after a freeze says that it is held")
		}
		wantErr(t, "cause", context.Cause(ctx), dsync.ErrLost)
		m.Release(1)
	})
}
