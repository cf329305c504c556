package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

var _ interface {
	sync.Locker
	TryLock() bool
	RLock()
	RUnlock()
	TryRLock() bool
	RLocker() sync.Locker
} = (*dsync.RWMutex)(nil)

// rlock locks rw for reading within five minutes.
func rlock(t testing.TB, rw *dsync.RWMutex) {
	t.Helper()
	locked := make(chan struct{})
	go func() { rw.RLock(); close(locked) }()
	select {
	case <-locked:
	case <-time.After(5 * time.Minute):
		t.Fatal("RLock still waits")
	}
}

// wlock locks rw for writing within five minutes.
func wlock(t testing.TB, rw *dsync.RWMutex) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, 5*time.Minute)
	defer cancel()
	if err := rw.LockContext(ctx); err != nil {
		t.Fatalf("LockContext: %v", err)
	}
}

// within returns a context that ends after five minutes, for waits that must not hang.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(background, 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// wantPanic checks that f panics with a message that contains each string in want.
func wantPanic(t testing.TB, what string, f func(), want ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		msg := fmt.Sprint(recover())
		for _, w := range want {
			if !strings.Contains(msg, w) {
				t.Errorf("%s: panic %q, want one that says %q", what, msg, w)
			}
		}
	}()
	f()
}

// deliveries lists the ways in which waiters can learn of grants. Its values are those of Memory.Polling.
var deliveries = map[string]bool{"notices": false, "polling": true}

// Readers in many processes can hold the key at the same time, but never together with a writer.
func TestReadersHoldTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		const processes, goroutines = 20, 5
		var rws []*dsync.RWMutex
		var readers []*dsync.Hold
		for range processes {
			rw := newSession(t, store, nil).RWMutex("k")
			for range goroutines {
				readers = append(readers, take(t, rw.RHold))
				rws = append(rws, rw)
			}
		}
		writer := newSession(t, store, nil).RWMutex("k")
		locked := make(chan struct{})
		ctx := within(t)
		go func() {
			if err := writer.LockContext(ctx); err != nil {
				t.Errorf("the writer: %v", err)
			}
			close(locked)
		}()
		for _, h := range readers {
			time.Sleep(ttl / 10)
			if isClosed(locked) {
				t.Fatal("a writer holds the key together with readers")
			}
			if isClosed(h.Lost()) || h.Token() == 0 {
				t.Fatal("a reader's hold is over")
			}
			h.Release(background)
		}
		<-locked
		for _, rw := range rws {
			if rw.TryRLock() || rw.TryLock() {
				t.Fatal("TryLock or TryRLock succeeded while a writer held the key")
			}
		}
		writer.Unlock()
	})
}

// Several goroutines in several processes read and write at random times. A writer always holds the key alone, and its
// token is greater than all earlier tokens.
func TestRWMutexExcludes(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			var (
				mu               sync.Mutex
				readers, writers int
				most             int
				written          int64 // greatest token of a writer
				given            int64 // greatest token of a reader or a writer
				wg               sync.WaitGroup
			)
			for p := range 4 {
				s := newSession(t, store, nil)
				shared := s.RWMutex("k")
				for g := range 4 {
					wg.Go(func() {
						for i := range 20 {
							rw := shared
							if g%2 == 0 {
								rw = s.RWMutex("k")
							}
							if (p+g+i)%3 == 0 {
								rw = s.RWMutex("k")
								hold := take(t, rw.Hold)
								mu.Lock()
								if writers++; writers != 1 || readers != 0 {
									t.Errorf("a writer holds the key together with %d writers and %d readers", writers-1, readers)
								}
								if hold.Token() <= given {
									t.Errorf("a writer's token %d after the token %d, want it greater", hold.Token(), given)
								}
								written = max(written, hold.Token())
								given = max(given, hold.Token())
								mu.Unlock()
								time.Sleep(time.Millisecond)
								mu.Lock()
								writers--
								mu.Unlock()
								hold.Release(background)
								continue
							}
							h := take(t, rw.RHold)
							mu.Lock()
							readers++
							most = max(most, readers)
							if writers != 0 {
								t.Error("a reader holds the key together with a writer")
							}
							if h.Token() <= written {
								t.Errorf("a reader's token %d after a writer's %d", h.Token(), written)
							}
							given = max(given, h.Token())
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							readers--
							mu.Unlock()
							h.Release(background)
						}
					})
				}
			}
			wg.Wait()
			if most < 2 {
				t.Errorf("at most %d readers held the key at once, want at least 2", most)
			}
			wantFree(t, store, "k")
		})
	}
}

// The error of a try names the holder if the key is held. If the ctx of a try has ended, the error is that of ctx.
func TestRWMutexTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a := newSession(t, store, &dsync.Options{Host: "a"}).RWMutex("k")
		bs := newSession(t, store, &dsync.Options{Host: "b"})
		b := bs.RWMutex("k")
		wantHeld := func(what string, err error, host string) {
			t.Helper()
			var h *dsync.HeldError
			if !errors.As(err, &h) || !errors.Is(err, dsync.ErrHeld) || h.Host != host || h.Key != "k" || h.Since.IsZero() {
				t.Errorf("%s: %v, want an error that names the holder %s", what, err, host)
			}
		}
		try := func(ctx context.Context, rw *dsync.RWMutex) error {
			_, _, err := dsync.TryLockAll(ctx, rw)
			return err
		}
		if !a.TryLock() {
			t.Error("TryLock failed although the key was free")
		}
		wantHeld("a try beside a writer", try(background, b), "a")
		if b.TryRLock() || a.TryRLock() {
			t.Error("TryRLock succeeded while a writer held the key")
		}
		a.Unlock()
		for _, rw := range []*dsync.RWMutex{b, a, a} {
			if !rw.TryRLock() {
				t.Error("TryRLock failed although only readers held the key")
			}
		}
		wantHeld("a try beside readers", try(background, a), "a") // the error names a local holder first
		a.RUnlock()
		a.RUnlock()
		wantHeld("a try beside a reader", try(background, a), "b")
		b.RUnlock()
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, "a try whose ctx has ended", try(ctx, a), context.Canceled)
		wantErr(t, "RHold", errOf(a.RHold(ctx)), context.Canceled)
	})
}

// A cancelled waiter leaves nothing behind, whether it waited in its process or in the store's queue. The waiters
// behind it continue.
func TestCancelledReadersAndWritersLeaveNothing(t *testing.T) {
	for _, sessions := range []int{1, 2, 3} {
		inBubble(t, fmt.Sprint(sessions, " sessions"), func(t *testing.T) {
			store := dsynctest.NewMemory()
			var rws []*dsync.RWMutex
			for range sessions {
				rws = append(rws, newSession(t, store, nil).RWMutex("k"))
			}
			of := func(i int) *dsync.RWMutex { return rws[i%sessions] }
			rlock(t, of(0))
			time.Sleep(100 * time.Millisecond) // longer than HandOffTime, so that the later readers can't share this hold
			wctx, wcancel := context.WithCancel(background)
			rctx, rcancel := context.WithCancel(background)
			writer, reader, behind := make(chan error), make(chan error), make(chan error)
			go func() { writer <- of(1).LockContext(wctx) }()
			synctest.Wait()
			go func() { reader <- errOf(of(2).RHold(rctx)) }()
			synctest.Wait()
			var last *dsync.Hold
			go func() { behind <- into(&last, of(2).RHold)(within(t)) }()
			synctest.Wait()
			rcancel()
			wantErr(t, "the reader", <-reader, context.Canceled)
			wcancel()
			wantErr(t, "the writer", <-writer, context.Canceled)
			if err := <-behind; err != nil { // only the cancelled writer kept the reader waiting
				t.Errorf("the reader behind: %v", err)
			}
			last.Release(background)
			of(0).RUnlock()
			synctest.Wait()
			wantFree(t, store, "k")
			wlock(t, of(0))
			of(0).Unlock()
		})
	}
}

func TestRWMutexMisuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		rw := s.RWMutex("k")
		rlock(t, rw)
		rw.RUnlock()
		wantPanic(t, "RUnlock", rw.RUnlock, "not read-locked", `"k"`)
		rlock(t, rw)
		wantPanic(t, "Unlock", rw.Unlock, "unlocked rwmutex")
		rw.RUnlock()
		wlock(t, rw)
		wantPanic(t, "RUnlock", rw.RUnlock, "not read-locked")
		rw.Unlock()
		wantPanic(t, "RWMutex", func() { s.RWMutex("") }, "1 to 512 bytes")
		var zero dsync.RWMutex
		for what, f := range map[string]func(){
			"Lock":           zero.Lock,
			"TryLock":        func() { zero.TryLock() },
			"LockContext":    func() { zero.LockContext(background) },
			"Hold":           func() { zero.Hold(background) },
			"RHold":          func() { zero.RHold(background) },
			"Unlock":         zero.Unlock,
			"Do":             func() { zero.Do(background, nil) },
			"RLock":          zero.RLock,
			"TryRLock":       func() { zero.TryRLock() },
			"RUnlock":        zero.RUnlock,
			"RLocker().Lock": func() { zero.RLocker().Lock() },
		} {
			wantPanic(t, what, f, "zero RWMutex", "Session.RWMutex")
		}
	})
}

func TestRLocker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		rw, other := newSession(t, store, nil).RWMutex("k"), newSession(t, store, nil).RWMutex("k")
		r := rw.RLocker()
		r.Lock()
		if other.TryLock() || !other.TryRLock() {
			t.Error("RLocker's Lock did not lock for reading")
		}
		other.RUnlock()
		r.Unlock()
		if !other.TryLock() {
			t.Error("RLocker's Unlock did not unlock")
		}
		other.Unlock()
	})
}

// Writers of one process hand off the key to each other, each with a greater token. A reader that follows them has an
// even greater token.
func TestWritersHandOffWithGreaterTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		var (
			tokens []int64
			wg     sync.WaitGroup
		)
		first := s.RWMutex("k")
		firstHold := take(t, first.Hold)
		tokens = append(tokens, firstHold.Token())
		for range 50 {
			wg.Go(func() {
				h := take(t, s.RWMutex("k").Hold)
				tokens = append(tokens, h.Token())
				h.Release(background)
			})
		}
		synctest.Wait()
		before := store.Counts()
		firstHold.Release(background)
		wg.Wait()
		if d := store.Counts().Since(before); d.Total() != 1 {
			t.Errorf("50 hand-offs and a release took %v", d.Commands)
		}
		reader := take(t, first.RHold)
		tokens = append(tokens, reader.Token())
		reader.Release(background)
		if len(tokens) != 52 || !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
			t.Errorf("tokens %v, want 52 that increase", tokens)
		}
	})
}
