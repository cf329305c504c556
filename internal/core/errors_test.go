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
		}
	}
}
