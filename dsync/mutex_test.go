package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

var _ interface {
	sync.Locker
	TryLock() bool
} = (*dsync.Mutex)(nil)

// B01: when many processes start at the same time, the key never has two holders.
func TestMutexExcludesProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		const processes, rounds = 50, 4
		var (
			inside, total int
			tokens        = map[int64]bool{}
			wg            sync.WaitGroup
		)
		for range processes {
			mu := newSession(t, store, nil).Mutex("k")
			wg.Go(func() {
				for range rounds {
					mu.Lock()
					if inside++; inside != 1 {
						t.Errorf("%d goroutines hold the mutex at once", inside)
					}
					if tokens[mu.Token()] {
						t.Errorf("token %d given twice", mu.Token())
					}
					tokens[mu.Token()] = true
					time.Sleep(time.Millisecond)
					total++
					inside--
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if total != processes*rounds || len(tokens) != total {
			t.Errorf("%d holds with %d tokens, want %d", total, len(tokens), processes*rounds)
		}
	})
}

// B01 for tries: of 50 concurrent tries exactly one succeeds.
func TestTryLockOneOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var mus []*dsync.Mutex
		for range 50 {
			mus = append(mus, newSession(t, store, nil).Mutex("k"))
		}
		for range 20 {
			var wg sync.WaitGroup
			won := make(chan *dsync.Mutex, len(mus))
			for _, mu := range mus {
				wg.Go(func() {
					if mu.TryLock() {
						won <- mu
					}
				})
			}
			wg.Wait()
			if len(won) != 1 {
				t.Fatalf("%d of %d tries succeeded, want 1", len(won), len(mus))
			}
			(<-won).Unlock()
		}
	})
}

// B26, promise 8: a session's Mutexes of the same key exclude each other, and only one of them at a time is in the
// store's queue.
func TestMutexExcludesGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		elsewhere := newSession(t, store, nil).Mutex("k")
		elsewhere.Lock()
		var wg sync.WaitGroup
		inside := 0
		for range 1000 {
			wg.Go(func() {
				mu := s.Mutex("k")
				mu.Lock()
				defer mu.Unlock()
				if inside++; inside != 1 {
					t.Errorf("%d goroutines hold the mutex at once", inside)
				}
				inside--
			})
		}
		synctest.Wait()
		if n := queueLength(t, store, "k"); n != 1 {
			t.Errorf("1000 goroutines of one process have %d claims in the queue, want 1", n)
		}
		if s.Mutex("k").TryLock() {
			t.Error("TryLock succeeded while others wait")
		}
		elsewhere.Unlock()
		wg.Wait()
	})
}

// Promise 6: waiters are served in FIFO order.
func TestMutexServesInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		first := newSession(t, store, nil).Mutex("k")
		first.Lock()
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			mu := newSession(t, store, nil).Mutex("k")
			wg.Go(func() {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
			time.Sleep(10 * time.Millisecond)
		}
		first.Unlock()
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("waiters were served in the order %v", order)
			}
		}
	})
}

// L2: if the trying session itself holds the key or waits for it, the error of the try says so. It names no other
// session.
func TestHeldErrorNamesThisProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Host: "a.example"})
		try := func(key string) *dsync.HeldError {
			t.Helper()
			err := errOf(s.Mutex(key).TryHold(background))
			var held *dsync.HeldError
			if !errors.As(err, &held) || !errors.Is(err, dsync.ErrHeld) {
				t.Fatalf("error is %v, want a *HeldError", err)
			}
			if !held.Here || held.Key != key || held.Host != "a.example" || held.PID != os.Getpid() || strings.Contains(err.Error(), "another") {
				t.Errorf("error %q is %+v, want one that names this process, %d on a.example", err, held, os.Getpid())
			}
			return held
		}
		lock(t, s.Mutex("mine"))
		if held := try("mine"); held.Session != s.ID() || held.Since.IsZero() || !strings.Contains(held.Error(), "held by this process") {
			t.Errorf("TryHold of a key that this process holds: %+v: %v", held, held)
		}
		lock(t, newSession(t, store, nil).Mutex("theirs"))
		ctx, cancel := context.WithCancel(background)
		go s.Mutex("theirs").LockContext(ctx)
		synctest.Wait()
		if held := try("theirs"); held.Session != "" || !strings.Contains(held.Error(), "waited for by this process") {
			t.Errorf("TryHold of a key that this process waits for: %+v: %v; want no session, and an error that says that this process waits", held, held)
		}
		cancel()
	})
}

// B25: Until in the error of a try is a whole number of milliseconds. If the session has just read the holder's record,
// the Until of the error equals the Until in the key's status.
func TestHeldErrorSaysUntilAsTheStatusDoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const odd = 1234567 * time.Nanosecond
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		lock(t, a.Mutex("k"))
		off := func(when string) time.Duration {
			t.Helper()
			var held *dsync.HeldError
			err := errOf(b.Mutex("k").TryHold(background))
			st, bad := admin.New(b).Status(background, "k")
			if !errors.As(err, &held) || bad != nil || held.Until.Nanosecond()%1e6 != 0 {
				t.Fatalf("%s: TryHold: %v, want a *HeldError with an Until in whole milliseconds; Status: %v", when, err, bad)
			}
			return held.Until.Sub(st.Holders[0].Until)
		}
		for range 3 {
			time.Sleep(odd)
			lock(t, b.Mutex(fmt.Sprint("tells the time ", time.Now())))
			if d := off("just read"); d != 0 {
				t.Errorf("the error's Until is off by %v", d)
			}
		}
		// During this long wait, the waiter learns from the reply to an Expire when the holder's session
		// lapses.
		ctx, cancel := context.WithTimeout(background, 3*ttl+odd)
		defer cancel()
		wantErr(t, "a wait", b.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
		off("after an Expire")
	})
}

// L1, L2, B25: the key's record and the error of a try name the holder, and show when its hold began.
func TestHeldErrorNamesHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := newSession(t, store, &dsync.Options{Name: "pod-7", Host: "a.example", App: "v1", Meta: map[string]string{"zone": "x"}})
		b := newSession(t, store, &dsync.Options{Host: "b.example"})
		lock(t, a.Mutex("k"))

		err := errOf(b.Mutex("k").TryHold(background))
		wantErr(t, "TryHold", err, dsync.ErrHeld)
		var held *dsync.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("error is %T, want *HeldError", err)
		}
		h := holders(t, store, "k")[0]
		if held.Key != "k" || held.Name != "pod-7" || held.Host != "a.example" || held.PID != os.Getpid() || held.Session != a.ID() || !held.Since.Equal(h.Since) {
			t.Errorf("error is %+v; the holder is %+v", held, h)
		}
		for _, part := range []string{"k", "pod-7 (process ", "a.example", fmt.Sprint(os.Getpid()), h.Since.UTC().Format("2006-01-02T15:04:05.000Z"), held.Until.UTC().Format("2006-01-02T15:04:05.000Z")} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not name %q", err, part)
			}
		}
		if held.Here {
			t.Errorf("the error says that the key is held here, but another session holds it: %+v", held)
		}
		m, now, err := storecmd.Members(background, store, h.Session)
		if err != nil || len(m) != 1 {
			t.Fatalf("Members: %v, %v", m, err)
		}
		if m[0].App != "v1" || m[0].Meta["zone"] != "x" || m[0].TTL != ttl || now.Sub(m[0].LastHeartbeat) > ttl {
			t.Errorf("the holder's record is %+v", m[0])
		}
		if !held.Until.Equal(m[0].LastHeartbeat.Add(ttl)) {
			t.Errorf("held until %v; the last heartbeat was at %v", held.Until, m[0].LastHeartbeat)
		}

		// Session a lives, and holds these keys for a fixed time.
		if _, err := a.Mutex("leased").Lease(background, time.Minute); err != nil {
			t.Fatal(err)
		}
		kept := a.Mutex("kept")
		keptHold := take(t, kept.Hold)
		noErr(t, keptHold.ReleaseAfter(background, time.Minute))
		c := newSession(t, store, nil) // this session knows of no other session yet
		for _, key := range []string{"leased", "kept"} {
			err := errOf(c.Mutex(key).TryHold(background))
			if !errors.As(err, &held) || held.Name != "pod-7" || held.Host != "a.example" || held.PID != os.Getpid() || held.Until.IsZero() || held.Here {
				t.Errorf("%s: error is %+v", key, err)
			}
		}
		if err := errOf(a.Mutex("kept").TryHold(background)); !errors.As(err, &held) || !held.Here || held.Session != a.ID() || held.Name != "pod-7" || held.Host != "a.example" || held.Until.IsZero() {
			t.Errorf("kept by this very process: error is %+v", err)
		}

		// The trying process itself holds this key.
		err = errOf(a.Mutex("k").TryHold(background))
		if !errors.As(err, &held) || held.Host != "a.example" || held.Session != a.ID() {
			t.Errorf("held in this process: error is %+v", err)
		}
	})
}

// L3, B27: LockContext returns when the holder unlocks, or with ctx's error when ctx ends. If ctx ends after the grant,
// the hold goes on.
func TestLockContextBoundsTheWaitOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil).Mutex("k"), newSession(t, store, nil).Mutex("k")
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		noErr(t, a.LockContext(ctx))
		start := time.Now()
		err := b.LockContext(ctx)
		wantErr(t, "LockContext at its limit", err, context.DeadlineExceeded)
		if errors.Is(err, dsync.ErrHeld) {
			t.Errorf("the error of a wait that timed out is ErrHeld: %v", err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("waited %v, want until the limit of 1s", d)
		}
		time.Sleep(5 * ttl)
		if isClosed(a.Lost()) || a.Token() == 0 {
			t.Error("the hold ended with LockContext's ctx")
		}
		cause := errors.New("never mind")
		cctx, ccancel := context.WithCancelCause(background)
		time.AfterFunc(time.Second, func() { ccancel(cause) })
		wantErr(t, "LockContext cancelled", b.LockContext(cctx), context.Canceled, cause)

		time.AfterFunc(time.Second, a.Unlock)
		lock(t, b)
		b.Unlock()
	})
}

func TestCheckKey(t *testing.T) {
	for _, test := range []struct {
		key string
		ok  bool
	}{
		{"", false}, {strings.Repeat("x", 512), true}, {strings.Repeat("x", 513), false},
		{"a\xffb", false}, {"a\x00b", false}, {"$where", true}, {"a.b/c:d e", true}, {"ключ", true},
	} {
		err := dsync.CheckKey(test.key)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, dsync.ErrInvalidKey) {
			t.Errorf("CheckKey(%q) = %v, want ok: %t", test.key, err, test.ok)
		}
	}
}

func TestUnlockedMutex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mu := newSession(t, dsynctest.NewMemory(), nil).Mutex("k")
		if !isClosed(mu.Lost()) || mu.Token() != 0 {
			t.Error("an unlocked Mutex: want a closed Lost and no token")
		}
		mu.Lock()
		lost, token := mu.Lost(), mu.Token()
		if isClosed(lost) || token == 0 {
			t.Error("a locked Mutex: want an open Lost and a token")
		}
		mu.Unlock()
		if !isClosed(lost) {
			t.Error("Unlock left Lost open")
		}
		mu.Lock()
		if isClosed(mu.Lost()) || mu.Token() <= token {
			t.Errorf("the next hold has a closed Lost, or token %d after %d", mu.Token(), token)
		}
		mu.Unlock()
	})
}

// Lost closes before the release is sent, so nobody else can hold the key while Lost is open.
func TestLostClosesBeforeRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var mu *dsync.Mutex
		var lost <-chan struct{}
		store := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease && !isClosed(lost) {
				t.Error("the release was sent before Lost closed")
			}
			return dsynctest.Fault{}
		})
		mu = newSession(t, store, nil).Mutex("k")
		mu.Lock()
		lost = mu.Lost()
		mu.Unlock()
	})
}

// L10: Do releases the key when its function returns, panics or calls Goexit.
func TestDoReleases(t *testing.T) {
	for name, f := range map[string]func(context.Context) error{
		"return": func(context.Context) error { return nil },
		"error":  func(context.Context) error { return errors.ErrUnsupported },
		"panic":  func(context.Context) error { panic("f panics") },
		"Goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() {
					if r := recover(); (r != nil) != (name == "panic") {
						t.Errorf("recovered %v", r)
					}
				}()
				err := s.Mutex("k").Do(background, f)
				if (err != nil) != (name == "error") || err != nil && !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("Do returned %v", err)
				}
			}()
			<-done
			if h := holders(t, store, "k"); len(h) != 0 {
				t.Errorf("still held after Do: %v", h)
			}
			if !s.Mutex("k").TryLock() {
				t.Error("still held here after Do")
			}
		})
	}
}

func TestDoContextEndsOnLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, store, nil)
		wrong := errors.New("work failed")
		type key struct{}
		err := s.Mutex("k").Do(context.WithValue(background, key{}, 7), func(ctx context.Context) error {
			if ctx.Value(key{}) != 7 {
				t.Error("the function's context lacks the values of ctx")
			}
			store.Cut()
			<-ctx.Done()
			wantErr(t, "cause of f's ctx", context.Cause(ctx), dsync.ErrLost)
			wantErr(t, "error of f's ctx", ctx.Err(), context.Canceled)
			store.Heal()
			return wrong
		})
		wantErr(t, "Do", err, wrong, dsync.ErrLost)

		ctx, cancel := context.WithCancel(background)
		err = s.Mutex("k").Do(ctx, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Errorf("Do after its ctx was cancelled inside: %v, want f's nil", err)
		}
	})
}

// B35: with ReleaseAfter, a short job runs only once, although the hosts' clocks differ, and even if its process and
// session end before the key is released.
func TestReleaseAfterKeepsTheKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, err := dsync.New(store, &dsync.Options{TTL: ttl})
		noErr(t, err)
		b := newSession(t, store, nil)
		h := take(t, a.Mutex("k").Hold)
		lost := h.Lost()
		if err := h.ReleaseAfter(background, 0); err == nil {
			t.Error("ReleaseAfter accepted 0")
		}
		noErr(t, h.ReleaseAfter(background, time.Minute))
		start := time.Now()
		if !isClosed(lost) {
			t.Error("ReleaseAfter left Lost open")
		}
		time.Sleep(2 * time.Second)
		if b.Mutex("k").TryLock() || a.Mutex("k").TryLock() {
			t.Fatal("locked while ReleaseAfter kept the key")
		}
		noErr(t, a.Close(background))
		next := b.Mutex("k")
		lock(t, next)
		if d := time.Since(start); d < time.Minute || d > time.Minute+100*time.Millisecond {
			t.Errorf("the key was locked %v after ReleaseAfter(1m)", d)
		}
		next.Unlock()
	})
}

// B08, B22: tokens keep growing even if keys are released and swept. A held key is never swept.
func TestTokensGrowThroughCleanUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{TTL: 5 * time.Minute, Retention: time.Hour})
		kept := s.Mutex("kept")
		kept.Lock()
		mu := s.Mutex("k")
		var last int64
		cleaned := 0
		for i := range 1000 {
			mu.Lock()
			if mu.Token() <= last {
				t.Fatalf("cycle %d: token %d after %d", i, mu.Token(), last)
			}
			last = mu.Token()
			mu.Unlock()
			if i%100 == 99 {
				time.Sleep(3 * time.Hour)
				if len(store.Records()) == 1 {
					cleaned++
				}
			}
		}
		if cleaned != 10 {
			t.Errorf("the idle key was cleaned up %d of 10 times", cleaned)
		}
		if isClosed(kept.Lost()) || len(holders(t, store, "kept")) != 1 {
			t.Error("the held key was swept")
		}
	})
}
