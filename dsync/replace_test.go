package dsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// waiters starts n goroutines. Each goroutine locks the key "k" in s, makes the given call, and unlocks the key.
// waiters returns when all goroutines are waiting. done waits until they have ended.
func waiters(t *testing.T, s *dsync.Session, n int, each func()) (done func()) {
	t.Helper()
	ended := make(chan struct{})
	for range n {
		go func() {
			mu := s.Mutex("k")
			mu.Lock()
			each()
			mu.Unlock()
			ended <- struct{}{}
		}()
	}
	time.Sleep(time.Second)
	return func() {
		for range n {
			<-ended
		}
	}
}

// slow returns store with a delay, so that a process gets the reply to its own command before a notice from another
// process's later command. If the notice came first, the process could not replace its claim, because a request for
// that claim might still be under way.
func slow(t *testing.T, store *dsynctest.Memory) driver.Store {
	return newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault {
		return dsynctest.Fault{Delay: time.Millisecond}
	})
}

// With the command that releases the key, Unlock also requests the key for the next local caller. So each hold costs
// one command, whether or not other processes wait.
func TestUnlockRequestsForTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		opt := &dsync.Options{}
		opt.HandOffTime = -1
		opt.TTL, opt.AlwaysListen = time.Hour, true // so that there are no heartbeats, and no requests caused by a new listener
		a, b := newSession(t, slow(t, store), opt), newSession(t, slow(t, store), opt)
		turn(a.Mutex("warm"))
		turn(b.Mutex("warm"))
		first := a.Mutex("k")
		lock(t, first)

		// First, one process uses the key alone.
		before := store.Counts()
		seen := tokens{t: t, last: first.Token()}
		held := func(s *dsync.Session) func() {
			return func() {
				h := holders(t, store, "k")
				if len(h) != 1 || h[0].Session != s.ID() {
					t.Errorf("the key is held by %v, want %s", h, s.ID())
				}
				seen.next(h[0].Token)
			}
		}
		done := waiters(t, a, 10, held(a))
		first.Unlock()
		done()
		if d := store.Counts().Since(before).Commands; d[dsynctest.MethodAcquire] != 10 || d[dsynctest.MethodRelease] != 1 {
			t.Errorf("10 holds after one took %v, want an Acquire each and the last one's Release", d)
		}

		// Then two processes use it.
		lock(t, first)
		seen.last = first.Token()
		doneA := waiters(t, a, 3, held(a))
		doneB := waiters(t, b, 3, held(b))
		before = store.Counts()
		first.Unlock()
		doneA()
		doneB()
		// b's first waiter is already in the store's queue, and the last Unlock of each process has no next caller.
		if d := store.Counts().Since(before).Commands; d[dsynctest.MethodAcquire] != 5 || d[dsynctest.MethodRelease] != 2 {
			t.Errorf("6 holds of two processes took %v, want 5 Acquires and 2 Releases", d)
		}
	})
}

// Processes take turns: the next local caller joins the queue behind the other process.
func TestNextCallerJoinsBehindOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		opt := &dsync.Options{HandOffTime: -1}
		a, b := newSession(t, slow(t, store), opt), newSession(t, slow(t, store), opt)
		first := a.Mutex("k")
		lock(t, first)
		var order []string
		doneA := waiters(t, a, 3, func() { order = append(order, "a") })
		doneB := waiters(t, b, 3, func() { order = append(order, "b") })
		first.Unlock()
		doneA()
		doneB()
		if got := len(order); got != 6 {
			t.Fatalf("%d holds, want 6", got)
		}
		for i, who := range order {
			if want := []string{"b", "a"}[i%2]; who != want {
				t.Fatalf("the holders were %v, want b and a in turn", order)
			}
		}
	})
}

// A command may release one claim and request another. Whatever happens to this command, both the release and the
// request succeed in the end, and nothing is left behind.
func TestReplacingCommandIsLost(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault dsynctest.Fault
	}{
		{"request lost", dsynctest.Fault{LoseRequest: true}},
		{"reply lost", dsynctest.Fault{LoseReply: true}},
		{"late", dsynctest.Fault{Delay: ttl}},
		{"twice", dsynctest.Fault{Again: ttl / 2}},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			n := 0
			f := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				if r.Replaces == "" {
					return dsynctest.Fault{}
				}
				n++
				return c.fault
			})
			s := newSession(t, f, &dsync.Options{HandOffTime: -1})
			first := take(t, s.Mutex("k").Hold)
			inside, most := 0, 0
			done := waiters(t, s, 3, func() {
				inside++
				most = max(most, inside)
				time.Sleep(time.Millisecond)
				inside--
			})
			if err := first.Release(background); err != nil {
				t.Errorf("Release: %v", err)
			}
			done()
			if most != 1 {
				t.Errorf("%d callers held the key at once", most)
			}
			if n == 0 {
				t.Error("no claim was replaced")
			}
			time.Sleep(2 * ttl)
			if h, q := holders(t, store, "k"), queueLength(t, store, "k"); len(h) > 0 || q > 0 {
				t.Errorf("the key is held by %v with %d in the queue, after all have unlocked", h, q)
			}
			if id := s.ID(); id == "" {
				t.Error("the session was lost")
			}
		})
	}
}

// An Unlock may request the key for the next caller. If this caller gives up while the command is under way, or the
// session is closed, the caller's claim does not remain in the store.
func TestNextCallerGivesUpDuringTheCommand(t *testing.T) {
	for _, how := range []string{"cancelled", "cancelled and lost", "closed"} {
		inBubble(t, how, func(t *testing.T) {
			store := dsynctest.NewMemory()
			f := newFaulty(t, store, func(r dsynctest.Request) (fault dsynctest.Fault) {
				if r.Replaces != "" {
					fault.Delay, fault.ReplyDelay = 100*time.Millisecond, 100*time.Millisecond
					fault.LoseRequest = how == "cancelled and lost"
				}
				return fault
			})
			s := newSession(t, f, &dsync.Options{HandOffTime: -1})
			first := take(t, s.Mutex("k").Hold)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			got := make(chan error, 1)
			go func() { got <- s.Mutex("k").LockContext(ctx) }()
			synctest.Wait()
			unlocked := make(chan error, 1)
			go func() { unlocked <- first.Release(background) }()
			time.Sleep(50 * time.Millisecond)
			want := dsync.ErrClosed
			if how == "closed" {
				s.Close(background)
			} else {
				want = context.Canceled
				cancel()
			}
			if err := <-got; !errors.Is(err, want) {
				t.Errorf("LockContext: %v, want %v", err, want)
			}
			if err := <-unlocked; err != nil {
				t.Errorf("Release: %v", err)
			}
			time.Sleep(ttl / 20) // longer than a failed Release waits, but too short for a Discard to clean up after it
			if h, q := holders(t, store, "k"), queueLength(t, store, "k"); len(h) > 0 || q > 0 {
				t.Errorf("the key is held by %v with %d in the queue", h, q)
			}
		})
	}
}

// An Unlock may request the key for the next caller. If this caller gives up at the moment of the Unlock, the
// caller's claim does not remain in the store.
func TestNextCallerGivesUpDuringUnlock(t *testing.T) {
	for range 100 { // the caller may check its context before Unlock or after it
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, &dsync.Options{HandOffTime: -1})
			first := s.Mutex("k")
			lock(t, first)
			ctx, cancel := context.WithCancel(background)
			got := make(chan error, 1)
			second := s.Mutex("k")
			go func() { got <- second.LockContext(ctx) }()
			synctest.Wait()
			cancel()
			first.Unlock()
			if <-got == nil {
				second.Unlock()
			}
			time.Sleep(time.Second)
			if h, q := holders(t, store, "k"), queueLength(t, store, "k"); len(h) > 0 || q > 0 {
				t.Fatalf("the key is held by %v with %d in the queue", h, q)
			}
			noErr(t, errOf(s.Mutex("k").TryHold(background)))
		})
	}
}

// If an edit has both a Release and an Acquire, a twoStep executes only the Release and returns an error.
type twoStep struct{ *dsynctest.Memory }

func (s twoStep) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire == nil || e.Release == nil {
		return s.Memory.Edit(ctx, e)
	}
	done, err := s.Memory.Edit(ctx, driver.Edit{Release: e.Release})
	return driver.Edited{Notices: done.Notices}, errors.Join(err, errors.New("the connection broke"))
}

// A command that replaces a claim may fail after its Release. The process that was granted the key by this Release is
// still notified.
func TestFailedReplacementNotifies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		opt := &dsync.Options{HandOffTime: -1}
		a, b := newSession(t, twoStep{store}, opt), newSession(t, slow(t, store), opt)
		first := take(t, a.Mutex("k").Hold)
		var taken time.Time
		doneB := waiters(t, b, 1, func() { taken = time.Now() })
		doneA := waiters(t, a, 1, func() {})
		start := time.Now()
		if err := first.Release(background); err != nil {
			t.Errorf("Release: %v", err)
		}
		doneB()
		doneA()
		if d := taken.Sub(start); d > 100*time.Millisecond {
			t.Errorf("the other process got the key after %v, want at once", d)
		}
	})
}
