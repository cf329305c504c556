package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// onNotify injects a fault into each Notify.
func onNotify(fault func() dsynctest.Fault) func(dsynctest.Request) dsynctest.Fault {
	return func(r dsynctest.Request) dsynctest.Fault {
		if r.Method == dsynctest.MethodNotify {
			return fault()
		}
		return dsynctest.Fault{}
	}
}

// seldom returns options with polls so rare that only a notice can tell a waiter of its grant in time.
func seldom() *dsync.Options { return &dsync.Options{Retention: -1, PollInterval: time.Hour} }

// enqueue registers a session that sends no heartbeat, and adds a claim of the session to key's queue.
func enqueue(t *testing.T, store driver.Store, session, key string) driver.Claim {
	t.Helper()
	c := driver.Claim{Key: key, ID: session + ".1", Session: session, Kind: driver.KindMutex, Weight: 1, Limit: 1}
	_, err := store.Register(background, driver.Member{ID: session, TTL: 100 * ttl})
	_, _, err2 := storecmd.Acquire(background, store, c, true, nil, time.Now().Add(time.Hour))
	noErr(t, errors.Join(err, err2))
	return c
}

// lastNotice listens for the session until the test ends. The result points to the latest notice for the session.
func lastNotice(t *testing.T, store driver.Store, session string) *atomic.Pointer[driver.Notice] {
	var last atomic.Pointer[driver.Notice]
	ctx, cancel := context.WithCancel(background)
	t.Cleanup(cancel)
	go store.Listen(ctx, session, nil, func(n driver.Notice) { last.Store(&n) })
	synctest.Wait()
	return &last
}

// If a waiter learns of its grant by a poll, the notice of the grant costs no command. This holds even if the notice
// arrives almost a heartbeat interval late, after the claim has ended.
func TestGrantNoticeAfterTheEndCostsNothing(t *testing.T) {
	const period, poll = 3 * time.Second, 100 * time.Millisecond
	for _, late := range []time.Duration{period / 4, period * 3 / 4, period * 9 / 10} {
		inBubble(t, late.String(), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			held := newSession(t, memory, nil).Mutex("k")
			s := newSession(t, lateNotices(t, memory, late), &dsync.Options{Retention: -1, PollInterval: poll, HeartbeatInterval: period})
			for range 20 { // at different times between two heartbeats
				lock(t, held)
				before := memory.Counts()
				time.AfterFunc(time.Second, held.Unlock)
				turn(s.Mutex("k"))
				time.Sleep(late + poll)
				if n := memory.Counts().Since(before).Commands[dsynctest.MethodRelease]; n != 2 {
					t.Fatalf("two holds cost %d releases, want 2", n)
				}
			}
		})
	}
}

// Notify is retried for at most 15 s if the store is unreachable, and not at all if the store refuses it.
func TestNotifyRetriesAreBounded(t *testing.T) {
	const most = int64(15 * time.Second / (ttl / 24)) // two attempts are at least TTL/24 apart
	for err, most := range map[error]int64{errDown: most, dsync.ErrRefused: 1} {
		inBubble(t, err.Error(), func(t *testing.T) {
			store := &mute{Memory: dsynctest.NewMemory(), err: err, began: time.Now()}
			held, next := newSession(t, store, nil).Mutex("k"), newSession(t, store.Memory, nil).Mutex("k")
			lock(t, held)
			time.AfterFunc(time.Second, held.Unlock)
			lock(t, next)
			time.Sleep(10 * ttl)
			if n := store.asked.Load(); n < 1 || n > most {
				t.Errorf("%d attempts to send one notice, want at most %d", n, most)
			}
			if d := time.Duration(store.last.Load()); d > time.Second+15*time.Second+ttl/12 {
				t.Errorf("the last attempt was made after %v", d)
			}
			next.Unlock()
		})
	}
}

// A mute store's Notify always fails with err.
type mute struct {
	*dsynctest.Memory
	err   error
	began time.Time
	asked atomic.Int64
	last  atomic.Int64 // a time.Duration, from began to the last call
}

func (s *mute) Notify(context.Context, []driver.Notice) error {
	s.asked.Add(1)
	s.last.Store(int64(time.Since(s.began)))
	return s.err
}

// A late grant notice costs no command. This holds even after a hold so long that the claim's requests can no longer
// take effect.
func TestGrantNoticeAfterTheEndOfALongHoldCostsNothing(t *testing.T) {
	const period, late = 3 * time.Second, 7 * time.Second
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		held := newSession(t, memory, nil).Mutex("k")
		opt := &dsync.Options{Retention: -1, PollInterval: 100 * time.Millisecond, HeartbeatInterval: period, AlwaysListen: true}
		s := newSession(t, lateNotices(t, memory, late), opt)
		turn(s.Mutex("warm"))
		time.Sleep(late + time.Second) // until the listener is ready
		for range 20 {
			lock(t, held)
			before := memory.Counts()
			time.AfterFunc(time.Second, held.Unlock)
			h := take(t, s.Mutex("k").Hold)
			time.Sleep(late - 2*time.Second)
			// This Release is confirmed by a majority of the store's servers. If a fail-over could undo the Release, the
			// session would remember the claim in any case.
			noErr(t, h.Release(background))
			time.Sleep(3 * time.Second)
			if n := memory.Counts().Since(before).Commands[dsynctest.MethodRelease]; n != 2 {
				t.Fatalf("two holds cost %d releases, want 2", n)
			}
		}
	})
}

// An observer sees at once that a waiter has joined the queue. If a try expires the holder's session, the observer
// sees at once that a waiter was granted the key.
func TestObserveSeesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		observer := newSession(t, memory, seldom())
		f := newFaulty(t, memory, nil)
		held := newSession(t, f, nil).Mutex("k")
		lock(t, held)
		var last atomic.Pointer[driver.State]
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		engine.Of(observer).Observe(ctx, "k", func(st driver.State, _ error) { last.Store(&st) }, func() {})
		time.Sleep(time.Second)
		wait, stop := context.WithTimeout(background, time.Second)
		defer stop()
		go newSession(t, memory, seldom()).Mutex("k").LockContext(wait)
		time.Sleep(500 * time.Millisecond)
		if n := last.Load().Waiting; n != 1 {
			t.Errorf("observed %d in the queue, want 1", n)
		}
		time.Sleep(time.Second)
		c := enqueue(t, memory, "w", "k")
		f.Cut()
		time.Sleep(2 * ttl)
		if newSession(t, memory, nil).Mutex("k").TryLock() {
			t.Fatal("the try got the key ahead of the waiter in the queue")
		}
		synctest.Wait()
		if st := last.Load(); len(st.Holders) != 1 || st.Holders[0].Claim != c.ID {
			t.Errorf("observed the holders %+v, want %s", st.Holders, c.ID)
		}
		cancel()
		held.Unlock()
	})
}

// An observer of a key sees immediately what the key's holder publishes.
func TestObserveSeesPublishedValues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		var value string
		engine.Of(newSession(t, memory, seldom())).Observe(ctx, "k", func(st driver.State, _ error) { value = string(st.Value) }, func() {})
		h, err := engine.Of(newSession(t, memory, nil)).Hold(background, engine.Whole("k", driver.KindElection))
		noErr(t, err)
		time.Sleep(time.Second)
		noErr(t, h.Publish(background, []byte("address")))
		synctest.Wait()
		if value != "address" {
			t.Errorf("observed %q, want what was published", value)
		}
		h.Release(background)
	})
}

// Polls and failed tries send no notices to observers, even if the store wrongly reports that they changed the key.
func TestNeedlessChangesAreNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const poll = 100 * time.Millisecond
		store := &restless{Memory: dsynctest.NewMemory()}
		s, held := newSession(t, store, &dsync.Options{Retention: -1, PollInterval: poll}), newSession(t, store.Memory, nil).Mutex("k")
		lock(t, held)
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		waited := make(chan error, 1)
		go func() { waited <- s.Mutex("k").LockContext(ctx) }()
		time.Sleep(time.Second)
		for what, do := range map[string]func(){
			"polls":       func() { time.Sleep(20 * poll) },
			"failed try":  func() { newSession(t, store, nil).Mutex("k").TryLock() },
			"another try": func() { s.Mutex("k").TryLock() },
		} {
			before := store.Counts()
			do()
			synctest.Wait()
			if n := store.Counts().Since(before).Commands[dsynctest.MethodNotify]; n != 0 {
				t.Errorf("%s: %d notices", what, n)
			}
		}
		cancel()
		wantErr(t, "LockContext", <-waited, context.Canceled)
		held.Unlock()
	})
}

// A restless store reports after each Acquire that the key is observed and has changed.
type restless struct{ *dsynctest.Memory }

func (s *restless) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	done, err := s.Memory.Edit(ctx, e)
	if e.Acquire != nil {
		done.Notices = append(done.Notices, driver.Notice{Type: driver.NoticeChange, Key: e.Key()})
	}
	return done, err
}

// If Break removes the claims of expired sessions, it notifies the waiters that are granted the key as a
// result.
func TestBreakNotifiesNewHolders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, nil)
		held := newSession(t, f, nil).Mutex("k")
		lock(t, held)
		c := enqueue(t, memory, "w", "k")
		last := lastNotice(t, memory, "w")
		f.Cut()
		noErr(t, admin.New(newSession(t, memory, nil)).Break(background, "k"))
		synctest.Wait()
		if n := last.Load(); n.Type != driver.NoticeGrant || n.Claim != c.ID {
			t.Errorf("received %+v, want the grant of %s", n, c.ID)
		}
		held.Unlock()
	})
}

// Close waits until the notices of earlier calls have been sent.
func TestCloseWaitsForTheNoticesOfAResize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, onNotify(func() dsynctest.Fault { return dsynctest.Fault{Delay: time.Second} }))
		held, next := newSession(t, memory, nil).Semaphore("k", 1), newSession(t, memory, seldom()).Semaphore("k", 1)
		acquire(t, held, 1)
		acquired := acquiring(next, 1)
		synctest.Wait()
		began, s := time.Now(), newSession(t, slow, nil)
		resize(t, s.Semaphore("k", 1), 2)
		noErr(t, s.Close(background))
		if err := <-acquired; err != nil || time.Since(began) != time.Second {
			t.Errorf("acquired after %v with the error %v, want when the notice is sent", time.Since(began), err)
		}
		next.Release(1)
		held.Release(1)
	})
}

// If others were in the queue when a key was granted, the key does not linger. Unlock releases it to the next waiter.
// The holder learns of these waiters from its grant notice or, if the notice is lost, from the reply to its poll. The
// waiters send the holder no notice.
func TestCrowdedGrantDoesNotLinger(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inBubble(t, fmt.Sprint("notice lost ", lost), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			f := newFaulty(t, memory, onNotify(func() dsynctest.Fault { return dsynctest.Fault{LoseRequest: lost} }))
			first := newSession(t, f, nil).Mutex("k")
			mu := newSession(t, memory, lingering()).Mutex("k")
			lock(t, first)
			locked, next := make(chan struct{}), make(chan time.Time, 1)
			go func() {
				mu.Lock()
				close(locked)
			}()
			time.Sleep(time.Second)
			last := newSession(t, memory, seldom()).Mutex("k")
			go func() {
				last.Lock()
				next <- time.Now()
			}()
			time.Sleep(time.Second)
			first.Unlock()
			<-locked
			began := time.Now()
			mu.Unlock()
			if d := (<-next).Sub(began); d > 0 {
				t.Errorf("the key was locked %v after the Unlock", d)
			}
			last.Unlock()
		})
	}
}

// If a holder has missed the notice that others wait, it receives another such notice when the first waiter in the
// queue polls again.
func TestYieldIsRequestedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const poll = time.Second
		memory := dsynctest.NewMemory()
		began := time.Now()
		f := newFaulty(t, memory, onNotify(func() dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: time.Since(began) < poll/2}
		}))
		makeLinger(newSession(t, memory, lingering()).Mutex("k"))
		mu := newSession(t, f, &dsync.Options{PollInterval: poll}).Mutex("k")
		lock(t, mu)
		if d := time.Since(began); d < poll/2 || d > poll*3/2 { // the waiter's next poll sends the lost notice again
			t.Errorf("the key was locked after %v, want with the first poll, after %v", d, poll)
		}
		mu.Unlock()
	})
}

// A Release sets NoneWaiting only if the first reply to the claim's request granted the claim, and the queue was
// empty then. Otherwise the Release could overlook waiters to which it must grant the key.
func TestReleaseSaysWhetherItsClaimWasAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(asked int) dsynctest.Fault                          // for each Acquire
		hold  func(*testing.T, driver.Store, *dsync.Mutex) *dsync.Hold // nil: the test calls Mutex.Do
		want  bool
	}{
		"alone": {want: true},
		"by a repeat": {fault: func(asked int) dsynctest.Fault {
			return dsynctest.Fault{LoseReply: asked == 1}
		}},
		"by a notice": {hold: func(t *testing.T, store driver.Store, mu *dsync.Mutex) *dsync.Hold {
			held := newSession(t, store, nil).Mutex("k")
			lock(t, held)
			time.AfterFunc(time.Second, held.Unlock)
			return take(t, mu.Hold)
		}},
		"before others": {hold: func(t *testing.T, store driver.Store, mu *dsync.Mutex) *dsync.Hold {
			noErr(t, take(t, newSession(t, store, nil).Mutex("k").Hold).ReleaseAfter(background, time.Second))
			enqueue(t, store, "w", "k")
			time.Sleep(2 * time.Second) // the hold has ended, but no command has granted the key to w yet
			return take(t, mu.ForceHold)
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := &aloneStore{Memory: dsynctest.NewMemory()}
			asked := 0
			f := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method != dsynctest.MethodAcquire || tc.fault == nil {
					return dsynctest.Fault{}
				}
				asked++
				return tc.fault(asked)
			})
			mu := newSession(t, f, nil).Mutex("k")
			if tc.hold == nil {
				if err := mu.Do(background, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			} else {
				tc.hold(t, store.Memory, mu).Release(background)
			}
			if got := store.alone.Load(); got != tc.want {
				t.Errorf("NoneWaiting is %t, want %t", got, tc.want)
			}
		})
	}
}

// An aloneStore records whether the last Release had NoneWaiting set.
type aloneStore struct {
	*dsynctest.Memory
	alone atomic.Bool
}

func (s *aloneStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Release != nil && e.Acquire == nil {
		s.alone.Store(e.Release.Claim.NoneWaiting)
	}
	return s.Memory.Edit(ctx, e)
}

// A session keeps listening as long as it waits.
func TestListenerLastsAsLongAsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newListenerCount()
		held, s := newSession(t, store.Memory, nil).Mutex("k"), newSession(t, store, seldom())
		lock(t, held)
		ctx, cancel := context.WithTimeout(background, 10*ttl)
		defer cancel()
		time.AfterFunc(10*ttl-1, func() { store.wantListeners(t, "at the end of the wait", 1) })
		wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
		held.Unlock()
	})
}

// A session keeps listening as long as it holds something.
func TestListensAsLongAsASessionHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newListenerCount()
		mu := newSession(t, store, nil).Mutex("k")
		lock(t, mu)
		time.Sleep(10 * ttl)
		store.wantListeners(t, "ten TTLs after the Lock", 1)
		mu.Unlock()
	})
}

// After a session has waited for a lease and the lease has ended, the session stops listening.
func TestListenerEndsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newListenerCount()
		held := newSession(t, store.Memory, nil).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Second, held.Unlock)
		l, err := newSession(t, store, nil).Mutex("k").Lease(background, ttl)
		noErr(t, err)
		store.wantListeners(t, "while the lease is held", 1)
		<-l.Lost()
		time.Sleep(5 * ttl)
		store.wantListeners(t, "long after the lease", 0)
	})
}

// ReleaseAfter keeps the key for d, counted from its call, even if its Release must wait for the reply to an earlier
// poll.
func TestReleaseAfterCountsFromTheCallDuringAPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = time.Minute
		memory := dsynctest.NewMemory()
		asked := 0
		f := newFaulty(t, memory, func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodAcquire {
				if asked++; asked == 2 { // the poll sent when the listener is ready
					f.ReplyDelay = time.Second
				}
			}
			return f
		})
		held, mu := newSession(t, memory, nil).Mutex("k"), newSession(t, f, nil).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Second/2, held.Unlock)
		h := take(t, mu.Hold) // the process learns of this grant from a notice
		called := time.Now()
		noErr(t, h.ReleaseAfter(background, d))
		if took := time.Since(called); took != time.Second/2 {
			t.Fatalf("ReleaseAfter took %v, want until the poll was answered", took)
		}
		if got := holders(t, memory, "k")[0].Until.Sub(called); got < d-time.Millisecond || got > d+time.Millisecond {
			t.Errorf("kept until %v after ReleaseAfter, want %v", got, d)
		}
	})
}

// B29: after Close, a holder keeps the key for the rest of its grace, even if the store's clock is set forward by less
// than the margin. The waiter here polls so often that it would soon be granted a key that became free too early.
func TestCloseLeavesTheWholeGraceWithShortPolls_B29(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const poll = 50 * time.Millisecond
		memory := dsynctest.NewMemory()
		s, other := newSession(t, memory, nil), newSession(t, memory, &dsync.Options{PollInterval: poll}).Mutex("k")
		mu := s.Mutex("k")
		lock(t, mu)
		granted := make(chan time.Time, 1)
		go func() {
			other.Lock()
			granted <- time.Now()
		}()
		synctest.Wait()
		ended, cancel := context.WithCancel(background)
		cancel()
		began := time.Now()
		if err := s.Close(ended); err != nil {
			t.Errorf("Close: %v", err)
		}
		memory.Skew(margin - 10*time.Millisecond)
		if d := (<-granted).Sub(began); d < grace || d > grace+2*poll {
			t.Errorf("another session was granted the key %v after Close, want at least the grace of %v", d, grace)
		}
		other.Unlock()
	})
}
