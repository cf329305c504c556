package dsynctest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

func claim(key, session string, n int) driver.Claim {
	return driver.Claim{Key: key, ID: fmt.Sprintf("%s.%d", session, n), Session: session, Kind: driver.KindMutex, Weight: 1, Limit: 1}
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func TestMemoryCountsCommandsAndWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := dsynctest.NewMemory()
		mine, other, waiter := claim("k", "a", 1), claim("k", "b", 1), claim("k", "b", 2)
		sealer, revoked := claim("sealed", "b", 3), driver.Revocation{Key: "k", Claim: mine.ID}
		past := time.Now().Add(-time.Second)
		var swept driver.SweepState
		ended, cancel := context.WithCancel(ctx)
		cancel()

		for _, step := range []struct {
			name   string
			do     func()
			method dsynctest.Method // "": none
			writes int
		}{
			{"register", func() { m.Register(ctx, driver.Member{ID: "a", TTL: time.Minute}) }, dsynctest.MethodRegister, 1},
			{"acquire", func() { storecmd.Acquire(ctx, m, mine, true, nil, soon()) }, dsynctest.MethodAcquire, 1},
			{"repeat", func() { storecmd.Acquire(ctx, m, mine, true, nil, soon()) }, dsynctest.MethodAcquire, 0},
			{"failed try", func() { storecmd.Acquire(ctx, m, other, false, nil, soon()) }, dsynctest.MethodAcquire, 0},
			{"late wait", func() { storecmd.Acquire(ctx, m, waiter, true, nil, past) }, dsynctest.MethodAcquire, 0},
			{"wait", func() { storecmd.Acquire(ctx, m, waiter, true, nil, soon()) }, dsynctest.MethodAcquire, 1},
			{"wait on", func() { storecmd.Acquire(ctx, m, waiter, true, []string{"nobody"}, soon()) }, dsynctest.MethodAcquire, 0},
			{"revoke", func() { m.Revoke(ctx, "a", revoked) }, dsynctest.MethodRevoke, 1},
			{"revoke again", func() { m.Revoke(ctx, "a", revoked) }, dsynctest.MethodRevoke, 0},
			{"revoke the unknown", func() { m.Revoke(ctx, "c", revoked) }, dsynctest.MethodRevoke, 0},
			{"heartbeat in the same millisecond", func() { m.Heartbeat(ctx, "a", nil) }, dsynctest.MethodHeartbeat, 0},
			{"heartbeat that removes a revocation", func() { m.Heartbeat(ctx, "a", []driver.Revocation{revoked}) }, dsynctest.MethodHeartbeat, 1},
			{"observe", func() { m.Observe(ctx, "a", 2, []string{"k"}) }, dsynctest.MethodObserve, 1},
			{"observe again", func() { m.Observe(ctx, "a", 2, []string{"k"}) }, dsynctest.MethodObserve, 0},
			{"observe what is older", func() { m.Observe(ctx, "a", 1, nil) }, dsynctest.MethodObserve, 0},
			{"observers", func() { storecmd.Observers(ctx, m, "k", "", 10) }, dsynctest.MethodObservers, 0},
			{"queue", func() { storecmd.Queue(ctx, m, "k") }, dsynctest.MethodQueue, 0},
			{"notify", func() { m.Notify(ctx, []driver.Notice{{Type: driver.NoticeChange, Key: "k"}}) }, dsynctest.MethodNotify, 0},
			{"keys", func() { m.Keys(ctx, driver.KeyQuery{Limit: 10}) }, dsynctest.MethodKeys, 0},
			{"load", func() { m.Load(ctx, "k", 1000) }, dsynctest.MethodLoad, 0},
			{"members", func() { storecmd.Members(ctx, m, "a") }, dsynctest.MethodMembers, 0},
			{"liveness", func() { storecmd.Liveness(ctx, m, "a") }, dsynctest.MethodLiveness, 0},
			{"extend what has no end", func() { storecmd.Extend(ctx, m, mine, 1) }, dsynctest.MethodExtend, 0},
			{"publish", func() { storecmd.Publish(ctx, m, mine, 1, []byte("v")) }, dsynctest.MethodPublish, 1},
			{"publish again", func() { storecmd.Publish(ctx, m, mine, 1, []byte("v")) }, dsynctest.MethodPublish, 0},
			{"publish what is older", func() { storecmd.Publish(ctx, m, mine, 0, []byte("w")) }, dsynctest.MethodPublish, 0},
			{"publish in the queue", func() { storecmd.Publish(ctx, m, waiter, 1, []byte("v")) }, dsynctest.MethodPublish, 0},
			{"publish too much", func() { storecmd.Publish(ctx, m, mine, 1, make([]byte, 64<<10+1)) }, dsynctest.MethodPublish, 0},
			{"all members", func() { storecmd.Members(ctx, m) }, dsynctest.MethodMembers, 0},
			{"expire the living", func() { m.Expire(ctx, "a", false) }, dsynctest.MethodExpire, 0},
			{"heartbeat", func() { time.Sleep(time.Second); m.Heartbeat(ctx, "a", nil) }, dsynctest.MethodHeartbeat, 1},
			{"release with waiters", func() { storecmd.Release(ctx, m, mine, driver.Release{}) }, dsynctest.MethodRelease, 1},
			{"release again", func() { storecmd.Release(ctx, m, mine, driver.Release{}) }, dsynctest.MethodRelease, 0},
			{"keep", func() { storecmd.Release(ctx, m, waiter, driver.Release{Keep: time.Second}) }, dsynctest.MethodRelease, 1},
			{"keep again", func() { storecmd.Release(ctx, m, waiter, driver.Release{Keep: time.Minute}) }, dsynctest.MethodRelease, 0},
			{"release", func() { storecmd.Release(ctx, m, waiter, driver.Release{}) }, dsynctest.MethodRelease, 1},
			{"resize", func() { storecmd.Resize(ctx, m, "k", driver.KindMutex, 1, 2) }, dsynctest.MethodResize, 1},
			{"resize again", func() { storecmd.Resize(ctx, m, "k", driver.KindMutex, 1, 2) }, dsynctest.MethodResize, 0},
			{"acquire to seal", func() { storecmd.Acquire(ctx, m, sealer, true, nil, soon()) }, dsynctest.MethodAcquire, 1},
			{"resize as another kind", func() { storecmd.Resize(ctx, m, "sealed", driver.KindOnce, 1, 2) }, dsynctest.MethodResize, 0},
			{"seal too much", func() { storecmd.Release(ctx, m, sealer, driver.Release{Seal: 1, Result: make([]byte, 64<<10+1)}) }, dsynctest.MethodRelease, 0},
			{"seal", func() { storecmd.Release(ctx, m, sealer, driver.Release{Seal: 1}) }, dsynctest.MethodRelease, 1},
			{"seal again", func() { storecmd.Release(ctx, m, sealer, driver.Release{Seal: 1}) }, dsynctest.MethodRelease, 0},
			{"acquire what is sealed", func() { storecmd.Acquire(ctx, m, claim("sealed", "b", 4), true, nil, soon()) }, dsynctest.MethodAcquire, 0},
			{"sweep nothing", func() { swept, _ = m.Sweep(ctx, "a", swept, time.Hour) }, dsynctest.MethodSweep, 1},
			{"sweep the same turn again", func() { m.Sweep(ctx, "b", driver.SweepState{}, 0) }, dsynctest.MethodSweep, 0},
			{"unregister", func() { storecmd.Unregister(ctx, m, "a") }, dsynctest.MethodUnregister, 1},
			{"unregister again", func() { storecmd.Unregister(ctx, m, "a") }, dsynctest.MethodUnregister, 0},
			{"expire the unknown", func() { m.Expire(ctx, "c", false) }, dsynctest.MethodExpire, 1},
			{"expire a session", func() { m.Expire(ctx, "c", false) }, dsynctest.MethodExpire, 0},
			{"sweep", func() { time.Sleep(time.Minute); m.Sweep(ctx, "a", swept, time.Second) }, dsynctest.MethodSweep, 4},
			{"ended", func() { storecmd.Acquire(ended, m, mine, true, nil, soon()) }, "", 0},
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

// Without contention, an Acquire and its Release are two commands and two writes.
func TestMemoryCountsLockUnlock(t *testing.T) {
	m := dsynctest.NewMemory()
	c := claim("k", "a", 1)
	storecmd.Acquire(t.Context(), m, c, true, nil, soon())
	storecmd.Release(t.Context(), m, c, driver.Release{})
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
		_, _, err := storecmd.Acquire(ctx, m, claim("k", "a", 1), true, nil, soon())
		if _, at := m.Register(ctx, driver.Member{ID: "a", TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(at, context.DeadlineExceeded) {
			t.Errorf("Acquire, Register: %v, %v; want context.DeadlineExceeded", err, at)
		}
		if _, err := m.Heartbeat(t.Context(), "a", nil); !errors.Is(err, driver.ErrSessionExpired) || len(m.Records()) > 0 {
			t.Errorf("Heartbeat: %v, keys %q; want ErrSessionExpired, and no keys", err, m.Records())
		}
	})
}

func TestMemoryQueueLimit(t *testing.T) {
	testkit.Large(t)
	const limit = 10_000
	m, ctx := dsynctest.NewMemory(), t.Context()
	storecmd.Acquire(ctx, m, claim("k", "a", 0), true, nil, soon())
	for i := range limit {
		s, _, err := storecmd.Acquire(ctx, m, claim("k", "a", i+1), true, nil, soon())
		if err != nil || s.Position != i+1 {
			t.Fatalf("claim %d: position %d, %v", i+1, s.Position, err)
		}
	}
	before := m.Counts()
	for _, wait := range []bool{true, false} {
		c := claim("k", "b", 1)
		c.First = wait
		if _, _, err := storecmd.Acquire(ctx, m, c, wait, nil, soon()); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("one more than %d in the queue (wait %t): %v, want ErrRefused", limit, wait, err)
		}
	}
	if got := m.Counts().Since(before); got.Writes != 0 {
		t.Errorf("refused Acquires have written %d records", got.Writes)
	}
	if s, _, err := storecmd.Acquire(ctx, m, claim("k", "a", limit), true, nil, soon()); err != nil || s.Position != limit || len(s.WaitersAhead) != 8 {
		t.Errorf("after a repeated Acquire of the last claim in the queue: position %d, %d ahead, %v", s.Position, len(s.WaitersAhead), err)
	}
	if s, err := m.Load(ctx, "k", 1000); err != nil || s.Waiting != limit || len(s.WaitersAhead) != 1000 || s.WaitersAhead[999].Claim != "a.1000" {
		t.Errorf("Load shows %d of %d in the queue, %v; want the first 1,000", len(s.WaitersAhead), s.Waiting, err)
	}
	if queue, err := storecmd.Queue(ctx, m, "k"); err != nil || len(queue) != limit || queue[limit-1].Claim != claim("k", "a", limit).ID {
		t.Errorf("Queue shows %d of %d in the queue, %v; want all", len(queue), limit, err)
	}
	storecmd.Release(ctx, m, claim("k", "a", 0), driver.Release{})
	if s, _, err := storecmd.Acquire(ctx, m, claim("k", "b", 2), true, nil, soon()); err != nil || s.Position != limit {
		t.Errorf("after a release: position %d, %v; want %d", s.Position, err, limit)
	}
}

// A claim that can never be granted would block the queue forever.
func TestMemoryRefusesImpossibleWeight(t *testing.T) {
	m := dsynctest.NewMemory()
	for _, weight := range []int64{-1, 0, 4} {
		c := claim("k", "a", 1)
		c.Weight, c.Limit = weight, 3
		if _, _, err := storecmd.Acquire(t.Context(), m, c, true, nil, soon()); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("weight %d of 3: %v, want ErrRefused", weight, err)
		}
	}
	if keys := m.Records(); len(keys) > 0 {
		t.Errorf("the refused claims have left records of %q", keys)
	}
}

// If a key had a limit below 1, no claim could ever be granted.
func TestMemoryRefusesImpossibleLimit(t *testing.T) {
	m := dsynctest.NewMemory()
	for _, limit := range []int64{0, -1} {
		if _, err := storecmd.Resize(t.Context(), m, "k", driver.KindSemaphore, 1, limit); err == nil || len(m.Records()) > 0 {
			t.Errorf("Resize to %d: %v, records %q; want an error, and no records", limit, err, m.Records())
		}
	}
}

// B07: only the store's clock matters, even when somebody sets it.
func TestMemorySkew_B07(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := dsynctest.NewMemory(), t.Context()
		at, _ := m.Register(ctx, driver.Member{ID: "a", TTL: time.Minute})
		m.Skew(30*time.Second + time.Microsecond)
		if left, err := m.Expire(ctx, "a", false); left != 30*time.Second || err != nil {
			t.Errorf("Expire with the clock 30 s ahead = %v, %v; want 30s", left, err)
		}
		if s, _ := m.Load(ctx, "k", 1000); !s.Now.Equal(at.Add(30 * time.Second)) {
			t.Errorf("the store's clock says %v, want 30 s after %v, in milliseconds", s.Now, at)
		}
		m.Skew(-time.Minute)
		if left, err := m.Expire(ctx, "a", false); left != time.Minute || err != nil {
			t.Errorf("Expire with the clock before the last heartbeat = %v, %v; want the TTL", left, err)
		}
		if p, err := m.Heartbeat(ctx, "a", nil); err != nil || !p.Now.Before(at) {
			t.Errorf("Heartbeat after the clock was set back = %v, %v; want before %v", p.Now, err, at)
		}
		m.Skew(2 * time.Minute)
		if left, err := m.Expire(ctx, "a", false); left != 0 || err != nil {
			t.Errorf("Expire with the clock two minutes ahead = %v, %v; want 0", left, err)
		}
	})
}

// B08: tokens grow in each of a thousand rounds, even if the record is deleted in between or the clock is set back.
func TestMemoryTokensGrow_B08(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := dsynctest.NewMemory(), t.Context()
		const retention = 10 * time.Millisecond
		var last int64
		var st driver.SweepState
		swept := 0
		for i := range 1000 {
			c := claim("k", "a", i)
			s, _, err := storecmd.Acquire(ctx, m, c, true, nil, soon())
			if err != nil || s.Token < last+1024 {
				t.Fatalf("round %d: token %d after %d, %v", i, s.Token, last, err)
			}
			last = s.Token
			storecmd.Release(ctx, m, c, driver.Release{})
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
			t.Errorf("the record was deleted in %d of 1000 rounds, want some of them, but not all", swept)
		}
	})
}

func BenchmarkMemoryLockUnlock(b *testing.B) {
	for _, waiting := range []int{0, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			m, ctx := dsynctest.NewMemory(), b.Context()
			for i := range waiting + 1 {
				storecmd.Acquire(ctx, m, claim("k", "w", i), true, nil, soon())
			}
			i := 0
			for b.Loop() {
				i++
				c := claim("k", "a", i)
				storecmd.Acquire(ctx, m, c, true, nil, soon())
				storecmd.Release(ctx, m, c, driver.Release{})
			}
		})
	}
}

func TestMemoryValuesAreCopies(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	c, sent := claim("k", "a", 1), []byte("value")
	storecmd.Acquire(ctx, m, c, true, nil, soon())
	storecmd.Publish(ctx, m, c, 1, sent)
	sent[0] = 'x'
	s, _ := m.Load(ctx, "k", 1000)
	s.Value[1] = 'x'
	if again, _ := m.Load(ctx, "k", 1000); string(again.Value) != "value" {
		t.Errorf("a caller changed the store's value to %q", again.Value)
	}
}

// A State that was returned to a caller does not change when the store changes, and the caller can't change the
// store through it.
func TestMemoryStatesAreCopies(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	var claims []driver.Claim
	for i := range 3 {
		c := claim("k", "a", i)
		c.Limit = 2
		claims = append(claims, c)
	}
	storecmd.Acquire(ctx, m, claims[0], true, nil, soon())
	storecmd.Acquire(ctx, m, claims[1], true, nil, soon())
	s, _, _ := storecmd.Acquire(ctx, m, claims[2], true, nil, soon())
	storecmd.Release(ctx, m, claims[0], driver.Release{})
	if s.Holders[0].Claim != claims[0].ID || s.Holders[1].Claim != claims[1].ID {
		t.Errorf("a release changed an earlier state to %+v", s.Holders)
	}
	m.Register(ctx, driver.Member{ID: "a", TTL: time.Minute, Meta: map[string]string{"zone": "1"}})
	first, _, _ := storecmd.Members(ctx, m, "a")
	first[0].Meta["zone"] = "2"
	if again, _, _ := storecmd.Members(ctx, m, "a"); again[0].Meta["zone"] != "1" {
		t.Errorf("a caller changed the store's record to %v", again[0].Meta)
	}
	keys := []string{"k"}
	m.Observe(ctx, "a", 1, keys)
	keys[0] = "changed"
	found, _ := storecmd.Observers(ctx, m, "k", "", 1)
	found[0].Meta["zone"] = "2"
	if again, _ := storecmd.Observers(ctx, m, "k", "", 1); len(again) != 1 || again[0].Meta["zone"] != "1" {
		t.Errorf("a caller changed what is observed, or the store's record, to %+v", again)
	}
}

// The caller and the store share no memory, neither in results nor in arguments.
func TestMemoryResultsAreCopies(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	c, sent := claim("k", "a", 1), []byte("result")
	storecmd.Acquire(ctx, m, c, true, nil, soon())
	storecmd.Release(ctx, m, c, driver.Release{Seal: 1, Result: sent})
	sent[0] = 'x'
	s, _ := m.Load(ctx, "k", 1000)
	s.Value[1] = 'x'
	if again, _ := m.Load(ctx, "k", 1000); string(again.Value) != "result" {
		t.Errorf("a caller changed the store's result to %q", again.Value)
	}

	m.Register(ctx, driver.Member{ID: "a", TTL: 1 << 40})
	for _, claim := range []string{"a.1", "a.2"} {
		m.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: claim})
	}
	p, _ := m.Heartbeat(ctx, "a", nil)
	p.Revoked[0].Claim = "changed"
	if again, _ := m.Heartbeat(ctx, "a", nil); len(again.Revoked) != 2 || again.Revoked[0].Claim != "a.1" {
		t.Errorf("a caller changed the store's revocations to %+v", again.Revoked)
	}
}

// A fail-over undoes all early releases after the last commit, and the former primary knows nothing of it.
func TestMemoryFailOver(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	m.Register(ctx, driver.Member{ID: "a", TTL: time.Minute})
	for _, key := range []string{"committed", "undone 1", "undone 2"} {
		c := claim(key, "a", 1)
		storecmd.Acquire(ctx, m, c, true, nil, soon())
	}
	early := func(key string) driver.OpTime {
		done, err := m.Edit(ctx, driver.Edit{Release: &driver.Release{Claim: claim(key, "a", 1), Early: true}})
		if err != nil || !done.Found || done.Applied.Term != 1 {
			t.Errorf("early release of %q: %+v, %v", key, done, err)
		}
		return done.Applied
	}
	early("committed")
	m.Heartbeat(ctx, "a", nil)
	first, second := early("undone 1"), early("undone 2")
	if first.Time >= second.Time {
		t.Errorf("the releases were applied at %v and %v, want the second later", first, second)
	}
	former := m.FailOver()
	for key, want := range map[string]int{"committed": 0, "undone 1": 1, "undone 2": 1} {
		if st, _ := m.Load(ctx, key, 1000); len(st.Holders) != want {
			t.Errorf("key %q has %d holders after the fail-over, want %d", key, len(st.Holders), want)
		}
		if st, _ := former.Load(ctx, key, 1000); len(st.Holders) != 0 {
			t.Errorf("key %q has %d holders at the former primary, want none", key, len(st.Holders))
		}
	}
	storecmd.Acquire(ctx, former, claim("undone 1", "b", 2), true, nil, soon())
	former.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: "a.1"})
	if st, _ := m.Load(ctx, "undone 1", 1000); st.Waiting > 0 {
		t.Error("the new primary has what the former one wrote")
	}
	if p, _ := m.Heartbeat(ctx, "a", nil); len(p.Revoked) > 0 || p.Committed.Term != 2 {
		t.Errorf("a heartbeat after the fail-over returned %+v, want term 2 and no revocations", p)
	}
	if p, _ := former.Heartbeat(ctx, "a", nil); p.Committed.Term != 1 {
		t.Errorf("the former primary is in term %d, want 1", p.Committed.Term)
	}
}
