package dsynctest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func claim(key, session string, n int) dsync.Claim {
	return dsync.Claim{Key: key, ID: fmt.Sprintf("%s.%d", session, n), Session: session, Kind: dsync.KindMutex, Weight: 1, Limit: 1}
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func TestMemoryCountsCommandsAndWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := dsynctest.NewMemory()
		mine, other, waiter := claim("k", "a", 1), claim("k", "b", 1), claim("k", "b", 2)
		sealer, revoked := claim("sealed", "b", 3), dsync.Revocation{Key: "k", Claim: mine.ID}
		past := time.Now().Add(-time.Second)
		var swept dsync.SweepState
		ended, cancel := context.WithCancel(ctx)
		cancel()

		for _, step := range []struct {
			name   string
			do     func()
			method dsynctest.Method // "": none
			writes int
		}{
			{"register", func() { m.Register(ctx, dsync.Member{ID: "a", TTL: time.Minute}) }, dsynctest.MethodRegister, 1},
			{"acquire", func() { m.Acquire(ctx, mine, true, nil, soon()) }, dsynctest.MethodAcquire, 1},
			{"repeat", func() { m.Acquire(ctx, mine, true, nil, soon()) }, dsynctest.MethodAcquire, 0},
			{"failed try", func() { m.Acquire(ctx, other, false, nil, soon()) }, dsynctest.MethodAcquire, 0},
			{"late wait", func() { m.Acquire(ctx, waiter, true, nil, past) }, dsynctest.MethodAcquire, 0},
			{"wait", func() { m.Acquire(ctx, waiter, true, nil, soon()) }, dsynctest.MethodAcquire, 1},
			{"wait on", func() { m.Acquire(ctx, waiter, true, []string{"nobody"}, soon()) }, dsynctest.MethodAcquire, 0},
			{"revoke", func() { m.Revoke(ctx, "a", revoked) }, dsynctest.MethodRevoke, 1},
			{"revoke again", func() { m.Revoke(ctx, "a", revoked) }, dsynctest.MethodRevoke, 0},
			{"revoke the unknown", func() { m.Revoke(ctx, "c", revoked) }, dsynctest.MethodRevoke, 0},
			{"heartbeat in the same millisecond", func() { m.Heartbeat(ctx, "a", nil) }, dsynctest.MethodHeartbeat, 0},
			{"heartbeat that takes off", func() { m.Heartbeat(ctx, "a", []dsync.Revocation{revoked}) }, dsynctest.MethodHeartbeat, 1},
			{"observe", func() { m.Observe(ctx, "a", 2, []string{"k"}) }, dsynctest.MethodObserve, 1},
			{"observe again", func() { m.Observe(ctx, "a", 2, []string{"k"}) }, dsynctest.MethodObserve, 0},
			{"observe what is older", func() { m.Observe(ctx, "a", 1, nil) }, dsynctest.MethodObserve, 0},
			{"observers", func() { m.Observers(ctx, "k", "", 10) }, dsynctest.MethodObservers, 0},
			{"line", func() { m.Line(ctx, "k") }, dsynctest.MethodLine, 0},
			{"keys", func() { m.Keys(ctx, "", "", 10) }, dsynctest.MethodKeys, 0},
			{"load", func() { m.Load(ctx, "k") }, dsynctest.MethodLoad, 0},
			{"members", func() { m.Members(ctx, "a") }, dsynctest.MethodMembers, 0},
			{"lives", func() { m.Lives(ctx, "a") }, dsynctest.MethodLives, 0},
			{"extend what has no end", func() { m.Extend(ctx, mine) }, dsynctest.MethodExtend, 0},
			{"publish", func() { m.Publish(ctx, mine, 1, []byte("v")) }, dsynctest.MethodPublish, 1},
			{"publish again", func() { m.Publish(ctx, mine, 1, []byte("v")) }, dsynctest.MethodPublish, 0},
			{"publish what is older", func() { m.Publish(ctx, mine, 0, []byte("w")) }, dsynctest.MethodPublish, 0},
			{"publish in line", func() { m.Publish(ctx, waiter, 1, []byte("v")) }, dsynctest.MethodPublish, 0},
			{"publish too much", func() { m.Publish(ctx, mine, 1, make([]byte, 64<<10+1)) }, dsynctest.MethodPublish, 0},
			{"all members", func() { m.Members(ctx) }, dsynctest.MethodMembers, 0},
			{"bury the living", func() { m.Bury(ctx, "a") }, dsynctest.MethodBury, 0},
			{"heartbeat", func() { time.Sleep(time.Second); m.Heartbeat(ctx, "a", nil) }, dsynctest.MethodHeartbeat, 1},
			{"hand over", func() { m.Release(ctx, mine, dsync.Outcome{}) }, dsynctest.MethodRelease, 1},
			{"release again", func() { m.Release(ctx, mine, dsync.Outcome{}) }, dsynctest.MethodRelease, 0},
			{"keep", func() { m.Release(ctx, waiter, dsync.Outcome{Keep: time.Second}) }, dsynctest.MethodRelease, 1},
			{"keep again", func() { m.Release(ctx, waiter, dsync.Outcome{Keep: time.Minute}) }, dsynctest.MethodRelease, 0},
			{"release", func() { m.Release(ctx, waiter, dsync.Outcome{}) }, dsynctest.MethodRelease, 1},
			{"resize", func() { m.Resize(ctx, "k", dsync.KindMutex, 1, 2) }, dsynctest.MethodResize, 1},
			{"resize again", func() { m.Resize(ctx, "k", dsync.KindMutex, 1, 2) }, dsynctest.MethodResize, 0},
			{"acquire to seal", func() { m.Acquire(ctx, sealer, true, nil, soon()) }, dsynctest.MethodAcquire, 1},
			{"resize as another kind", func() { m.Resize(ctx, "sealed", dsync.KindOnce, 1, 2) }, dsynctest.MethodResize, 0},
			{"seal too much", func() { m.Release(ctx, sealer, dsync.Outcome{Seal: true, Result: make([]byte, 64<<10+1)}) }, dsynctest.MethodRelease, 0},
			{"seal", func() { m.Release(ctx, sealer, dsync.Outcome{Seal: true}) }, dsynctest.MethodRelease, 1},
			{"seal again", func() { m.Release(ctx, sealer, dsync.Outcome{Seal: true}) }, dsynctest.MethodRelease, 0},
			{"acquire what is sealed", func() { m.Acquire(ctx, claim("sealed", "b", 4), true, nil, soon()) }, dsynctest.MethodAcquire, 0},
			{"sweep nothing", func() { swept, _ = m.Sweep(ctx, "a", swept, time.Hour) }, dsynctest.MethodSweep, 1},
			{"sweep that turn again", func() { m.Sweep(ctx, "b", dsync.SweepState{}, 0) }, dsynctest.MethodSweep, 0},
			{"unregister", func() { m.Unregister(ctx, "a") }, dsynctest.MethodUnregister, 1},
			{"unregister again", func() { m.Unregister(ctx, "a") }, dsynctest.MethodUnregister, 0},
			{"bury the unknown", func() { m.Bury(ctx, "c") }, dsynctest.MethodBury, 1},
			{"bury the dead", func() { m.Bury(ctx, "c") }, dsynctest.MethodBury, 0},
			{"sweep", func() { time.Sleep(time.Minute); m.Sweep(ctx, "a", swept, time.Second) }, dsynctest.MethodSweep, 4},
			{"ended", func() { m.Acquire(ended, mine, true, nil, soon()) }, "", 0},
		} {
			before := m.Counts()
			step.do()
			got := m.Counts().Since(before)
			want := map[dsynctest.Method]int{}
			if step.method != "" {
				want[step.method] = 1
			}
			if !maps.Equal(got.Commands, want) || got.Writes != step.writes || got.Total() != len(want) {
				t.Errorf("%s: %v and %d writes; want %v and %d", step.name, got.Commands, got.Writes, want, step.writes)
			}
		}
	})
}

// Uncontended, Lock and Unlock are two commands and two writes.
func TestMemoryCountsLockUnlock(t *testing.T) {
	m := dsynctest.NewMemory()
	c := claim("k", "a", 1)
	m.Acquire(t.Context(), c, true, nil, soon())
	m.Release(t.Context(), c, dsync.Outcome{})
	if got := m.Counts(); got.Total() != 2 || got.Writes != 2 {
		t.Errorf("%d commands and %d writes, want 2 and 2", got.Total(), got.Writes)
	}
}

func TestMemoryEndedContextDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		_, err := m.Acquire(ctx, claim("k", "a", 1), true, nil, soon())
		if _, at := m.Register(ctx, dsync.Member{ID: "a", TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(at, context.DeadlineExceeded) {
			t.Errorf("Acquire, Register: %v, %v; want context.DeadlineExceeded", err, at)
		}
		if _, err := m.Heartbeat(t.Context(), "a", nil); !errors.Is(err, dsync.ErrSessionDead) || len(m.Records()) > 0 {
			t.Errorf("Heartbeat: %v, keys %q; want nothing there", err, m.Records())
		}
	})
}

func TestMemoryLineLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a line; nothing in it depends on the schedule, so it need not be repeated")
	}
	const limit = 10_000
	m, ctx := dsynctest.NewMemory(), t.Context()
	m.Acquire(ctx, claim("k", "a", 0), true, nil, soon())
	for i := range limit {
		s, err := m.Acquire(ctx, claim("k", "a", i+1), true, nil, soon())
		if err != nil || s.Place != i+1 {
			t.Fatalf("claim %d: place %d, %v", i+1, s.Place, err)
		}
	}
	before := m.Counts()
	for _, wait := range []bool{true, false} {
		c := claim("k", "b", 1)
		c.First = wait
		if _, err := m.Acquire(ctx, c, wait, nil, soon()); !errors.Is(err, dsync.ErrRefused) {
			t.Errorf("one more than %d in line (wait %t): %v, want ErrRefused", limit, wait, err)
		}
	}
	if got := m.Counts().Since(before); got.Writes != 0 {
		t.Errorf("what was refused wrote %d records", got.Writes)
	}
	if s, err := m.Acquire(ctx, claim("k", "a", limit), true, nil, soon()); err != nil || s.Place != limit || len(s.Ahead) != 8 {
		t.Errorf("the last in line repeats: place %d, %d ahead, %v", s.Place, len(s.Ahead), err)
	}
	if s, err := m.Load(ctx, "k"); err != nil || s.Waiting != limit || len(s.Ahead) != 1000 || s.Ahead[999].Claim != "a.1000" {
		t.Errorf("Load shows %d of %d in line, %v; want the first 1,000", len(s.Ahead), s.Waiting, err)
	}
	if line, err := m.Line(ctx, "k"); err != nil || len(line) != limit || line[limit-1].Claim != claim("k", "a", limit).ID {
		t.Errorf("Line shows %d of %d in line, %v; want all", len(line), limit, err)
	}
	m.Release(ctx, claim("k", "a", 0), dsync.Outcome{})
	if s, err := m.Acquire(ctx, claim("k", "b", 2), true, nil, soon()); err != nil || s.Place != limit {
		t.Errorf("after a release: place %d, %v; want %d", s.Place, err, limit)
	}
}

// A claim that can never be granted would block the line for ever.
func TestMemoryRefusesImpossibleWeight(t *testing.T) {
	m := dsynctest.NewMemory()
	for _, weight := range []int64{-1, 0, 4} {
		c := claim("k", "a", 1)
		c.Weight, c.Limit = weight, 3
		if _, err := m.Acquire(t.Context(), c, true, nil, soon()); !errors.Is(err, dsync.ErrRefused) {
			t.Errorf("weight %d of 3: %v, want ErrRefused", weight, err)
		}
	}
	if keys := m.Records(); len(keys) > 0 {
		t.Errorf("left records of %q", keys)
	}
}

// B07: only the store's clock decides, and it may be set.
func TestMemorySkew_B07(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := dsynctest.NewMemory(), t.Context()
		at, _ := m.Register(ctx, dsync.Member{ID: "a", TTL: time.Minute})
		m.Skew(30*time.Second + time.Microsecond)
		if left, err := m.Bury(ctx, "a"); left != 30*time.Second || err != nil {
			t.Errorf("Bury 30 s ahead = %v, %v; want 30s", left, err)
		}
		if s, _ := m.Load(ctx, "k"); !s.Now.Equal(at.Add(30 * time.Second)) {
			t.Errorf("the store's clock says %v, want 30 s after %v, in milliseconds", s.Now, at)
		}
		m.Skew(-time.Minute)
		if p, err := m.Heartbeat(ctx, "a", nil); err != nil || !p.Now.Before(at) {
			t.Errorf("Heartbeat after the clock was set back = %v, %v; want before %v", p.Now, err, at)
		}
		m.Skew(2 * time.Minute)
		if left, err := m.Bury(ctx, "a"); left != 0 || err != nil {
			t.Errorf("Bury two minutes ahead = %v, %v; want 0", left, err)
		}
	})
}

// B08: a thousand rounds, clean-up and a clock that is set back included.
func TestMemoryTokensGrow_B08(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := dsynctest.NewMemory(), t.Context()
		const retention = 10 * time.Millisecond
		var last int64
		var st dsync.SweepState
		swept := 0
		for i := range 1000 {
			c := claim("k", "a", i)
			s, err := m.Acquire(ctx, c, true, nil, soon())
			if err != nil || s.Token < last+1024 {
				t.Fatalf("round %d: token %d after %d, %v", i, s.Token, last, err)
			}
			last = s.Token
			m.Release(ctx, c, dsync.Outcome{})
			time.Sleep(time.Duration(i%20) * time.Millisecond)
			st, _ = m.Sweep(ctx, "a", st, retention)
			if len(m.Records()) == 0 {
				swept++
			}
			if i%100 == 0 {
				m.Skew(-retention / 2)
			}
		}
		if swept == 0 || swept == 1000 {
			t.Errorf("the record was deleted in %d of 1000 rounds, want some", swept)
		}
	})
}

// A watcher that is slow loses nothing and delays nobody.
func TestMemoryWatchQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grants = 500
		m := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error)
		go func() {
			done <- m.Watch(ctx, "a", nil, func(e dsync.Event) {
				time.Sleep(time.Second)
				got = append(got, e.Claim)
			})
		}()
		synctest.Wait()
		start := time.Now()
		want := []string{""} // EventReady
		for i := range grants {
			c := claim("k", "a", i)
			m.Acquire(ctx, c, true, nil, soon())
			m.Release(ctx, c, dsync.Outcome{})
			want = append(want, c.ID)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("commands waited %v for a watcher", took)
		}
		time.Sleep((grants + 2) * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || !slices.Equal(got, want) {
			t.Errorf("Watch: %v, %d events; want context.Canceled, %d in order", err, len(got), len(want))
		}
	})
}

func BenchmarkMemoryLockUnlock(b *testing.B) {
	for _, waiting := range []int{0, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			m, ctx := dsynctest.NewMemory(), b.Context()
			for i := range waiting + 1 {
				m.Acquire(ctx, claim("k", "w", i), true, nil, soon())
			}
			i := 0
			for b.Loop() {
				i++
				c := claim("k", "a", i)
				m.Acquire(ctx, c, true, nil, soon())
				m.Release(ctx, c, dsync.Outcome{})
			}
		})
	}
}
