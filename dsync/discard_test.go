package dsync_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// again returns a store that executes each selected Acquire once more, the given time after it was sent.
func again(t *testing.T, store driver.Store, after time.Duration, of func(dsynctest.Request) bool) *dsynctest.Faulty {
	return newFaulty(t, store, func(r dsynctest.Request) (f dsynctest.Fault) {
		if r.Method == dsynctest.MethodAcquire && of(r) {
			f.Again = after
		}
		return f
	})
}

// Promise 4: the network can deliver a request a second time after its claim was released or given up. Even if the
// session is never used again, the key does not stay held by a claim that nobody owns.
func TestCopyOfARequestHoldsNothing(t *testing.T) {
	const after = ttl / 10 // less than an attempt may take
	always := func(dsynctest.Request) bool { return true }
	cases := []struct {
		name string
		of   func(dsynctest.Request) bool
		opt  dsync.Options
		use  func(t *testing.T, s, other *dsync.Session)
	}{
		{"Unlock", always, dsync.Options{AlwaysListen: true}, func(t *testing.T, s, _ *dsync.Session) { turn(s.Mutex("k")) }},
		{"RUnlock", always, dsync.Options{}, func(t *testing.T, s, _ *dsync.Session) { turn(s.RWMutex("k").RLocker()) }},
		{"a lease's Release", always, dsync.Options{}, func(t *testing.T, s, _ *dsync.Session) {
			l, err := s.Mutex("k").Lease(background, time.Hour)
			noErr(t, err)
			if err := l.Release(background); err != nil {
				t.Error(err)
			}
		}},
		{"a try that failed", always, dsync.Options{}, func(t *testing.T, s, other *dsync.Session) {
			mu := other.Mutex("k")
			lock(t, mu)
			if s.Mutex("k").TryLock() {
				t.Error("locked a key that another session holds")
			}
			mu.Unlock()
		}},
		{"a wait that was given up", always, dsync.Options{}, func(t *testing.T, s, other *dsync.Session) {
			mu := other.Mutex("k")
			lock(t, mu)
			ctx, cancel := context.WithTimeout(background, after/2)
			defer cancel()
			wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
			mu.Unlock()
		}},
		{"ReleaseAfter a moment", always, dsync.Options{}, func(t *testing.T, s, _ *dsync.Session) {
			if err := take(t, s.Mutex("k").Hold).ReleaseAfter(background, after/2); err != nil {
				t.Error(err)
			}
		}},
		{"a request that replaces another", func(r dsynctest.Request) bool { return r.Replaces != "" }, dsync.Options{HandOffTime: -1},
			func(t *testing.T, s, _ *dsync.Session) {
				mu := s.Mutex("k")
				lock(t, mu)
				done := make(chan struct{})
				go func() { defer close(done); turn(s.Mutex("k")) }()
				synctest.Wait()
				mu.Unlock()
				<-done
			}},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			s, other := newSession(t, again(t, memory, after, tc.of), &tc.opt), newSession(t, memory, nil)
			if _, err := engine.Of(s).Register(background); err != nil {
				t.Fatal(err)
			}
			tc.use(t, s, other)
			time.Sleep(ttl)
			for _, h := range holders(t, memory, "k") {
				t.Errorf("the key is held by claim %s, which nobody owns", h.Claim)
			}
			if n := queueLength(t, memory, "k"); n > 0 {
				t.Errorf("%d claims are left in the queue", n)
			}
		})
	}
}

// docs/guarantees.md: a late copy of a request is given up within two attempts and the margin after the request could
// join no more, however seldom heartbeats are.
func TestLateCopyIsGivenUpInTime(t *testing.T) {
	for _, ttl := range []time.Duration{ttl, 2 * time.Minute, 10 * time.Minute} {
		inBubble(t, ttl.String(), func(t *testing.T) {
			memory, attempt := dsynctest.NewMemory(), min(ttl/6, 5*time.Second)
			again := newFaulty(t, memory, func(r dsynctest.Request) (f dsynctest.Fault) {
				if r.Method == dsynctest.MethodAcquire && r.Key == "k" {
					f.Again = attempt * 4 / 5
				}
				return f
			})
			s, other := newSession(t, again, &dsync.Options{TTL: ttl}), newSession(t, memory, &dsync.Options{TTL: ttl})
			turn(s.Mutex("other"))
			began := time.Now()
			turn(s.Mutex("k"))
			time.Sleep(attempt * 9 / 10)
			if len(holders(t, memory, "k")) == 0 {
				t.Fatal("no copy has joined, so this tests nothing")
			}
			lock(t, other.Mutex("k"))
			if took, most := time.Since(began), 3*attempt+s.Options().Margin+time.Second/10; took > most {
				t.Errorf("the key was free %v after the request, want at most %v", took, most)
			}
		})
	}
}

// One command discards up to 1,000 claims that are due, even if they are of different keys. A claim needs no Discard if
// it was held for so long that no copy of its request can still join the queue.
func TestClaimsAreDiscardedTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		long := s.Mutex("long")
		lock(t, long)
		time.Sleep(ttl)
		before := memory.Counts()
		long.Unlock()
		for i := range 50 {
			turn(s.Mutex(string(rune('a' + i))))
			time.Sleep(ttl / 600)
		}
		time.Sleep(ttl)
		got := memory.Counts().Since(before)
		if n := got.Commands[dsynctest.MethodDiscard]; n != 1 {
			t.Errorf("%d Discards for 50 claims that were released within a twelfth of the TTL, want 1", n)
		}
		if want := 2*50 + 1 + got.Commands[dsynctest.MethodHeartbeat]; got.Writes != want {
			t.Errorf("%d writes, want %d: none for claims that the store does not have", got.Writes, want)
		}
	})
}

// A session remembers released claims until it has discarded them. Its Discards keep up with any number of claims: at
// any time, it remembers only claims that were released within the time of the last two attempts and two margins.
func TestManyClaimsAreDiscarded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		const claims, inOne = 80_000, 1000
		for range claims {
			turn(s.Mutex("k"))
			time.Sleep(2 * ttl / claims)
		}
		busy := memory.Counts()
		time.Sleep(ttl)
		after := memory.Counts().Since(busy).Commands[dsynctest.MethodDiscard]
		if n := busy.Commands[dsynctest.MethodDiscard] + after; n < claims/inOne || n > claims/inOne*6/5 {
			t.Errorf("%d Discards for %d claims, want one for every %d", n, claims, inOne)
		}
		if after > claims/inOne/4 { // an attempt is a sixth of the TTL, and a margin a sixtieth; not each command is full
			t.Errorf("%d Discards afterwards: more claims were remembered than were released within two attempts and two margins", after)
		}
	})
}

// A claim is not discarded if the store reports that no copy of its request can join.
func TestFinalRequestsAreNotDiscarded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, finalStore{memory}, nil)
		turn(s.Mutex("k"))
		time.Sleep(2 * ttl)
		if n := memory.Counts().Commands[dsynctest.MethodDiscard]; n != 0 {
			t.Errorf("%d Discards, want 0", n)
		}
	})
}

// A finalStore sets State.Final in every reply: no copy of the request can join.
type finalStore struct{ *dsynctest.Memory }

func (s finalStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	done, err := s.Memory.Edit(ctx, e)
	done.State.Final = true
	return done, err
}

// A Discard is repeated until the store has answered it.
func TestDiscardIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &failingDiscard{Memory: dsynctest.NewMemory()}
		s := newSession(t, again(t, store, ttl/10, func(dsynctest.Request) bool { return true }), nil)
		turn(s.Mutex("k"))
		time.Sleep(2 * ttl)
		if len(holders(t, store, "k")) == 0 {
			t.Fatal("the copy of the request did not arrive")
		}
		store.up.Store(true)
		time.Sleep(ttl / 6)
		if h := holders(t, store, "k"); len(h) > 0 {
			t.Errorf("the key is held by %v", h)
		}
	})
}

// A failingDiscard fails each Discard until up is set.
type failingDiscard struct {
	*dsynctest.Memory
	up atomic.Bool
}

func (s *failingDiscard) Discard(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
	if !s.up.Load() {
		return nil, errors.New("connection refused")
	}
	return s.Memory.Discard(ctx, claims)
}

// If the store's clock steps back by less than the margin, a late request may still acquire the key. Its claim does not
// stay in the store, because the Discard waits until the request can no longer arrive in time.
func TestClockGoesBackBesideALateRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var late atomic.Bool
		f := newFaulty(t, memory, func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodAcquire && late.Swap(false) {
				f.Delay = ttl/6 + margin*2/5 // too late to join if the clock had not stepped back
			}
			return f
		})
		s := newSession(t, f, &dsync.Options{HeartbeatInterval: ttl / 2}) // so long that no heartbeat's reply reveals the step of the clock meanwhile
		turn(s.Mutex("other"))
		late.Store(true)
		ctx, cancel := context.WithTimeout(background, ttl/20)
		defer cancel()
		time.AfterFunc(ttl/30, func() { memory.Skew(-margin * 9 / 10) })
		wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
		time.Sleep(ttl/6 + margin*2/5 - ttl/20 + time.Millisecond) // the request has joined
		if len(holders(t, memory, "k")) == 0 {
			t.Fatal("the late request did not join, so this tests nothing")
		}
		time.Sleep(ttl)
		if h := holders(t, memory, "k"); len(h) > 0 {
			t.Errorf("the key is held by %v", h)
		}
	})
}

// A refuser refuses commands of one method, or some claims of a Discard, until its counter has reached zero.
type refuser struct {
	*dsynctest.Memory
	method string
	key    string // "": any key
	left   *atomic.Int64
}

func (r refuser) refuses(method, key string) error {
	if method == r.method && (r.key == "" || r.key == key) && r.left.Add(-1) >= 0 {
		return fmt.Errorf("%w: not authorized", driver.ErrRefused)
	}
	return nil
}

func (r refuser) Discard(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
	var err error
	claims = slices.DeleteFunc(slices.Clone(claims), func(c driver.Claim) bool {
		no := r.refuses("Discard", c.Key)
		err = cmp.Or(err, no)
		return no != nil
	})
	notices, none := r.Memory.Discard(ctx, claims)
	return notices, cmp.Or(err, none)
}

func (r refuser) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	if err := r.refuses("Heartbeat", ""); err != nil {
		return driver.HeartbeatReply{}, err
	}
	return r.Memory.Heartbeat(ctx, session, given)
}

func (r refuser) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	method := "Release"
	if e.Acquire != nil {
		method = "Acquire"
	}
	if err := r.refuses(method, e.Key()); err != nil {
		return driver.Edited{}, err
	}
	return r.Memory.Edit(ctx, e)
}

// If a fail-over undoes an Unlock, and the store refuses one of the next commands, the key still becomes free soon.
// (B40)
func TestCommandRefusedOnce(t *testing.T) {
	for _, method := range []string{"Acquire", "Release", "Discard", "Heartbeat"} {
		inBubble(t, method, func(t *testing.T) {
			store := refuser{dsynctest.NewMemory(), method, "", new(atomic.Int64)}
			s, other := newSession(t, store, nil), newSession(t, store, nil)
			held := s.Mutex("k")
			lock(t, held)
			store.left.Store(1)
			ctx, cancel := context.WithTimeout(background, time.Second)
			s.Mutex("another").LockContext(ctx) // in the case of Acquire, this request is refused
			cancel()
			held.Unlock()
			store.FailOver()
			wantFreeSoon(t, other, "k")
		})
	}
}

// wantFreeSoon checks that s can lock the key within two TTLs.
func wantFreeSoon(t *testing.T, s *dsync.Session, key string) {
	t.Helper()
	began := time.Now()
	mu := s.Mutex(key)
	lock(t, mu)
	if took := time.Since(began); took > 2*ttl {
		t.Errorf("the key was free only after %v", took)
	}
	mu.Unlock()
}

// Even if the store refuses to discard many claims, the claims of other keys are still discarded. (B40)
func TestRefusedDiscardKeepsNoOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := refuser{dsynctest.NewMemory(), "Discard", "refused", new(atomic.Int64)}
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		store.left.Store(1 << 40)
		for range 1000 { // as many as one command discards
			turn(s.Mutex("refused"))
		}
		turn(s.Mutex("k"))
		store.FailOver()
		wantFreeSoon(t, other, "k")
	})
}

// If a fail-over has undone a claim's release, the store may refuse to discard the claim, perhaps for days, because of
// a missing privilege. Meanwhile each Discard of the session names the claim at most twice: the Discards do not grow
// with each heartbeat. (B40)
func TestRefusedDiscardDoesNotGrow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &countingDiscard{refuser: refuser{dsynctest.NewMemory(), "Discard", "", new(atomic.Int64)}}
		s := newSession(t, store, nil)
		store.left.Store(1 << 40)
		turn(s.Mutex("k"))
		store.FailOver()
		time.Sleep(100 * ttl)
		if n := store.last.Load(); n < 1 || n > 2 { // once because its release was undone, and once because a copy of its request could have arrived
			t.Errorf("the last Discard named %d claims, want only the released one, at most twice", n)
		}
		store.left.Store(0)
		time.Sleep(ttl)
		wantFree(t, store, "k")
	})
}

// A countingDiscard records how many claims the last Discard had.
type countingDiscard struct {
	refuser
	last atomic.Int64
}

func (s *countingDiscard) Discard(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
	s.last.Store(int64(len(claims)))
	return s.refuser.Discard(ctx, claims)
}

// After a claim was given up, a copy of its request makes it join again. The session learns that the claim was granted,
// and releases it. If a second copy then arrives, the key soon becomes free again.
func TestSecondCopyOfAnOrphansRequestHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		store := &firstJoin{Store: memory}
		opt := &dsync.Options{Retention: -1, AlwaysListen: true}
		s, other := newSession(t, store, opt), newSession(t, memory, opt)
		held := other.Mutex("k")
		lock(t, held)
		ctx, cancel := context.WithTimeout(background, ttl/50)
		defer cancel()
		wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
		time.Sleep(ttl / 50)
		if _, err := memory.Edit(background, *store.edit.Load()); err != nil {
			t.Fatal(err)
		}
		held.Unlock() // grants the key to the claim that has joined again
		time.Sleep(ttl / 50)
		wantFree(t, memory, "k")
		if _, err := memory.Edit(background, *store.edit.Load()); err != nil || len(holders(t, memory, "k")) != 1 {
			t.Fatalf("the second copy did not get the key: %v", err)
		}
		began := time.Now()
		lock(t, held)
		if took := time.Since(began); took > ttl {
			t.Errorf("the key was free only after %v, although nobody used it", took)
		}
		held.Unlock()
	})
}

// A firstJoin records the first request to join.
type firstJoin struct {
	driver.Store
	edit atomic.Pointer[driver.Edit]
}

func (s *firstJoin) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire != nil {
		s.edit.CompareAndSwap(nil, &e)
	}
	return s.Store.Edit(ctx, e)
}
