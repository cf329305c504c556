package dsync_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// late is the time after which a session that holds or waits is unhealthy. This time is counted from the sending of the
// session's last acknowledged heartbeat.
const late = ttl/3 + ttl/30 + ttl/6

// wantHealthy checks the session's health; want is nil for a healthy one.
func wantHealthy(t *testing.T, when string, s *dsync.Session, want error) {
	t.Helper()
	got := s.Healthy()
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%s: Healthy returns %v, want %v", when, got, want)
	}
}

// cutOff returns a session, and a Faulty that can cut it off from the store.
func cutOff(t *testing.T) (*dsync.Session, *dsynctest.Faulty) {
	f := newFaulty(t, dsynctest.NewMemory(), nil)
	return newSession(t, f, nil), f
}

func TestHealthyUntilAHeartbeatIsOverdue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, f := cutOff(t)
		wantHealthy(t, "unused", s, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		time.Sleep(time.Hour)
		wantHealthy(t, "after an hour", s, nil)
		f.Cut()
		renewed := engine.Of(s).Local().Renewed
		time.Sleep(time.Until(renewed.Add(late)))
		wantHealthy(t, "when the heartbeat may still be answered", s, nil)
		time.Sleep(time.Millisecond)
		wantHealthy(t, "after that", s, dsync.ErrNotRenewed)
		if isClosed(mu.Lost()) {
			t.Error("the lock is lost before the session is unhealthy")
		}
		f.Heal()
		time.Sleep(late)
		wantHealthy(t, "after Heal", s, nil)
		mu.Unlock()
	})
}

// If one heartbeat fails and the next one succeeds, the session stays healthy.
func TestHealthyThroughOneFailedHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &failsOften{Store: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		lock(t, s.Mutex("k"))
		for range 1000 {
			time.Sleep(100 * time.Millisecond)
			wantHealthy(t, "with every other heartbeat failing", s, nil)
		}
		if n := store.beats.Load(); n < 10 {
			t.Errorf("only %d heartbeats were sent, so the test has shown nothing", n)
		}
	})
}

// A failsOften store fails every other heartbeat at once.
type failsOften struct {
	driver.Store
	beats atomic.Int64
}

func (f *failsOften) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	if f.beats.Add(1)%2 == 1 {
		return driver.HeartbeatReply{}, errors.New("no")
	}
	return f.Store.Heartbeat(ctx, session, given)
}

// A session that neither holds nor waits, or has only a lease, has nothing to renew and is therefore healthy.
func TestHealthyWhenTheStoreIsNotNeeded(t *testing.T) {
	uses := map[string]func(t *testing.T, s *dsync.Session){
		"nothing": func(t *testing.T, s *dsync.Session) { turn(s.Mutex("k")) },
		"lease": func(t *testing.T, s *dsync.Session) {
			if _, err := s.Mutex("k").Lease(background, time.Hour); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, use := range uses {
		inBubble(t, name, func(t *testing.T) {
			s, f := cutOff(t)
			use(t, s)
			time.Sleep(time.Minute)
			f.Cut()
			for range 100 {
				time.Sleep(time.Second)
				wantHealthy(t, "cut off", s, nil)
			}
		})
	}
}

// A waiter needs a registration, so a session that has a waiter and can't register is unhealthy, like a session that
// can't renew. When a session is lost and then can't register, it does not become healthy in between.
func TestNotHealthyWhileAWaiterCantRegister(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, f := cutOff(t)
		f.Cut()
		ctx, cancel := context.WithCancel(background)
		go s.Mutex("k").LockContext(ctx)
		time.Sleep(late)
		wantHealthy(t, "when the registration may still be answered", s, nil)
		time.Sleep(time.Millisecond)
		wantHealthy(t, "after that", s, dsync.ErrNotRenewed)
		cancel()
		synctest.Wait()
		wantHealthy(t, "when nobody waits any more", s, nil)
		f.Heal()

		mu := s.Mutex("k")
		lock(t, mu)
		f.Cut()
		renewed := engine.Of(s).Local().Renewed
		go func() { // the holder of the lost lock locks it again
			<-mu.Lost()
			mu.Unlock()
			mu.Lock()
		}()
		time.Sleep(time.Until(renewed.Add(late + time.Millisecond)))
		for time.Since(renewed) < 5*ttl {
			wantHealthy(t, "cut off", s, dsync.ErrNotRenewed)
			time.Sleep(ttl / 100)
			synctest.Wait()
		}
		if s.ID() != "" {
			t.Error("the session was not lost")
		}
		f.Heal()
		time.Sleep(late)
		wantHealthy(t, "after Heal", s, nil)
		mu.Unlock()
	})
}

// If many lost holds are still in use, the error of Healthy names the hold that was lost first and three others, and
// gives the number of the rest.
func TestStillInUseNamesFourKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, f := cutOff(t)
		var all []*dsync.Hold
		for _, key := range keys(6) {
			all = append(all, take(t, s.Mutex(key).Hold))
		}
		noErr(t, all[5].Progress(time.Second))
		time.Sleep(2 * time.Second)
		f.Cut()
		time.Sleep(2 * ttl)
		f.Heal()
		time.Sleep(ttl)
		err := s.Healthy()
		if err == nil {
			t.Fatal("Healthy returns nil")
		}
		got := regexp.MustCompile(`"k\d"|\d+ more`).FindAllString(err.Error(), -1)
		if want := []string{`"k5"`, `"k0"`, `"k1"`, `"k2"`, "2 more"}; !slices.Equal(got, want) {
			t.Errorf("%v names %q, want %q", err, got, want)
		}
		for _, h := range all {
			h.Release(background)
		}
		wantHealthy(t, "when all are done", s, nil)
	})
}

// If the holder of a lost hold is not done when its grace ends, the session is unhealthy until the holder is done.
func TestStillInUseUntilTheHolderIsDone(t *testing.T) {
	uses := map[string]func(t *testing.T, s *dsync.Session) (done func()){
		"mutex": func(t *testing.T, s *dsync.Session) func() {
			mu := s.Mutex("k")
			lock(t, mu)
			return mu.Unlock
		},
		"readers": func(t *testing.T, s *dsync.Session) func() {
			rw := s.RWMutex("k")
			rw.RLock()
			rw.RLock()
			return func() {
				rw.RUnlock()
				wantHealthy(t, "with a reader left", s, dsync.ErrStillInUse)
				rw.RUnlock()
			}
		},
		"semaphore": func(t *testing.T, s *dsync.Session) func() {
			sem := s.Semaphore("k", 3)
			for _, n := range []int64{1, 2} {
				noErr(t, sem.Acquire(background, n))
			}
			return func() {
				sem.Release(2)
				wantHealthy(t, "with one of two left", s, dsync.ErrStillInUse)
				sem.Release(1)
			}
		},
		"once": func(t *testing.T, s *dsync.Session) func() {
			end := make(chan struct{})
			go s.Once("k").Do(background, func(context.Context) error { <-end; return nil })
			return func() { close(end) }
		},
		"hold": func(t *testing.T, s *dsync.Session) func() {
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			noErr(t, err)
			return func() { h.Release(background) }
		},
	}
	losses := map[string]func(t *testing.T, s *dsync.Session, f *dsynctest.Faulty){
		"cut off": func(t *testing.T, s *dsync.Session, f *dsynctest.Faulty) {
			f.Cut()
			time.Sleep(time.Until(engine.Of(s).Local().Renewed.Add(lease)))
			synctest.Wait()
			f.Heal()
		},
		"broken": func(t *testing.T, s *dsync.Session, f *dsynctest.Faulty) {
			go admin.New(s).Break(background, "k")
			synctest.Wait()
		},
	}
	for use, begin := range uses {
		for loss, lose := range losses {
			inBubble(t, use+"/"+loss, func(t *testing.T) {
				s, f := cutOff(t)
				done := begin(t, s)
				synctest.Wait()
				lose(t, s, f)
				for _, h := range engine.Of(s).Local().Holds {
					if h.Lost == nil {
						t.Errorf("Local does not report this hold as lost: %+v", h)
					}
				}
				time.Sleep(grace)
				wantHealthy(t, "in the grace", s, nil)
				time.Sleep(time.Millisecond)
				wantHealthy(t, "after the grace", s, dsync.ErrStillInUse)
				time.Sleep(time.Hour)
				wantHealthy(t, "an hour later", s, dsync.ErrStillInUse)
				done()
				synctest.Wait()
				wantHealthy(t, "when the holder is done", s, nil)
				if l := engine.Of(s).Local(); len(l.Holds) != 0 {
					t.Errorf("holds %+v, want none", l.Holds)
				}
			})
		}
	}
}

// Healthy of a closed session also reports a holder that is not done when its grace is over.
func TestHealthyOfAClosedSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, _ := cutOff(t)
		mu := s.Mutex("k")
		lock(t, mu)
		go s.Close(background)
		time.Sleep(grace)
		wantHealthy(t, "while it closes", s, dsync.ErrClosed)
		if err := s.Healthy(); errors.Is(err, dsync.ErrStillInUse) {
			t.Errorf("Healthy within the grace: %v, want no ErrStillInUse", err)
		}
		time.Sleep(time.Second)
		wantHealthy(t, "closed, with a lock in use", s, dsync.ErrClosed)
		wantHealthy(t, "closed, with a lock in use", s, dsync.ErrStillInUse)
		mu.Unlock()
		if err := s.Healthy(); errors.Is(err, dsync.ErrStillInUse) {
			t.Errorf("Healthy after Unlock: %v, want no ErrStillInUse", err)
		}
	})
}
