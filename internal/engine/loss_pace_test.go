package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// A waiter whose session is lost continues at once under the next one, and the loss is not reported
// as an error of the store.
func TestWaiterContinuesAtOnceAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f, registered := timesOf(t, memory, dsynctest.MethodRegister)
		var lost time.Time
		s := newSession(t, f, &dsync.Options{Hooks: &dsync.Hooks{SessionLost: func(string, error) { lost = time.Now() }}})
		held := newSession(t, memory, nil).Mutex("k")
		lock(t, held)
		ctx, cancel := context.WithTimeout(background, ttl)
		defer cancel()
		waited := make(chan error, 1)
		go func() { waited <- s.Mutex("k").LockContext(ctx) }()
		synctest.Wait()
		if err := storecmd.Unregister(background, memory, s.ID()); err != nil { // as if others had expired it
			t.Fatal(err)
		}
		err := <-waited
		wantErr(t, "LockContext", err, context.DeadlineExceeded)
		if strings.Contains(err.Error(), "last error") {
			t.Errorf("LockContext: %v, and the store has failed in nothing", err)
		}
		synctest.Wait() // for the hook that notes when it was lost
		if all := registered(); len(all) != 2 || !all[1].Equal(lost) {
			t.Errorf("registered at %v, want again when the session was lost, at %v", all, lost)
		}
		held.Unlock()
	})
}

// A session whose loss was found by a check of the clock, before any timer of it ran, can be closed
// at once.
func TestCloseAfterALossFoundByACheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := take(t, s.Mutex("k").Hold)
		time.Sleep(time.Second / 2) // between two heartbeats, and before the session listens, which would wake its goroutine
		engine.Of(s).Freeze(ttl)
		if h.Token() != 0 {
			t.Fatal("owned after the freeze")
		}
		h.Release(background)
		start := time.Now()
		s.Close(background)
		if d := time.Since(start); d != 0 {
			t.Errorf("Close took %v, and there was nothing to wait for", d)
		}
	})
}
