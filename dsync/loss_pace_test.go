package dsync_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// If a waiter's session is lost, the waiter continues at once under a new session. If the waiter then times out, the
// error does not present the loss as an error of the store.
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
		if err := storecmd.Unregister(background, memory, s.ID()); err != nil { // as if another session had expired this one
			t.Fatal(err)
		}
		err := <-waited
		wantErr(t, "LockContext", err, context.DeadlineExceeded)
		if strings.Contains(err.Error(), "last error") {
			t.Errorf("LockContext: %v, but no command to the store has failed", err)
		}
		synctest.Wait() // wait for the hook that records when the session was lost
		if all := registered(); len(all) != 2 || !all[1].Equal(lost) {
			t.Errorf("registered at %v, want a second time at %v, when the session was lost", all, lost)
		}
		held.Unlock()
	})
}
