package dsync_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/leader"
)

// errors.Is tells why a hold was lost. The cause of the hold's context, the cause of the leader's context, and the
// error of Release each match exactly one of the documented causes. None of them matches context.DeadlineExceeded, even
// if the last heartbeat failed with that error.
func TestCauseOfALoss(t *testing.T) {
	causes := []error{
		dsync.ErrNotRenewed, dsync.ErrSessionExpired, dsync.ErrRevoked, dsync.ErrRecordDeleted, dsync.ErrStalled, dsync.ErrLeaseOver, dsync.ErrClosed,
		context.DeadlineExceeded, context.Canceled,
	}
	only := func(t *testing.T, what string, err, want error) {
		t.Helper()
		if !errors.Is(err, dsync.ErrLost) {
			t.Errorf("%s: %v is not ErrLost", what, err)
		}
		for _, cause := range causes {
			if errors.Is(err, cause) != (cause == want) {
				t.Errorf("%s: %v matches %v: %t, want the opposite", what, err, cause, errors.Is(err, cause))
			}
		}
	}
	type process struct {
		s, other *dsync.Session
		store    *dsynctest.Memory
		net      *dsynctest.Faulty
	}
	for name, tt := range map[string]struct {
		end  func(t *testing.T, p process, key string, held context.Context)
		want error
	}{
		"an outage": {func(_ *testing.T, p process, _ string, _ context.Context) { p.net.Cut() }, dsync.ErrNotRenewed},
		"expired by others": {func(t *testing.T, p process, _ string, _ context.Context) {
			if err := storecmd.Unregister(background, p.store, p.s.ID()); err != nil {
				t.Error(err)
			}
		}, dsync.ErrSessionExpired},
		"a revocation": {func(_ *testing.T, p process, key string, _ context.Context) {
			go admin.New(p.other).Break(background, key)
		}, dsync.ErrRevoked},
		"no progress": {func(t *testing.T, _ process, _ string, held context.Context) {
			if err := dsync.HoldFrom(held).Progress(time.Second); err != nil {
				t.Error(err)
			}
		}, dsync.ErrStalled},
		"Close": {func(_ *testing.T, p process, _ string, _ context.Context) { go p.s.Close(background) }, dsync.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			start := func(t *testing.T) process {
				memory := dsynctest.NewMemory()
				net := newFaulty(t, memory, nil)
				return process{newSession(t, net, nil), newSession(t, memory, nil), memory, net}
			}
			bubble(t, func(t *testing.T) {
				p := start(t)
				h := take(t, p.s.Mutex("k").Hold)
				held := h.Context(background)
				tt.end(t, p, "k", held)
				<-held.Done()
				only(t, "the cause of its context", context.Cause(held), tt.want)
				only(t, "Release", h.Release(background), tt.want)
				p.net.Heal()
			})
			bubble(t, func(t *testing.T) {
				p := start(t)
				e, err := leader.New(p.s, "e", nil)
				noErr(t, err)
				term, err := e.Campaign(background)
				noErr(t, err)
				tt.end(t, p, "e", term)
				<-term.Done()
				only(t, "the cause of the term's end", context.Cause(term), tt.want)
				e.Resign(background)
				p.net.Heal()
			})
		})
	}
	inBubble(t, "the end of a lease", func(t *testing.T) {
		l, err := newSession(t, dsynctest.NewMemory(), nil).Mutex("k").Lease(background, 5*time.Second)
		noErr(t, err)
		<-l.Lost()
		only(t, "Release", l.Release(background), dsync.ErrLeaseOver)
	})
}

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
