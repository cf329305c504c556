package dsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// If the store's clock jumps so far ahead that another session expires this session, this session still reports the
// jump. It detects the jump when it next registers, because the store no longer acknowledges its heartbeats.
func TestClockJumpThatEndsTheSessionIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		var jumps []time.Duration
		s := newSession(t, memory, &dsync.Options{Hooks: &dsync.Hooks{ClockJump: func(d time.Duration) { jumps = append(jumps, d) }}})
		mu, other := s.Mutex("k"), newSession(t, memory, nil).Mutex("k")
		h := take(t, mu.Hold)
		memory.Skew(time.Hour)
		lock(t, other) // the holder has lapsed by the store's clock
		<-h.Lost()
		other.Unlock()
		wantErr(t, "Release", h.Release(background), dsync.ErrLost, driver.ErrSessionExpired)
		lock(t, mu)
		mu.Unlock()
		synctest.Wait()
		if len(jumps) != 1 || (jumps[0]-time.Hour).Abs() > 2*time.Millisecond {
			t.Errorf("the jumps %v were reported, want one of about 1h", jumps)
		}
	})
}

// A session that registers again long after its loss does not mistake a difference in clock rates for a jump.
func TestSlowClockIsNoJump(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		jumps := 0
		f := newFaulty(t, memory, nil)
		s := newSession(t, f, &dsync.Options{Hooks: &dsync.Hooks{ClockJump: func(time.Duration) { jumps++ }}})
		mu := s.Mutex("k")
		h := take(t, mu.Hold)
		f.Cut()
		<-h.Lost()
		wantErr(t, "Release", h.Release(background), dsync.ErrLost)
		time.Sleep(time.Hour)
		memory.Skew(2 * time.Second)
		f.Heal()
		lock(t, mu)
		mu.Unlock()
		synctest.Wait()
		if jumps != 0 {
			t.Errorf("%d jumps were reported, want none", jumps)
		}
	})
}

// If a waiter reads the holder's session right after the store's clock was set back, the session's last heartbeat
// appears to be in the future. The waiter does not rely on the heartbeat's time: if the holder crashes, the waiter gets
// the key within a TTL.
func TestClockThatGoesBackHidesNoCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, nil)
		held, waiter := newSession(t, f, nil).Mutex("k"), newSession(t, memory, nil).Mutex("k")
		h := take(t, held.Hold)
		memory.Skew(-time.Hour)
		time.AfterFunc(ttl, f.Cut) // by then, heartbeats use the new clock
		ctx, cancel := context.WithTimeout(background, 2*ttl)
		defer cancel()
		if err := waiter.LockContext(ctx); err != nil {
			t.Fatalf("no grant within the TTL after the crash: %v", err)
		}
		wantErr(t, "Release", h.Release(background), dsync.ErrLost)
		waiter.Unlock()
	})
}
