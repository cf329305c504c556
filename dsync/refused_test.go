package dsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// Status shows a holder as lapsed if its session has expired, however recent the last heartbeat is. Otherwise Status
// shows the holder as lapsed when a TTL has passed since the last heartbeat, and not a millisecond earlier.
func TestStatusShowsLapsedSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		held := func() bool {
			st, err := admin.New(s).Status(background, "k")
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("Status: %v, %v; want one holder", st, err)
			}
			if st.Held() == st.Holders[0].Lapsed {
				t.Errorf("Held is %t and Lapsed %t, want exactly one of them to be true", st.Held(), st.Holders[0].Lapsed)
			}
			return st.Held()
		}
		register := func(id string) {
			now, err := memory.Register(background, driver.Member{ID: id, TTL: ttl})
			noErr(t, err)
			c := driver.Claim{Key: "k", ID: id + ".1", Session: id, Kind: driver.KindMutex, Weight: 1, Limit: 1}
			if _, _, err := storecmd.Acquire(background, memory, c, true, []string{"a"}, now.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		register("a")
		time.Sleep(ttl - time.Millisecond)
		if !held() {
			t.Error("not held a millisecond before the end of the TTL")
		}
		time.Sleep(time.Millisecond)
		if held() {
			t.Error("still held at the end of the TTL")
		}
		if left, err := memory.Expire(background, "a", false); left > 0 || err != nil {
			t.Fatal(left, err)
		}
		register("b")
		if !held() {
			t.Error("not held by a live session")
		}
		noErr(t, storecmd.Unregister(background, memory, "b"))
		if held() {
			t.Error("held by an expired session")
		}
	})
}

// Do waits for the release for at most a third of the TTL. If the store is unreachable, Do still returns the result
// of f.
func TestDoDoesNotWaitForAnUnreachableStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		mu := newSession(t, f, nil).Mutex("k")
		failed := errors.New("the work failed")
		for _, want := range []error{nil, failed} {
			var cut time.Time
			err := mu.Do(background, func(context.Context) error {
				f.Cut()
				cut = time.Now()
				return want
			})
			if d := time.Since(cut); d > ttl/3 {
				t.Errorf("Do returned %v after f, want at most %v", d, ttl/3)
			}
			if err != want {
				t.Errorf("Do: %v, want %v", err, want)
			}
			f.Heal()
			time.Sleep(ttl)
		}
	})
}

// A slow request or reply is not reported as a jump of the store's clock. If the clock really jumps, the reported
// size is at most the real size, because it is only what the replies prove.
func TestClockJumpIsNotOverstated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const slow, back = 1500 * time.Millisecond, 5 * time.Second
		memory := dsynctest.NewMemory()
		var jumps []time.Duration
		beats := 0
		f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method != dsynctest.MethodHeartbeat {
				return dsynctest.Fault{}
			}
			if beats++; beats%2 == 1 {
				return dsynctest.Fault{Delay: slow} // the store reads its clock late
			}
			return dsynctest.Fault{ReplyDelay: slow} // the store reads its clock early
		})
		s := newSession(t, f, &dsync.Options{Hooks: &dsync.Hooks{ClockJump: func(d time.Duration) { jumps = append(jumps, d) }}})
		mu := s.Mutex("k")
		lock(t, mu)
		time.Sleep(10 * ttl)
		synctest.Wait()
		if len(jumps) > 0 {
			t.Fatalf("jumps %v were reported, but there was none", jumps)
		}
		for range 10 {
			memory.Skew(-back)
			time.Sleep(ttl)
		}
		synctest.Wait()
		if len(jumps) != 10 {
			t.Errorf("%d jumps were reported, want 10", len(jumps))
		}
		for _, d := range jumps {
			if d >= 0 || d < -back-2*time.Millisecond {
				t.Errorf("a jump by %v was reported, want up to %v", d, -back)
			}
		}
		mu.Unlock()
	})
}

// New refuses options that are outside the documented bounds, and accepts the bounds themselves.
func TestOptionsBoundaries(t *testing.T) {
	for name, c := range map[string]struct {
		opt dsync.Options
		ok  bool
	}{
		"Retention of two TTLs": {dsync.Options{TTL: ttl, Retention: 2 * ttl}, true},
		"Retention below":       {dsync.Options{TTL: ttl, Retention: 2*ttl - time.Millisecond}, false},
		"Retention negative":    {dsync.Options{TTL: ttl, Retention: -1}, true},
		"anonymous":             {dsync.Options{Anonymous: true}, true},
		"anonymous with Name":   {dsync.Options{Anonymous: true, Name: "n"}, false},
		"anonymous with Host":   {dsync.Options{Anonymous: true, Host: "h"}, false},
		"anonymous with App":    {dsync.Options{Anonymous: true, App: "a"}, false},
		"anonymous with Meta":   {dsync.Options{Anonymous: true, Meta: map[string]string{"k": "v"}}, false},
		"Poll of 10 ms":         {dsync.Options{PollInterval: 10 * time.Millisecond}, true},
		"Poll below":            {dsync.Options{PollInterval: 9 * time.Millisecond}, false},
		"Linger negative":       {dsync.Options{Linger: -1}, false},
		"TTL of a second":       {dsync.Options{TTL: time.Second}, true},
		"TTL below":             {dsync.Options{TTL: 999 * time.Millisecond}, false},
	} {
		s, err := dsync.New(dsynctest.NewMemory(), &c.opt)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want an error: %t", name, err, !c.ok)
		}
		if err == nil {
			s.Close(background)
		}
	}
}

// New copies Meta, so a session that registers again after a loss does not send later changes of the map.
func TestMetaIsCopied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, nil)
		meta := map[string]string{"zone": "a"}
		s := newSession(t, f, &dsync.Options{Meta: meta})
		meta["zone"] = "b"
		for range 2 {
			turn(s.Mutex("k"))
			m, _, err := storecmd.Members(background, memory, s.ID())
			if err != nil || len(m) != 1 || m[0].Meta["zone"] != "a" {
				t.Errorf("registered as %+v (%v), want zone a", m, err)
			}
			f.Cut()
			time.Sleep(2 * ttl)
			f.Heal()
		}
	})
}
