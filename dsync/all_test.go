package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

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
		_, unlock, err := dsync.LockAll(t.Context(), a.Mutex("b"), x, o, a.Mutex("a"))
		if err != nil {
			t.Fatal(err)
		}
		if len(order) != 2 || order[0] != "x" || order[1] != "old" {
			t.Errorf("the locks were locked in the order %v, want x and old", order)
		}
		if err := unlock(); err != nil || o.locked || !a.Mutex("x").TryLock() {
			t.Errorf("unlock: %v, old is locked: %t; want no error, and both locks free", err, o.locked)
		}
	})
}

// If any of the locks is lost, the context ends, and unlock returns ErrLost. A second unlock does nothing.
func TestLockAllLosesOne(t *testing.T) {
	for name, lose := range map[string]func(*dsynctest.Memory, *old){
		"a Mutex":      func(m *dsynctest.Memory, _ *old) { m.DeleteRecord("b") },
		"another lock": func(_ *dsynctest.Memory, o *old) { close(o.lost) },
	} {
		t.Run(name, func(t *testing.T) {
			pair(t, func(t *testing.T, store *dsynctest.Memory, a, b *dsync.Session) {
				o := &old{lost: make(chan struct{}), order: new([]string)}
				held, unlock, err := dsync.LockAll(t.Context(), o, a.Mutex("a"), a.Mutex("b"))
				if err != nil {
					t.Fatal(err)
				}
				if dsync.HoldFrom(held) != nil {
					t.Error("HoldFrom has returned one of several holds")
				}
				lose(store, o)
				select {
				case <-held.Done():
				case <-time.After(time.Hour):
					t.Fatal("the context has not ended an hour after the loss")
				}
				if cause := context.Cause(held); !errors.Is(cause, dsync.ErrLost) {
					t.Errorf("the cause is %v, want ErrLost", cause)
				}
				for range 2 {
					if err := unlock(); !errors.Is(err, dsync.ErrLost) {
						t.Errorf("unlock: %v, want ErrLost", err)
					}
				}
				if o.locked || !b.Mutex("a").TryLock() {
					t.Error("a key stays locked after the loss")
				}
			})
		})
	}
}

// If unlock can't release a lock, it logs that, as Mutex.Unlock does.
func TestLockAllLogsWhatIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer store.Close()
		s, err := dsync.New(store, &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		_, unlock, err := dsync.LockAll(t.Context(), s.Mutex("a"), s.Mutex("b"))
		if err != nil {
			t.Fatal(err)
		}
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

// unlock ends the context with context.Canceled.
func TestLockAllUnlock(t *testing.T) {
	pair(t, func(t *testing.T, _ *dsynctest.Memory, a, _ *dsync.Session) {
		held, unlock, err := dsync.LockAll(t.Context(), a.Mutex("a"), a.RWMutex("b"), a.Mutex("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := unlock(); err != nil || context.Cause(held) != context.Canceled {
			t.Errorf("unlock: %v; the cause of the context's end: %v, want context.Canceled", err, context.Cause(held))
		}
	})
}

// TryLockAll locks all or none, and its error says which key is held.
func TestTryLockAll(t *testing.T) {
	pair(t, func(t *testing.T, _ *dsynctest.Memory, a, b *dsync.Session) {
		o := &old{lost: make(chan struct{}), order: new([]string)}
		theirs := b.Mutex("b")
		theirs.Lock()
		_, _, err := dsync.TryLockAll(t.Context(), a.Mutex("b"), o, a.Mutex("a"))
		var held *dsync.HeldError
		if !errors.As(err, &held) || held.Key != "b" {
			t.Errorf("TryLockAll returned %v, want an error that says that b is held", err)
		}
		if o.locked || !b.Mutex("a").TryLock() {
			t.Error("some of the locks stay locked")
		}
		theirs.Unlock()
		o.locked = true
		if _, _, err := dsync.TryLockAll(t.Context(), a.Mutex("b"), o); !errors.Is(err, dsync.ErrHeld) {
			t.Errorf("TryLockAll with a held lock of another package: %v, want ErrHeld", err)
		}
		if _, _, err := dsync.TryLockAll(t.Context(), struct{ dsync.Locker }{o}); err == nil || errors.Is(err, dsync.ErrHeld) {
			t.Errorf("TryLockAll with a lock without TryLock: %v", err)
		}
	})
}
