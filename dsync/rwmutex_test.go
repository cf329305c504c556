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
	noErr(t, rw.LockContext(ctx))
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
