package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// heldKeys returns the keys that somebody holds, according to the store.
func heldKeys(t *testing.T, store *dsynctest.Memory, keys ...string) (held []string) {
	t.Helper()
	for _, key := range keys {
		if len(holders(t, store, key)) > 0 {
			held = append(held, key)
		}
	}
	return held
}

func wantHeld(t *testing.T, when string, store *dsynctest.Memory, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := heldKeys(t, store, "a", "b", "c"); !slices.Equal(got, want) {
		t.Errorf("%s: %v are held, want %v", when, got, want)
	}
}

// mutexes returns a Mutex for each key.
func mutexes(s *dsync.Session, keys ...string) (all []dsync.Locker) {
	for _, key := range keys {
		all = append(all, s.Mutex(key))
	}
	return all
}

// lockAll locks all of the given Mutexes within five minutes.
func lockAll(t *testing.T, all ...dsync.Locker) (held context.Context, unlock func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, 5*time.Minute)
	t.Cleanup(cancel)
	held, unlock, err := dsync.LockAll(ctx, all...)
	noErr(t, err)
	return held, unlock
}

// A lockedAll holds the results of a LockAll.
type lockedAll struct {
	held   context.Context
	unlock func() error
	err    error
}

// lockingAll calls LockAll in the background, and sends its results on the channel.
func lockingAll(ctx context.Context, all ...dsync.Locker) <-chan lockedAll {
	done := make(chan lockedAll, 1)
	go func() {
		var l lockedAll
		l.held, l.unlock, l.err = dsync.LockAll(ctx, all...)
		done <- l
	}()
	return done
}

// LockAll locks in the order of the keys, regardless of the order of its arguments. While it waits for a key, it
// holds all earlier keys and no later ones.
func TestLockAllLocksInOneOrder(t *testing.T) {
	for _, keys := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "b", "a", "c"}} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s, other := newSession(t, store, nil), newSession(t, store, nil)
			mu := other.Mutex("b")
			lock(t, mu)
			locked := lockingAll(background, mutexes(s, keys...)...)
			wantHeld(t, "while it waits for b", store, "a", "b")
			mu.Unlock()
			l := <-locked
			if l.err != nil {
				t.Fatal(l.err)
			}
			wantHeld(t, "locked", store, "a", "b", "c")
			if err := l.held.Err(); err != nil || dsync.HoldFrom(l.held) != nil {
				t.Errorf("the context has ended with %v, or has the hold of one of the locks: %v", err, dsync.HoldFrom(l.held))
			}
			if err := l.unlock(); err != nil || context.Cause(l.held) != context.Canceled {
				t.Errorf("unlock: %v; the cause of the context's end: %v; want nil, and context.Canceled", err, context.Cause(l.held))
			}
			wantHeld(t, "unlocked", store)
			if err := l.unlock(); err != nil {
				t.Errorf("a second unlock: %v", err)
			}
		})
	}
}

// TryLockAll locks all of its arguments or none. Its error names a key that somebody else holds.
func TestTryLockAllLocksAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		slow := newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{Delay: 10 * time.Millisecond} })
		s, other := newSession(t, slow, nil), newSession(t, store, &dsync.Options{Host: "elsewhere"})
		all := mutexes(s, "a", "b", "c")
		for _, key := range []string{"a", "b", "c"} {
			mu := other.Mutex(key)
			lock(t, mu)
			blocker := (*dsync.HeldError)(nil)
			held, _, err := dsync.TryLockAll(background, all...)
			if !errors.As(err, &blocker) || blocker.Key != key || blocker.Host != "elsewhere" || held.Err() == nil {
				t.Errorf("with %q held: %v, and the context's error %v", key, err, held.Err())
			}
			time.Sleep(time.Second) // the failed call's releases continue in the background
			if got := heldKeys(t, store, "a", "b", "c"); !slices.Equal(got, []string{key}) {
				t.Errorf("with %q held, a failed TryLockAll leaves %v held", key, got)
			}
			mu.Unlock()
		}
		_, unlock, err := dsync.TryLockAll(background, all...)
		if err != nil {
			t.Fatalf("TryLockAll of free keys: %v", err)
		}
		if _, _, err := dsync.TryLockAll(background, mutexes(other, "c", "d")...); err == nil || len(holders(t, store, "d")) > 0 {
			t.Error("two calls with a key in common both succeeded, or one locked only some of its keys")
		}
		if err := unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A LockAll that fails leaves nothing locked.
func TestLockAllLocksAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		mu := other.Mutex("c")
		lock(t, mu)
		all := mutexes(s, "a", "b", "c")
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		held, unlock, err := dsync.LockAll(ctx, all...)
		wantErr(t, "LockAll", err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), `"c"`) || held.Err() == nil || unlock() != nil {
			t.Errorf("LockAll: %v; the context's error: %v; want an error that names c, a context that has ended, and an unlock that returns nil", err, held.Err())
		}
		wantHeld(t, "its ctx ended", store, "c")
		mu.Unlock()

		rw := other.RWMutex("b")
		rlock(t, rw)
		_, _, err = dsync.LockAll(background, all...)
		wantErr(t, "with b as another kind", err, dsync.ErrMismatch)
		wantHeld(t, "b is of another kind", store, "b")

		lock(t, other.Mutex("c"))
		locked := lockingAll(background, mutexes(s, "a", "c")...)
		synctest.Wait()
		s.Close(background)
		if l := <-locked; !errors.Is(l.err, dsync.ErrClosed) {
			t.Errorf("LockAll, when the session was closed: %v, want ErrClosed", l.err)
		}
		wantHeld(t, "closed", store, "b", "c")
	})
}

// If one hold is lost, the context that LockAll returned ends. The other keys stay held until unlock is called.
// unlock reports the loss.
func TestLockAllIsLostWhenOneIs(t *testing.T) {
	for _, key := range []string{"a", "b", "c"} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s, other := newSession(t, store, nil), newSession(t, store, nil)
			all := mutexes(s, "a", "b", "c")
			held, unlock := lockAll(t, all...)
			time.Sleep(2 * time.Second) // the session listens now
			broken := async(func() error { return admin.New(other).Break(background, key) })
			synctest.Wait()
			if held.Err() == nil || !isClosed(held.Done()) {
				t.Errorf("%q is lost, but the context has not ended", key)
			}
			wantErr(t, "the cause", context.Cause(held), dsync.ErrLost, dsync.ErrRevoked)
			wantHeld(t, "before unlock", store, "a", "b", "c")
			wantErr(t, "unlock", unlock(), dsync.ErrLost, dsync.ErrRevoked)
			if e := <-broken; e.err != nil {
				t.Error(e.err)
			}
			wantHeld(t, "after unlock", store)
			held, unlock = lockAll(t, all...)
			if err := held.Err(); err != nil {
				t.Errorf("a loss in the first LockAll has ended the context of the second: %v", err)
			}
			if err := unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	bubble(t, func(t *testing.T) { // all holds are lost with the session
		memory := dsynctest.NewMemory()
		store := newFaulty(t, memory, nil)
		held, unlock := lockAll(t, mutexes(newSession(t, store, nil), "a", "b")...)
		start := time.Now()
		store.Cut()
		<-held.Done()
		if d := time.Since(start); d > lease {
			t.Errorf("the hold was lost %v after the last heartbeat, want at most %v", d, lease)
		}
		store.Heal()
		wantErr(t, "unlock", unlock(), dsync.ErrLost, dsync.ErrNotRenewed)
	})
}

// If LockAll loses a hold while it waits for another key, it stops waiting, releases all holds and starts over. So
// while it waits for a key, it holds all earlier keys. When it returns, it holds all keys or none.
func TestLockAllBeginsAgainAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		c := other.Mutex("c")
		lock(t, c)
		locked := lockingAll(background, mutexes(s, "a", "b", "c")...)
		wantHeld(t, "waiting for c", store, "a", "b", "c")
		a := take(t, other.Mutex("a").ForceHold)
		wantHeld(t, "a is lost", store, "a", "c")
		if len(locked) > 0 || queueLength(t, store, "c") > 0 {
			t.Errorf("LockAll still waits for c without holding a: %d in the queue", queueLength(t, store, "c"))
		}
		c.Unlock()
		wantHeld(t, "c is free", store, "a")
		a.Release(background)
		l := <-locked
		if l.err != nil || l.held.Err() != nil {
			t.Fatalf("LockAll: %v; the context's error: %v; want neither", l.err, l.held.Err())
		}
		if err := l.unlock(); err != nil {
			t.Error(err)
		}
	})
}

// old is a lock that is not a Mutex.
type old struct {
	locked bool
	lost   chan struct{}
	order  *[]string
}

func (o *old) LockContext(context.Context) error {
	o.locked = true
	*o.order = append(*o.order, "old")
	return nil
}
func (o *old) TryLock() bool {
	got := !o.locked
	o.locked = true
	return got
}
func (o *old) Unlock()               { o.locked = false }
func (o *old) Lost() <-chan struct{} { return o.lost }

// A noted is a Mutex whose LockContext first appends the name to the order.
type noted struct {
	*dsync.Mutex
	name  string
	order *[]string
}

func (n noted) LockContext(ctx context.Context) error {
	*n.order = append(*n.order, n.name)
	return n.Mutex.LockContext(ctx)
}

// Locks that are not Mutexes are locked first, in the order of the arguments.
func TestLockAllOtherLocksFirst(t *testing.T) {
	pair(t, func(t *testing.T, _ *dsynctest.Memory, a, _ *dsync.Session) {
		var order []string
		o := &old{lost: make(chan struct{}), order: &order}
		x := noted{a.Mutex("x"), "x", &order}
		_, unlock, err := dsync.LockAll(t.Context(), a.RWMutex("b"), x, o, a.Mutex("a"))
		noErr(t, err)
		if len(order) != 2 || order[0] != "x" || order[1] != "old" {
			t.Errorf("the locks were locked in the order %v, want x and old", order)
		}
		if err := unlock(); err != nil || o.locked || !a.Mutex("x").TryLock() {
			t.Errorf("unlock: %v, old is locked: %t; want no error, and both locks free", err, o.locked)
		}
	})
}

// If a lock that is not a Mutex is lost, the context ends, and unlock returns ErrLost, also if it is called again.
func TestLockAllLosesAnotherLock(t *testing.T) {
	pair(t, func(t *testing.T, _ *dsynctest.Memory, a, b *dsync.Session) {
		o := &old{lost: make(chan struct{}), order: new([]string)}
		held, unlock := lockAll(t, o, a.Mutex("a"))
		close(o.lost)
		<-held.Done()
		wantErr(t, "the cause", context.Cause(held), dsync.ErrLost)
		for range 2 {
			wantErr(t, "unlock", unlock(), dsync.ErrLost)
		}
		if o.locked || !b.Mutex("a").TryLock() {
			t.Error("a key stays locked after the loss")
		}
	})
}

// If unlock can't release a lock, it logs that, as Mutex.Unlock does.
func TestLockAllLogsWhatIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer store.Close()
		s, err := dsync.New(store, &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		noErr(t, err)
		_, unlock, err := dsync.LockAll(t.Context(), s.Mutex("a"), s.Mutex("b"))
		noErr(t, err)
		store.Cut()
		if err := unlock(); err != nil {
			t.Error(err)
		}
		store.Heal()
		s.Close(t.Context())
		synctest.Wait() // until all logging is done
		for _, key := range []string{"a", "b"} {
			if want := "dsync: Unlock\" key=" + key; !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, &log)
			}
		}
	})
}

// TryLockAll locks all or none, with locks that are not Mutexes, too. Each of them needs a TryLock.
func TestTryLockAllOfOtherLocks(t *testing.T) {
	pair(t, func(t *testing.T, _ *dsynctest.Memory, a, b *dsync.Session) {
		o := &old{lost: make(chan struct{}), order: new([]string)}
		theirs := b.Mutex("b")
		theirs.Lock()
		wantErr(t, "with b held", errAll(dsync.TryLockAll(t.Context(), a.Mutex("b"), o, a.Mutex("a"))), dsync.ErrHeld)
		if o.locked || !b.Mutex("a").TryLock() {
			t.Error("some of the locks stay locked")
		}
		theirs.Unlock()
		o.locked = true
		wantErr(t, "with the other lock held", errAll(dsync.TryLockAll(t.Context(), a.Mutex("b"), o)), dsync.ErrHeld)
		if err := errAll(dsync.TryLockAll(t.Context(), struct{ dsync.Locker }{o})); err == nil || errors.Is(err, dsync.ErrHeld) {
			t.Errorf("TryLockAll with a lock without TryLock: %v", err)
		}
	})
}

func errAll(_ context.Context, _ func() error, err error) error { return err }

// For one minute, or for ten with LEASEHOLD_LONG, 100 processes each lock 5 of 20 keys at a time. Meanwhile some are
// cut off, and others crash. No key ever has two holders, the processes never stall, and no deadlock is reported.
func TestLockAllNeverStalls(t *testing.T) {
	testkit.Large(t)
	const processes, keys, each = 100, 20, 5
	minutes, draws := testkit.Rounds(1, 10), testkit.Draw(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		ctx, stop := context.WithCancel(background)
		var busy [keys]atomic.Int32
		var turns, losses, deadlocks atomic.Int64
		var longest time.Duration
		var mu sync.Mutex
		var faulty []*dsynctest.Faulty
		var wg sync.WaitGroup
		for i := range processes {
			f := newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{Delay: time.Duration(draws.IntN(2000)) * time.Microsecond}
			})
			faulty = append(faulty, f)
			s := newSession(t, f, &dsync.Options{Hooks: &dsync.Hooks{Deadlock: func(_, _ []string) { deadlocks.Add(1) }}})
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for ctx.Err() == nil {
					var names []string
					mine := r.Perm(keys)[:each]
					for _, k := range mine {
						names = append(names, fmt.Sprint("key ", k))
					}
					start := time.Now()
					held, unlock, err := dsync.LockAll(ctx, mutexes(s, names...)...)
					if err != nil {
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(start))
					mu.Unlock()
					turns.Add(1)
					for _, k := range mine {
						if n := busy[k].Add(1); n > 1 {
							t.Errorf("key %d is held by %d processes", k, n)
						}
					}
					crashes := r.IntN(300) == 0
					if crashes {
						f.Cut()
						<-held.Done()
						losses.Add(1)
					} else {
						time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
					}
					for _, k := range mine {
						busy[k].Add(-1)
					}
					unlock()
					if crashes {
						time.Sleep(ttl)
						f.Heal()
					}
				}
			})
		}
		for range minutes * 6 {
			before := turns.Load()
			time.Sleep(10 * time.Second)
			if turns.Load() == before {
				t.Errorf("within ten seconds no process has locked its keys")
			}
			some := faulty[draws.IntN(processes)]
			some.Cut()
			go func() {
				time.Sleep(2 * ttl)
				some.Heal()
			}()
		}
		time.Sleep(3 * ttl)
		stop()
		wg.Wait()
		t.Logf("%d turns in %d min, the longest wait %v, %d losses", turns.Load(), minutes, longest, losses.Load())
		if losses.Load() == 0 {
			t.Error("no process crashed; want at least one crash")
		}
		if deadlocks.Load() > 0 {
			t.Errorf("%d deadlocks were reported", deadlocks.Load())
		}
	})
}
