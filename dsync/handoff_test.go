package dsync_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// tokens checks that the tokens of one key grow in the order of the key's holds. The lock under test guards the fields
// of tokens.
type tokens struct {
	t    *testing.T
	last int64
	n    int
}

func (k *tokens) next(token int64) {
	k.t.Helper()
	if token <= k.last {
		k.t.Errorf("hold %d has token %d, after %d", k.n, token, k.last)
	}
	k.last = token
	k.n++
}

// B02, B26, promise 8: goroutines of one process hand off the key without a command, and each gets a greater token than
// the one before.
func TestHandOffTakesNoCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var local int
		opt := &dsync.Options{}
		opt.Hooks = &dsync.Hooks{Granted: func(g dsync.HoldInfo) {
			if g.Local {
				local++
			}
		}}
		s := newSession(t, store, opt)
		turn(s.Mutex("warm"))
		before := store.Counts()
		first := s.Mutex("k")
		lock(t, first)
		const goroutines = 500
		seen := tokens{t: t}
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				mu := s.Mutex("k")
				mu.Lock()
				lost := mu.Lost()
				if isClosed(lost) || mu.Token() == 0 {
					t.Error("the hold ended before its Unlock")
				}
				seen.next(mu.Token())
				mu.Unlock()
				if !isClosed(lost) {
					t.Error("Lost is open after Unlock")
				}
			})
		}
		synctest.Wait()
		seen.last = first.Token()
		first.Unlock()
		wg.Wait()
		synctest.Wait()
		if d := store.Counts().Since(before); seen.n != goroutines || d.Total() != 2 || d.Writes != 2 {
			t.Errorf("%d holds took %v and %d writes, want an Acquire and a Release", seen.n, d.Commands, d.Writes)
		}
		if local != goroutines {
			t.Errorf("the hook saw %d local hand-offs, want %d", local, goroutines)
		}
	})
}

// Promise 2, B08: two processes use a key for 1,000 cycles, with local hand-offs and clean-up of the key's record in
// between. The tokens grow strictly in the order of the holds.
func TestHandOffTokensGrowThroughCleanUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		opt := dsync.Options{TTL: 5 * time.Minute, Retention: time.Hour}
		a, b := newSession(t, store, &opt), newSession(t, store, &opt)
		seen := tokens{t: t}
		cleaned := 0
		for i := range 1000 {
			var wg sync.WaitGroup
			for _, s := range []*dsync.Session{a, a, a, b, b} {
				wg.Go(func() {
					mu := s.Mutex("k")
					mu.Lock()
					seen.next(mu.Token())
					mu.Unlock()
				})
			}
			wg.Wait()
			if i%100 == 99 {
				time.Sleep(3 * time.Hour)
				if len(store.Records()) == 0 {
					cleaned++
				}
			}
		}
		if seen.n != 5000 || cleaned != 10 {
			t.Errorf("%d holds, cleaned up %d times, want 5000 and 10", seen.n, cleaned)
		}
	})
}

// Promise 8: another process gets the key after HandOffTime, or when the grant's tokens are used up.
func TestHandOffIsBounded(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		name string
		turn time.Duration
		want int // local holds before the other process's hold
	}{
		{"by time", 95 * time.Millisecond, 10},
		{"none", -1, 1},
		{"by the token's room", hour, 1024},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			opt := &dsync.Options{}
			opt.TTL, opt.HandOffTime = hour, c.turn
			here, there := newSession(t, store, opt), newSession(t, store, nil)
			var wg sync.WaitGroup
			var holds, before int
			for range 1100 {
				wg.Go(func() {
					mu := here.Mutex("k")
					mu.Lock()
					holds++
					time.Sleep(10 * time.Millisecond)
					mu.Unlock()
				})
			}
			synctest.Wait()
			wg.Go(func() {
				mu := there.Mutex("k")
				mu.Lock()
				before = holds
				mu.Unlock()
			})
			wg.Wait()
			if before != c.want {
				t.Errorf("the other process got the key after %d holds, want %d", before, c.want)
			}
		})
	}
}

// Promise 8: if the goroutines of several processes hand off a key, each process gets about the same share of the
// holds.
func TestHandOffSharesAreEven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		const processes = 4
		var shares [processes]int
		stop := time.Now().Add(time.Minute)
		var wg sync.WaitGroup
		for i := range processes {
			s := newSession(t, store, nil)
			for range 4 * (i + 1) {
				wg.Go(func() {
					mu := s.Mutex("k")
					for time.Now().Before(stop) {
						mu.Lock()
						shares[i]++
						time.Sleep(time.Millisecond)
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		lo, hi := shares[0], shares[0]
		for _, n := range shares {
			lo, hi = min(lo, n), max(hi, n)
		}
		if hi == 0 || float64(lo)/float64(hi) < 0.8 {
			t.Errorf("shares are %v: the smallest is less than 0.8 of the largest", shares)
		}
	})
}

// Promises 1 and 8, B05, B32: a handed-off hold ends with the session, at least a grace before anyone else holds the
// key. A late Release of such a hold ends no other hold.
func TestHandedOffHoldIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		a, b := newSession(t, f, nil), newSession(t, store, nil)
		first, second := a.Mutex("k"), a.Mutex("k")
		lock(t, first)
		var wg sync.WaitGroup
		var lostAt, taken time.Time
		wg.Go(func() {
			secondHold := take(t, second.Hold)
			<-secondHold.Lost()
			lostAt = time.Now()
			if secondHold.Token() != 0 {
				t.Error("a lost hold has a token")
			}
			time.Sleep(2 * ttl)
			wantErr(t, "late Release", secondHold.Release(background), dsync.ErrLost)
		})
		synctest.Wait()
		first.Unlock()
		synctest.Wait()
		f.Cut()
		other := b.Mutex("k")
		wg.Go(func() {
			lock(t, other)
			taken = time.Now()
		})
		wg.Wait()
		if d := taken.Sub(lostAt); d < grace {
			t.Errorf("the key was taken %v after the loss, want at least %v", d, grace)
		}
		if other.Token() == 0 || len(holders(t, store, "k")) != 1 {
			t.Error("the late Release freed somebody else's hold")
		}
		f.Heal()
		other.Unlock()
	})
}

// B36, promise 8: if a waiter gives up at the moment of a hand-off, the next waiter gets the hold.
func TestHandOffToACancelledWaiter(t *testing.T) {
	for range 30 {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			mu := s.Mutex("k")
			lock(t, mu)
			ctx, cancel := context.WithCancel(background)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					mu := s.Mutex("k")
					if err := mu.LockContext(ctx); err == nil {
						mu.Unlock()
					} else if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				turn(s.Mutex("k"))
			}()
			synctest.Wait()
			cancel()
			mu.Unlock() // usually before the waiters notice that ctx has ended
			wg.Wait()
			<-done
			synctest.Wait()
			if h := holders(t, store, "k"); len(h) != 0 {
				t.Errorf("holders left behind: %v", h)
			}
		})
	}
}

// B31: duplicates of the session's requests do not affect a claim that is handed off, even if each duplicate is
// delivered after all later requests.
func TestReplayedRequestsDoNotAffectHandOffs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		f.Record()
		a := newSession(t, f, nil)
		seen := tokens{t: t}
		for range 3 {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					mu := a.Mutex("k")
					mu.Lock()
					seen.next(mu.Token())
					mu.Unlock()
				})
			}
			wg.Wait()
			time.Sleep(ttl)
			noErr(t, f.Replay(background))
			if h := holders(t, store, "k"); len(h) != 0 || queueLength(t, store, "k") != 0 {
				t.Fatalf("a repeated request left the holders %v or a waiter", h)
			}
		}
	})
}

// Unlock does not hand off a hold to a call of Lease that waits in the same process. That call acquires the key in the
// store.
func TestOnlyPlainHoldsAreHandedOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		var l *dsync.Hold
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			if l, err = s.Mutex("k").Lease(background, time.Minute); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		before := store.Counts()
		mu.Unlock()
		wg.Wait()
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Until.IsZero() || h[0].Token != l.Token() {
			t.Errorf("the store has the holders %+v, want one with the lease's token and an end", h)
		}
		if d := store.Counts().Since(before); d.Commands[dsynctest.MethodRelease] != 1 || d.Commands[dsynctest.MethodAcquire] != 1 {
			t.Errorf("sent %v, want a Release and an Acquire", d.Commands)
		}
		wg.Go(func() { turn(mu) })
		synctest.Wait()
		l.Release(background)
		wg.Wait()
	})
}

// Close notifies a holder that got the key by a hand-off, and ends all waits in this process's queue.
func TestCloseDuringHandOffs(t *testing.T) {
	for range trials() / 20 {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					mu := s.Mutex("k")
					for {
						if err := mu.LockContext(background); errors.Is(err, dsync.ErrClosed) {
							return
						} else if err != nil {
							t.Errorf("%d: %v", i, err)
							return
						}
						time.Sleep(time.Millisecond)
						mu.Unlock()
					}
				})
			}
			time.Sleep(30*time.Millisecond + 500*time.Microsecond)
			if err := s.Close(background); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if h := holders(t, store, "k"); len(h) != 0 {
				t.Errorf("holders left behind: %v", h)
			}
		})
	}
}
