package core_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

func least(int64) int64  { return 0 }
func most(n int64) int64 { return n - 1 }

// Pauses double up to the longest pause, and both pauses and intervals are jittered.
func TestPauses(t *testing.T) {
	for failed, want := range map[int]time.Duration{0: 1, 1: 2, 2: 4, 3: 5, 4: 5, 40: 5, 1000: 5} {
		want *= time.Second
		if got := core.Pause(time.Second, 5*time.Second, failed, most); got != want {
			t.Errorf("the longest pause after %d failures is %v, want %v", failed, got, want)
		}
		if got := core.Pause(time.Second, 5*time.Second, failed, least); got != want/2 {
			t.Errorf("the shortest pause after %d failures is %v, want %v", failed, got, want/2)
		}
	}
	if a, b := core.Jitter(10*time.Second, 10, least), core.Jitter(10*time.Second, 10, most); a != 9*time.Second || b != 11*time.Second {
		t.Errorf("an interval of 10 s lasts from %v to %v, want 9s to 11s", a, b)
	}
}

// The margin and the grace of a grant are a tenth of it, within their bounds.
func TestHold(t *testing.T) {
	c := core.Config{Margin: 500 * time.Millisecond, Grace: 3 * time.Second, LeastMargin: 100 * time.Millisecond, LeastGrace: 200 * time.Millisecond, Heartbeat: 4 * time.Second, Attempt: time.Second}
	for d, want := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 199500 * time.Microsecond,
		time.Second:            699 * time.Millisecond,
		3 * time.Second:        2397 * time.Millisecond,
		time.Minute:            56440 * time.Millisecond,
	} {
		if got := c.Hold(d); got != want {
			t.Errorf("a grant of %v lasts %v, want %v: the margin is %v, the grace %v", d, got, want, c.MarginOf(d), c.GraceOf(d))
		}
	}
	if got, want := c.Silence(), 5400*time.Millisecond; got != want {
		t.Errorf("the longest silence is %v, want %v", got, want)
	}
}

// The deadline, and the time of the next heartbeat, are counted from when a heartbeat or registration was sent.
func TestTimesCountFromTheSend(t *testing.T) {
	r := newRig(t)
	r.acquire(1)
	sent := r.now
	r.pass(time.Second)
	r.answer("Register", core.Reply{Session: "s"})
	if got, want := r.c.Deadline(), sent.Add(r.cfg.Hold(r.cfg.TTL)); got != want {
		t.Errorf("registered: the deadline is %v, want %v", got, want)
	}
	r.answer("Acquire", r.granted(5000))
	r.untilHeartbeat()
	sent = r.now
	r.pass(time.Second)
	r.answer("Heartbeat", core.Reply{})
	if got, want := r.c.Deadline(), sent.Add(r.cfg.Hold(r.cfg.TTL)); got != want {
		t.Errorf("after a heartbeat: the deadline is %v, want %v", got, want)
	}
	r.pass(r.cfg.Heartbeat - time.Second)
	r.says("an interval after the heartbeat", "Heartbeat")
}

// A registration that is answered at its deadline is of no use.
func TestRegistrationAtItsDeadline(t *testing.T) {
	r := newRig(t)
	r.acquire(1)
	r.now = r.now.Add(r.cfg.Hold(r.cfg.TTL))
	r.answer("Register", core.Reply{Session: "s"})
	r.says("too late", "Register")
}

// Waiters far back in the queue poll less often, and with a listener all poll about once a TTL.
func TestPollTime(t *testing.T) {
	r := newRig(t)
	r.cfg.Poll, r.cfg.AlwaysListen = 0, true
	r.held()
	for position, want := range map[int]time.Duration{1: 250 * time.Millisecond, 3: 750 * time.Millisecond, 9: time.Second} {
		if got := r.c.PollTime(position); got != want {
			t.Errorf("without a listener, waiter %d polls after %v, want %v", position, got, want)
		}
	}
	r.listen()
	if got := r.c.PollTime(3); got != r.cfg.TTL {
		t.Errorf("with a listener, a waiter polls after %v, want %v", got, r.cfg.TTL)
	}
}

// Waiters far back in the queue are slower to expire a session that has lapsed.
func TestStagger(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(3))
	r.answer("Read", r.members(5*time.Second, "o"))
	later := 2 * r.cfg.TTL / 100
	r.pass(5*time.Second + later + later/2 - aMoment)
	if r.sent["Expire"].ID != 0 {
		t.Error("an Expire was sent too early")
	}
	r.pass(aMoment)
	if r.sent["Expire"].ID == 0 {
		t.Error("no Expire was sent")
	}
}

// A jump of the store's clock by more than the margin is reported.
func TestJumps(t *testing.T) {
	for jump, want := range map[time.Duration]bool{-1200 * time.Millisecond: true, -900 * time.Millisecond: false, 0: false, 900 * time.Millisecond: false, 1200 * time.Millisecond: true} {
		r := newRig(t)
		r.held()
		r.untilHeartbeat()
		reports := slices.ContainsFunc(r.c.Step(r.now, &core.Reply{Command: r.sent["Heartbeat"].ID, Now: r.clock().Add(jump)}), func(e core.Effect) bool {
			_, is := e.(core.Jumped)
			return is
		})
		if reports != want {
			t.Errorf("a jump by %v was reported: %v, want %v", jump, reports, want)
		}
	}
}

// An unanswered notice is repeated for at least 15 s, and for no more than about 20 s.
func TestNoticesEnd(t *testing.T) {
	r := newRig(t)
	r.leaving()
	r.answer("Release", core.Reply{Found: true, Notices: []driver.Notice{{Type: driver.NoticeGrant, Session: "o", Key: "k", Claim: "o.1"}}})
	began := r.now
	for r.sent["Notify"].ID != 0 {
		if r.now.Sub(began) > 20*time.Second {
			t.Fatal("a notice is still sent")
		}
		r.answer("Notify", noAnswer)
		delete(r.sent, "Notify")
		r.pass(2 * time.Second)
	}
	if took := r.now.Sub(began); took < 15*time.Second {
		t.Errorf("the notice was sent for %v only", took)
	}
}

// A few sessions are read as whole records, which show who they are. Many sessions are read in brief.
func TestManySessionsAreReadInBrief(t *testing.T) {
	for others, want := range map[string]bool{"p": false, "abcdefghijklmnpqrtu": true} {
		r := newRig(t)
		r.joining()
		r.answer("Acquire", r.behind(1, strings.Split(others, "")...))
		if got := r.sent["Read"].Sessions.Liveness; got != want {
			t.Errorf("%d sessions are read in brief: %v, want %v", len(others)+1, got, want)
		}
	}
}

// A claim does not linger if others waited when it was granted.
func TestGrantBeforeOthersDoesNotLinger(t *testing.T) {
	r := newRig(t)
	r.cfg.Linger = 2 * time.Second
	r.joining()
	granted := r.granted(5000)
	granted.State.Waiting = 1
	r.answer("Acquire", granted)
	r.done(1)
	r.says("done", "Release")
}

// A tick so far ahead that it can't be a time in milliseconds is refused.
func TestFarTick(t *testing.T) {
	r := newRig(t)
	r.begin(func(w *core.Want) {
		w.Kind, w.Tick = driver.KindPeriodic, r.clock().Add(driver.MaxDuration+time.Minute).UnixMilli()
	})
	if len(r.said) != 1 || !strings.HasPrefix(r.said[0], "Deliver 1: the tick is ") {
		t.Errorf("effects %q, want one Deliver with an error about the tick", r.said)
	}
}

// A hold of a semaphore goes on even if another holder has a greater token.
func TestSemaphoreIsNotExcluded(t *testing.T) {
	r := newRig(t)
	r.begin(func(w *core.Want) { w.Kind, w.Limit = driver.KindSemaphore, 2 })
	r.answer("Acquire", r.granted(5000))
	r.load()
	r.shows(driver.State{Key: "k", Now: r.clock(), Kind: driver.KindSemaphore, Limit: 2, Holders: []driver.Holder{{Claim: "o.1", Session: "o", Token: 6000, Weight: 1}}})
	r.says("another holder", "")
}
