package dsync_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

const linger = time.Minute

func lingering() *dsync.Options { return &dsync.Options{Retention: -1, Linger: linger} }

// A lingering key is locked again without a command, each time with a greater token, as long as no
// other process requests it.
func TestLingerTakesNoCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, lingering())
		mu := s.Mutex("k")
		makeLinger(mu)
		seen := tokens{t: t}
		before := store.Counts()
		for range 1000 {
			mu.Lock()
			seen.next(mu.Token())
			mu.Unlock()
		}
		if d := store.Counts().Since(before); d.Total() != 0 {
			t.Errorf("1,000 × Lock and Unlock of a lingering key sent %v", d.Commands)
		}
		if !mu.TryLock() {
			t.Fatal("TryLock of a key that lingers in this process failed")
		}
		mu.Unlock()

		time.Sleep(linger)
		synctest.Wait()
		if h := holders(t, store, "k"); len(h) != 0 {
			t.Errorf("after Linger the key is still held by %v", h)
		}
	})
}

// A key does not linger if another process may have requested it before the listener was ready. This includes the
// time between the grant and the reply that reports the grant.
func TestLingerYieldsToWaitersBeforeTheReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			switch r.Method {
			case dsynctest.MethodAcquire:
				return dsynctest.Fault{ReplyDelay: 300 * time.Millisecond}
			case dsynctest.MethodListen:
				return dsynctest.Fault{Delay: 200 * time.Millisecond}
			}
			return dsynctest.Fault{}
		})
		mu, other := newSession(t, slow, lingering()).Mutex("k"), newSession(t, memory, nil).Mutex("k")
		begin := time.Now()
		go func() {
			time.Sleep(100 * time.Millisecond)
			lock(t, other)
			if took := time.Since(begin); took > time.Second {
				t.Errorf("the key lingered although another process waited, which got it only after %v", took)
			}
			other.Unlock()
		}()
		lock(t, mu)
		mu.Unlock()
		time.Sleep(2 * linger)
	})
}

// Another process that requests a lingering key gets it even if the key is in constant use. It gets the key at once if
// the store can notify, and otherwise after Linger.
func TestLingerYields(t *testing.T) {
	for _, polling := range []bool{false, true} {
		for _, used := range []bool{false, true} {
			name, limit := map[bool]string{false: "notified", true: "polled"}[polling], 110*time.Millisecond
			if polling {
				limit = 2*linger + time.Second
			}
			if used {
				name += " in use"
			}
			inBubble(t, name, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				a, b := newSession(t, store, lingering()), newSession(t, store, nil)
				mu := a.Mutex("k")
				makeLinger(mu)
				stop := make(chan struct{})
				var wg sync.WaitGroup
				if used {
					wg.Go(func() {
						for !isClosed(stop) {
							mu.Lock()
							time.Sleep(100 * time.Millisecond)
							mu.Unlock()
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
				time.Sleep(1050 * time.Millisecond) // if the key is in constant use, it is locked now
				if st, err := store.Load(background, "k", 1); err != nil || len(st.Holders) != 1 {
					t.Fatalf("%d holders, %v, want one, because the key lingers", len(st.Holders), err)
				}
				start := time.Now()
				other := b.Mutex("k")
				lock(t, other)
				if d := time.Since(start); d > limit {
					t.Errorf("another process got the key after %v, want at most %v", d, limit)
				}
				if mu.Token() != 0 {
					t.Error("both sessions hold the key")
				}
				other.Unlock()
				close(stop)
				wg.Wait()
			})
		}
	}
}

// Promise 5: if notices are missed, a lingering key is still released, only later than usual.
func TestLingerYieldsWithoutNotices(t *testing.T) {
	for _, used := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			f := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodNotice && r.Claim != ""}
			})
			a, b := newSession(t, f, lingering()), newSession(t, store, nil)
			mu := a.Mutex("k")
			makeLinger(mu)
			ctx, cancel := context.WithCancel(background)
			var wg sync.WaitGroup
			if used {
				wg.Go(func() {
					for ctx.Err() == nil {
						mu.Lock()
						time.Sleep(100 * time.Millisecond)
						mu.Unlock()
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			start := time.Now()
			other := b.Mutex("k")
			lock(t, other)
			if d := time.Since(start); d > 2*linger+5*time.Second {
				t.Errorf("in use %v: another process got the key only after %v", used, d)
			}
			cancel()
			other.Unlock()
			wg.Wait()
		})
	}
}

// A try in another process finds that a lingering key is held, and changes nothing.
func TestTryMeetsLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, lingering()), newSession(t, store, nil)
		makeLinger(a.Mutex("k"))
		wantErr(t, "a try", errOf(b.Mutex("k").TryHold(background)), dsync.ErrHeld)
		before := store.Counts()
		turn(a.Mutex("k"))
		if d := store.Counts().Since(before); d.Commands[dsynctest.MethodAcquire] != 0 {
			t.Errorf("after a try in another process, Lock and Unlock took %v", d.Commands)
		}
		time.Sleep(linger + time.Second)
		if err := errOf(b.Mutex("k").TryHold(background)); err != nil {
			t.Errorf("after Linger: %v", err)
		}
	})
}

// If a session is lost while a key lingers, no lost hold is reported, because nobody held the key. The next Lock
// requests the key again.
func TestLingeringKeyIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		opt := lingering()
		lost := 0
		opt.Hooks = &dsync.Hooks{Lost: func(dsync.HoldInfo) { lost++ }}
		a := newSession(t, f, opt)
		mu := a.Mutex("k")
		makeLinger(mu)
		mu.Lock()
		first, id := mu.Token(), a.ID()
		mu.Unlock()
		f.Cut()
		time.Sleep(lease) // at the deadline, a timer ends the claim
		if mu.TryLock() {
			t.Error("locked a key that lingered beyond the deadline")
			mu.Unlock()
		}
		time.Sleep(ttl)
		other := newSession(t, store, nil).Mutex("k")
		lock(t, other)
		f.Heal()
		other.Unlock()
		lock(t, mu)
		if mu.Token() <= first || a.ID() == id {
			t.Errorf("token %d after %d, session %s after %s", mu.Token(), first, a.ID(), id)
		}
		mu.Unlock()
		synctest.Wait()
		if lost != 0 {
			t.Errorf("hook Lost was called %d times", lost)
		}
	})
}

// Close frees lingering keys.
func TestCloseFreesLingeringKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, lingering())
		makeLinger(s.Mutex("k"))
		if h := holders(t, store, "k"); len(h) != 1 || !h[0].Yield {
			t.Errorf("a key that lingers is held by %v", h)
		}
		start := time.Now()
		if err := s.Close(background); err != nil {
			t.Error(err)
		}
		if h := holders(t, store, "k"); len(h) != 0 || time.Since(start) > time.Second {
			t.Errorf("%v after Close the key is held by %v", time.Since(start), h)
		}
	})
}

// A lingering key is released if a call in the same process requests another kind of hold, such as a lease.
func TestLingeringKeyYieldsInTheSameProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, lingering())
		makeLinger(s.Mutex("k"))
		l, err := s.Mutex("k").Lease(background, time.Hour)
		noErr(t, err)
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Token != l.Token() {
			t.Errorf("the key is held by %v", h)
		}
		l.Release(background)
		rw := s.RWMutex("rw")
		hold := take(t, rw.Hold)
		if hold.Token() == 0 {
			t.Error("Hold returned a hold that has ended")
		}
		hold.Release(background)
		mine := take(t, rw.RHold)
		if mine.Token() == 0 || isClosed(mine.Lost()) {
			t.Error("RHold returned a hold that has ended")
		}
		mine.Release(background)
		turn(s.Mutex("k"))
		// After ReleaseAfter, the key must not linger beyond the requested time.
		noErr(t, take(t, s.Mutex("k").Hold).ReleaseAfter(background, time.Second))
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Until.IsZero() {
			t.Errorf("after ReleaseAfter the key is held by %v", h)
		}
	})
}

// If a try in the same process requests another kind of hold, a lingering key is released, too. That costs one more
// command.
func TestTryTakesALocallyLingeringKey(t *testing.T) {
	lease := func(s *dsync.Session) bool {
		_, err := s.Mutex("mutex").TryLease(background, time.Hour)
		if err != nil {
			wantErr(t, "TryLease", err, dsync.ErrHeld)
		}
		return err == nil
	}
	reader := func(s *dsync.Session) bool { return s.RWMutex("rwmutex").TryRLock() }
	for name, try := range map[string]func(*dsync.Session) bool{"a lease": lease, "a reader": reader} {
		for _, silent := range []bool{false, true} {
			if silent {
				name += ", no release is answered"
			}
			inBubble(t, name, func(t *testing.T) {
				var lose atomic.Bool
				memory := dsynctest.NewMemory()
				store := dsynctest.NewFaulty(memory, func(r dsynctest.Request) dsynctest.Fault {
					return dsynctest.Fault{LoseReply: lose.Load() && r.Method == dsynctest.MethodRelease}
				})
				s := newSession(t, store, lingering())
				rw := s.RWMutex("rwmutex")
				for range 2 {
					turn(s.Mutex("mutex"))
					turn(rw)
					synctest.Wait() // the first claim has been released: see makeLinger
				}
				for _, key := range []string{"mutex", "rwmutex"} {
					if h := holders(t, memory, key); len(h) != 1 {
						t.Fatalf("%s is held by %v, want the lingering claim", key, h)
					}
				}
				lose.Store(silent)
				start := time.Now()
				if got := try(s); got == silent {
					t.Errorf("the try succeeded: %t, want the opposite", got)
				}
				if d := time.Since(start); silent && d != s.Options().TTL/6 {
					t.Errorf("the try took %v, want the longest time of one attempt, %v", d, s.Options().TTL/6)
				}
				lose.Store(false)
			})
		}
	}
}

// Promise 2: even if the holds of a lingering key use up all the tokens of its grant, these tokens stay below the token
// of the next grant.
func TestLingerTokensHaveRoom(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, lingering()), newSession(t, store, nil)
		mu := a.Mutex("k")
		makeLinger(mu)
		seen := tokens{t: t}
		before := store.Counts()
		for range 200_000 {
			mu.Lock()
			seen.next(mu.Token())
			mu.Unlock()
		}
		if d := store.Counts().Since(before); d.Total() < 6 || d.Total() > 10 {
			t.Errorf("200,000 holds, with 65,536 tokens in a grant, sent %v; want 6 to 10 commands", d.Commands)
		}
		other := b.Mutex("k")
		lock(t, other)
		seen.next(other.Token())
		other.Unlock()
	})
}

// If the listener is reopened, the key stops lingering: others may wait, and the session may have missed the notice.
func TestLingerEndsWithItsListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := newSession(t, store, lingering())
		mu := a.Mutex("k")
		makeLinger(mu)
		if len(holders(t, store, "k")) != 1 {
			t.Fatal("the key does not linger")
		}
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		engine.Of(a).Observe(ctx, "another", func(driver.State, error) {}, func() {}) // this key makes the session reopen the listener
		time.Sleep(time.Second)
		if h := holders(t, store, "k"); len(h) != 0 {
			t.Errorf("the key is held by %v although the listener was reopened", h)
		}
	})
}

// If another session joined the queue before the holder's listener was open, no notice tells the holder that this
// session waits. The waiting session still gets the key at the next Unlock.
func TestLingerYieldsToWaitersBeforeTheListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		slow := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodListen {
				return dsynctest.Fault{Delay: time.Second}
			}
			return dsynctest.Fault{}
		})
		mu, next := newSession(t, slow, lingering()).Mutex("k"), newSession(t, store, nil).Mutex("k")
		lock(t, mu)
		start := time.Now()
		passed := make(chan struct{})
		go func() {
			defer close(passed)
			turn(next)
		}()
		time.Sleep(2 * time.Second)
		mu.Unlock()
		<-passed
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("another process got the key only after %v", d)
		}
	})
}

// Without a listener, no notice tells the holder that others wait. Therefore even a key in constant use is released
// once it has been kept for Linger.
func TestLingerIsBoundedWithoutListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		store.Polling = true
		a, b := newSession(t, store, &dsync.Options{Linger: time.Second}), newSession(t, store, nil)
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		wg.Go(func() {
			mu := a.Mutex("k")
			for ctx.Err() == nil {
				turn(mu)
				time.Sleep(100 * time.Millisecond)
			}
		})
		time.Sleep(11500 * time.Millisecond)
		start := time.Now()
		mu := b.Mutex("k")
		lock(t, mu)
		if d := time.Since(start); d > 1500*time.Millisecond {
			t.Errorf("another process got the key only after %v", d)
		}
		cancel()
		mu.Unlock()
		wg.Wait()
	})
}
