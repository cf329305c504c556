package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// trials is the usual number of trials in a randomized test.
func trials() int {
	if testing.Short() {
		return 20
	}
	return 1000
}

// B03: even while a heartbeat hangs, a timer reports the loss in time.
func TestTimerReportsLossDuringAHungHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodHeartbeat {
				return dsynctest.Fault{Hang: time.Hour}
			}
			return dsynctest.Fault{}
		})
		mu := newSession(t, store, nil).Mutex("k")
		start := time.Now()
		mu.Lock()
		<-mu.Lost()
		if d := time.Since(start); d != lease {
			t.Errorf("the holder was notified %v after the registration was sent, want %v", d, lease)
		}
	})
}

// B21: a heartbeat that hangs does not delay the next heartbeat past the deadline.
func TestOneHungHeartbeatCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		store := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodHeartbeat {
				if n++; n%2 == 1 {
					return dsynctest.Fault{LoseReply: true}
				}
			}
			return dsynctest.Fault{}
		})
		mu := newSession(t, store, nil).Mutex("k")
		mu.Lock()
		time.Sleep(20 * ttl)
		if isClosed(mu.Lost()) {
			t.Error("the hold was lost, although every second heartbeat was answered")
		}
		mu.Unlock()
	})
}

// B02: the deadline counts from just before the registration or heartbeat is sent, so a slow reply shortens the
// remaining time.
func TestDeadlineCountsFromTheSend(t *testing.T) {
	for _, beats := range []int{0, 1, 5} {
		inBubble(t, fmt.Sprint(beats, " heartbeats"), func(t *testing.T) {
			const slow = time.Second
			var (
				sent = make(chan time.Time, 100) // the times at which the registration and the acknowledged heartbeats were sent
				n    atomic.Int64
			)
			faulty := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
				f := dsynctest.Fault{ReplyDelay: slow}
				switch r.Method {
				case dsynctest.MethodHeartbeat:
					if n.Add(1) > int64(beats) {
						f.LoseReply = true
						return f
					}
					fallthrough
				case dsynctest.MethodRegister:
					sent <- time.Now()
				}
				return f
			})
			mu := newSession(t, faulty, nil).Mutex("k")
			mu.Lock()
			<-mu.Lost()
			var last time.Time
			for range beats + 1 {
				last = <-sent
			}
			if d := time.Since(last); d != lease {
				t.Errorf("the holder was notified %v after the last acknowledged heartbeat was sent, want %v", d, lease)
			}
		})
	}
}

// B09: if one request or reply is lost, no lock is lost, nothing is left behind, and all callers continue.
func TestLostReplyHarmsNothing(t *testing.T) {
	for _, method := range []dsynctest.Method{
		dsynctest.MethodRegister, dsynctest.MethodAcquire, dsynctest.MethodHeartbeat,
		dsynctest.MethodRelease, dsynctest.MethodExpire, dsynctest.MethodMembers,
	} {
		for _, request := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s request %t", method, request), func(t *testing.T) {
				memory := dsynctest.NewMemory()
				crashed := newFaulty(t, memory, nil)
				c := newSession(t, crashed, nil)
				lock(t, c.Mutex("k"))
				crashed.Cut()

				var seen atomic.Int64
				faulty := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
					if r.Method != method {
						return dsynctest.Fault{}
					}
					first := seen.Add(1) == 1
					return dsynctest.Fault{LoseReply: first && !request, LoseRequest: first && request}
				})
				mu := newSession(t, faulty, nil).Mutex("k")
				lock(t, mu)
				time.Sleep(3 * ttl)
				if isClosed(mu.Lost()) {
					t.Error("the hold was lost, although only one message was lost")
				}
				mu.Unlock()
				time.Sleep(ttl)
				if seen.Load() == 0 {
					t.Fatalf("no %s was sent", method)
				}
				wantFree(t, memory, "k")
			})
		}
	}
}

// B09, B31, promise 4: if the caller of a try or a wait gives up before the reply arrives, the request leaves nothing
// in the store. This holds even if the reply is lost or the request arrives late.
func TestAbandonedRequestLeavesNothing(t *testing.T) {
	for _, fault := range []dsynctest.Fault{
		{LoseReply: true},
		{LoseRequest: true, Again: ttl / 12},
		{LoseReply: true, Again: ttl / 7},
		{Delay: ttl / 7},
		{Delay: ttl},
		{Delay: ttl / 20, Again: 2 * ttl},
	} {
		for _, try := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%+v try %t", fault, try), func(t *testing.T) {
				memory := dsynctest.NewMemory()
				faulty := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
					if r.Method == dsynctest.MethodAcquire && r.Key == "k" {
						return fault
					}
					return dsynctest.Fault{}
				})
				s := newSession(t, faulty, nil)
				lock(t, s.Mutex("other"))
				ctx, cancel := context.WithTimeout(background, time.Millisecond)
				defer cancel()
				mu := s.Mutex("k")
				if try {
					wantErr(t, "try", errOf(mu.TryHold(ctx)), context.DeadlineExceeded)
				} else {
					wantErr(t, "wait", mu.LockContext(ctx), context.DeadlineExceeded)
				}
				time.Sleep(5 * ttl)
				if h, n := holders(t, memory, "k"), queueLength(t, memory, "k"); len(h)+n != 0 {
					t.Errorf("left behind under a live session: holders %v and %d in the queue", h, n)
				}
			})
		}
	}
}

// B31: an attempt may fail at once, for example because the connection breaks, and still reach the store, even after
// its claim has been released. The claim is then released once more.
func TestRequestThatOvertakesItsReleaseIsReleasedAgain(t *testing.T) {
	for _, unlocked := range []bool{false, true} {
		inBubble(t, fmt.Sprint("granted and unlocked ", unlocked), func(t *testing.T) {
			store := &resetStore{Memory: dsynctest.NewMemory()}
			s := newSession(t, store, nil)
			lock(t, s.Mutex("warm"))
			store.resets.Store(1)
			mu := s.Mutex("k")
			if unlocked {
				lock(t, mu)
				mu.Unlock()
			} else if err := errOf(mu.TryHold(background)); err == nil || errors.Is(err, dsync.ErrHeld) {
				t.Errorf("TryHold: %v, want the store's error", err)
			}
			time.Sleep(ttl)
			if !isClosed(store.late) {
				t.Fatal("the late request did not arrive")
			}
			if h, n := holders(t, store, "k"), queueLength(t, store, "k"); len(h)+n != 0 {
				t.Errorf("left behind under a live session: holders %v and %d in the queue", h, n)
			}
		})
	}
}

// While resets is positive, a resetStore counts it down and fails each Acquire at once, but executes the Acquire later.
type resetStore struct {
	*dsynctest.Memory
	resets atomic.Int64
	late   chan struct{} // closed when the last of these Acquires has been executed
}

func (s *resetStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire == nil || s.resets.Add(-1) < 0 {
		return s.Memory.Edit(ctx, e)
	}
	late := make(chan struct{})
	s.late = late
	time.AfterFunc(ttl/10, func() {
		// Set Wait, so that even a try's request leaves a claim behind.
		join := *e.Acquire
		join.Wait = true
		s.Memory.Edit(background, driver.Edit{Release: e.Release, Acquire: &join})
		close(late)
	})
	return driver.Edited{}, errors.New("connection reset")
}

// B28: a Release that is repeated because its reply was lost does not free a newer hold.
func TestRepeatedUnlockFreesNoNewerLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease {
				return dsynctest.Fault{LoseReply: true, Again: 2 * time.Second}
			}
			return dsynctest.Fault{}
		})
		a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
		mu, next := a.Mutex("k"), b.Mutex("k")
		h := take(t, mu.Hold)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release: %v, want the end of ctx", err)
		}
		lock(t, next)
		time.Sleep(5 * ttl)
		if isClosed(next.Lost()) || len(holders(t, memory, "k")) != 1 {
			t.Error("a repeated Release freed the next holder's lock")
		}
		next.Unlock()
	})
}

// B36: if a waiter is cancelled or its process crashes, it is removed from the queue, and the next waiter is served.
func TestExpiredAndCancelledWaitersLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		holder := newSession(t, memory, nil).Mutex("k")
		lock(t, holder)
		cut := newFaulty(t, memory, nil)
		dying := newSession(t, cut, nil)
		dctx, dcancel := context.WithCancel(background)
		defer dcancel()
		go dying.Mutex("k").LockContext(dctx)
		synctest.Wait()
		ctx, cancel := context.WithCancel(background)
		cancelled := make(chan error)
		go func() { cancelled <- newSession(t, memory, nil).Mutex("k").LockContext(ctx) }()
		synctest.Wait()
		last := newSession(t, memory, nil).Mutex("k")
		served := make(chan struct{})
		go func() { last.Lock(); close(served) }()
		synctest.Wait()
		if n := queueLength(t, memory, "k"); n != 3 {
			t.Fatalf("%d in the queue, want 3", n)
		}
		cut.Cut()
		cancel()
		wantErr(t, "cancelled waiter", <-cancelled, context.Canceled)
		synctest.Wait()
		if n := queueLength(t, memory, "k"); n != 2 {
			t.Errorf("%d in the queue after one was cancelled, want 2", n)
		}
		time.Sleep(3 * ttl)
		if n := queueLength(t, memory, "k"); n != 1 {
			t.Errorf("%d in the queue after one crashed, want 1", n)
		}
		holder.Unlock()
		<-served
		last.Unlock()
	})
}

// Promise 4: a request that the network repeats can leave a claim in the store, unknown to its own session. The
// session releases such a claim as soon as a notice or a reply names it.
func TestUnknownClaimIsReleasedAtOnce(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprint("polling ", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			s, other := newSession(t, store, nil), newSession(t, store, nil)
			lock(t, other.Mutex("taken"))
			ctx, cancel := context.WithCancel(background)
			waited := make(chan struct{})
			go func() { // makes the session listen
				defer close(waited)
				s.Mutex("taken").LockContext(ctx)
			}()
			time.Sleep(time.Second)
			mu := other.Mutex("k")
			if !polling {
				lock(t, mu) // the two unknown claims join the queue, and the Unlock grants the first
			}
			for _, id := range []string{".1000000", ".1000001"} {
				unknown := driver.Claim{
					Key: "k", ID: s.ID() + id, Session: s.ID(),
					Kind: driver.KindMutex, Weight: 1, Limit: 1,
				}
				if _, _, err := storecmd.Acquire(background, store, unknown, true, nil, time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			if polling {
				s.Mutex("k").TryLock() // the reply names both unknown claims: one holds the key, one waits
			} else {
				mu.Unlock()
			}
			synctest.Wait()
			if h := holders(t, store, "k"); len(h) != 0 {
				t.Errorf("held by a claim that nobody knows: %v", h)
			}
			cancel()
			<-waited
		})
	}
}

// A grant notice that arrives after the end of its hold costs no command.
func TestLateNoticesCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var grants atomic.Int64
		again := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodNotice {
				if r.Notice == driver.NoticeGrant {
					grants.Add(1)
				}
				return dsynctest.Fault{Again: time.Second}
			}
			return dsynctest.Fault{}
		})
		s, other := newSession(t, again, nil), newSession(t, memory, nil)
		before := memory.Counts()
		for range 10 {
			h := take(t, other.Mutex("k").Hold)
			served := make(chan struct{})
			go func() {
				defer close(served)
				turn(s.Mutex("k"))
			}()
			synctest.Wait()
			if err := h.Release(background); err != nil {
				t.Error(err)
			}
			<-served
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond)
		if n := grants.Load(); n != 10 {
			t.Errorf("%d grant notices, want 10, each of them repeated", n)
		}
		if n := memory.Counts().Since(before).Commands[dsynctest.MethodRelease]; n != 20 {
			t.Errorf("20 holds cost %d releases", n)
		}
	})
}

// One of a session's claims may end while the reply to a request for another claim is under way. The reply may then
// still name the ended claim. The session does not treat the ended claim as unknown, and does not release it again.
func TestLateRepliesCostNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		memory.Polling = true
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodAcquire {
				return dsynctest.Fault{ReplyDelay: time.Second}
			}
			return dsynctest.Fault{}
		})
		sem := newSession(t, slow, &dsync.Options{Retention: -1, PollInterval: time.Minute}).Semaphore("k", 2)
		acquire(t, sem, 1)
		ctx, cancel := context.WithCancel(background)
		go sem.Acquire(ctx, 2) // this joins the queue, because only one unit is free
		time.Sleep(3500 * time.Millisecond)
		before := memory.Counts()
		asked := acquiring(sem, 1)
		time.Sleep(500 * time.Millisecond) // now the reply, which names both claims, is under way
		cancel()
		time.Sleep(time.Millisecond)
		sem.Release(1)
		if err := <-asked; err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		if n := memory.Counts().Since(before).Commands[dsynctest.MethodRelease]; n != 2 {
			t.Errorf("two claims that ended cost %d releases", n)
		}
		sem.Release(1)
	})
}

// If the reply to a Release says that the claim is absent, this reply may come from a deposed primary. So the session
// waits until a heartbeat has been acknowledged, and then sends the Release again. If the second reply is the same,
// the session believes it.
func TestAbsentHoldIsReleasedAgain(t *testing.T) {
	for _, lies := range []int64{1, 2} {
		inBubble(t, fmt.Sprint(lies, " times absent"), func(t *testing.T) {
			store := &deposedStore{Memory: dsynctest.NewMemory()}
			s := newSession(t, store, nil)
			hold := take(t, s.Mutex("k").Hold)
			store.lies.Store(lies)
			before := store.Counts()
			err := hold.Release(background)
			if lost := lies == 2; lost != errors.Is(err, dsync.ErrLost) || !lost && err != nil {
				t.Errorf("Release: %v, want ErrLost if the claim was absent twice, and nil if only once", err)
			}
			if beats := store.Counts().Since(before).Commands[dsynctest.MethodHeartbeat]; beats == 0 {
				t.Error("the session believed the reply without sending a heartbeat")
			}
			if h := holders(t, store, "k"); lies == 1 && len(h) != 0 {
				t.Errorf("still held: %v", h)
			}
		})
	}
}

// A deposedStore executes no Release while lies is positive. It counts lies down, and answers as if the claim were
// absent.
type deposedStore struct {
	*dsynctest.Memory
	lies atomic.Int64
}

func (s *deposedStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire == nil && e.Release != nil && s.lies.Add(-1) >= 0 {
		return driver.Edited{}, nil
	}
	return s.Memory.Edit(ctx, e)
}
