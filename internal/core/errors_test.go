package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

func TestErrors(t *testing.T) {
	held := core.HeldError(&driver.State{Key: "k", Holders: []driver.Holder{{Session: "o"}, {Session: "p"}}, WaitersAhead: []driver.Waiter{{Session: "q"}}})
	if held.Session != "o" {
		t.Errorf("the key is held by %q, want o", held.Session)
	}
	waiting := core.HeldError(&driver.State{Key: "k", WaitersAhead: []driver.Waiter{{Session: "q"}, {Session: "r"}}})
	if waiting.Session != "q" {
		t.Errorf("the first waiter is %q, want q", waiting.Session)
	}
	if new(core.SealedError).Result() == nil {
		t.Error("a result is nil")
	}
	for more, keys := range map[string][]string{"": {"a", "b", "c"}, "and 1 more": {"a", "b", "c", "d"}} {
		got := (&core.NotReleasedError{Keys: keys}).Error()
		if strings.Contains(got, "more") != (more != "") || !strings.Contains(got, more) {
			t.Errorf("%d keys: %q", len(keys), got)
		}
	}
}

// Close says why it has not released a key, and names the key once.
func TestCloseSaysWhy(t *testing.T) {
	r := newRig(t)
	units := func(w *core.Want) { w.Kind, w.Limit = driver.KindSemaphore, 2 }
	r.begin(units)
	r.answer("Acquire", r.granted(5000))
	r.acquire(2, units)
	r.answer("Acquire", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "s.1", Session: "s", Token: 5000}, {Claim: "s.2", Session: "s", Token: 6000}}}})
	r.step(core.Close{})
	for n := range uint64(2) {
		r.step(&core.Done{Claim: 1 + n, Hold: r.calls[1+n]})
		r.answer("Release", core.Reply{Err: driver.ErrRefused})
	}
	for _, e := range r.c.Step(r.now, &core.Reply{Command: r.sent["Unregister"].ID, Err: driver.ErrMismatch}) {
		var not *core.NotReleasedError
		if e, is := e.(core.Closed); is && (!errors.As(e.Err, &not) || len(not.Keys) != 1 || !errors.Is(not, driver.ErrRefused)) {
			t.Errorf("%v, %+v; want one key, refused", e, not)
		}
	}
}

// The cause of a loss does not match the error of the last heartbeat, which a caller could mistake for its own.
func TestLossDoesNotMatchATimeout(t *testing.T) {
	r := newRig(t)
	r.held()
	r.untilHeartbeat()
	r.step(&core.Reply{Command: r.sent["Heartbeat"].ID, Lost: true, Err: context.DeadlineExceeded})
	r.now = r.c.Deadline()
	for _, e := range r.c.Step(r.now, core.Tick{}) {
		if e, is := e.(*core.End); is && (!errors.Is(e.Cause, core.ErrNotRenewed) || errors.Is(e.Cause, context.DeadlineExceeded)) {
			t.Errorf("the hold ends because of %v", e.Cause)
		} else if is && !strings.Contains(e.Cause.Error(), context.DeadlineExceeded.Error()) {
			t.Errorf("%v; want also why the last heartbeat failed", e.Cause)
		}
	}
}
