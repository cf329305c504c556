package core_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// These tests are about orders of events that package explore does not reach. They also cover orders whose bad results
// package explore would not notice.

// A hold with Auto whose session is lost while its grace is running is freed when the grace is over.
func TestAutoHoldOfALostSessionIsFreed(t *testing.T) {
	r := newRig(t)
	r.begin(auto)
	r.answer("Acquire", r.granted(5000))
	r.pass(r.c.Deadline().Sub(r.now) - aMoment)
	r.revoke()
	r.deadline()
	r.pass(r.cfg.Grace)
	r.acquire(2)
	r.says("its slot is free", "Register")
}

// If a notice arrives about a released claim, and a fail-over may have undone the release, the session sends a
// heartbeat. The reply says whether the release was undone.
func TestNoticeOfAReleasedClaim(t *testing.T) {
	r := newRig(t)
	r.leaving()
	r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
	r.grants("s.1", 5000)
	r.says("a late notice", "Heartbeat")
}

// A late notice about a released claim is ignored until two heartbeats have been acknowledged.
func TestLateNotice(t *testing.T) {
	r := newRig(t)
	r.cfg.AlwaysListen = true
	r.heldForGood()
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	for range 2 {
		r.grants("s.1", 5000)
		r.says("a late notice", "")
		r.beat()
	}
	r.grants("s.1", 5000)
	r.says("a notice after two heartbeats", "Release")
}

// After a Hurry, further answers from the store don't give Close more time.
func TestHurryIsBounded(t *testing.T) {
	r := newRig(t)
	r.held()
	r.acquire(2, func(w *core.Want) { w.Key = "other" })
	r.answer("Acquire", r.grantedTo("s.2", 6000))
	r.step(core.Close{})
	r.step(core.Hurry{})
	r.pass(r.cfg.Attempt / 2)
	r.answer("Release", core.Reply{Found: true})
	r.says("one is released", "")
	r.pass(r.cfg.Attempt / 2)
	r.says("an attempt's time is over", `Closed: not released: "k", not unregistered`)
}

// Close does not unregister the session while a heartbeat is under way, because the heartbeat could reach the store
// later.
func TestCloseWaitsForAHeartbeat(t *testing.T) {
	r := newRig(t)
	r.held()
	r.untilHeartbeat()
	r.step(core.Close{})
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.says("released", "Freed 1")
	r.answer("Heartbeat", core.Reply{})
	r.says("the heartbeat is answered", "Unregister")
}

// A try waits for the release of a lingering claim that it can't use, but not for more than one command.
func TestTryWaitsForALingeringClaim(t *testing.T) {
	for _, answered := range []bool{true, false} {
		r := newRig(t)
		r.lingering()
		r.acquire(2, tries, auto)
		r.says("a try", "Release")
		r.acquire(3)
		r.giveUp(3)
		r.says("another caller gives up", "Deliver 3: dsync: given up")
		if answered {
			r.answer("Release", core.Reply{Found: true})
			r.says("released", "Acquire")
		} else {
			r.answer("Release", noAnswer)
			r.says("no answer", `Deliver 2: dsync: "k" is waited for by this process`)
		}
	}
}

// No more polls are under way than there are lanes for them, even if other lanes are free.
func TestPollLanes(t *testing.T) {
	r := newRig(t)
	r.cfg.Poll, r.cfg.PollLanes = 2*time.Second, 1
	r.waiting()
	for n := range uint64(2) {
		r.acquire(8+n, func(w *core.Want) { w.Key = fmt.Sprint("other", n) })
		queued := r.behind(1)
		r.answer("Acquire", queued)
	}
	r.pass(2 * time.Second)
	r.says("three polls are due", "Acquire")
	r.answer("Acquire", r.behind(1))
	r.says("one is answered", "Acquire")
}

// Polls get a lane before other commands that wait for one.
func TestPollsComeFirst(t *testing.T) {
	r := newRig(t)
	r.cfg.Poll = 2 * time.Second
	r.waiting()
	r.cfg.Lanes, r.cfg.PollLanes = 1, 1
	r.acquire(8, func(w *core.Want) { w.Key = "first" })
	r.acquire(9, func(w *core.Want) { w.Key = "second" })
	r.pass(2 * time.Second)
	r.free()
	if got := r.sent["Acquire"].Edit.Acquire.Claim.Key; got != "k" {
		t.Errorf("the lane went to a request for %q, want \"k\"", got)
	}
}

// Close uses as many lanes as the store has for Releases, also for those that have waited for a lane.
func TestCloseFillsLanes(t *testing.T) {
	for releases, want := range map[int]bool{0: false, 1: false, 2: true, 1000: true} {
		r := newRig(t)
		r.held()
		r.cfg.Lanes = 1
		r.acquire(9, func(w *core.Want) { w.Key = "other" })
		r.done(1)
		r.step(core.Close{Releases: releases})
		if got := slices.Contains(r.said, "Release"); got != want {
			t.Errorf("if the store takes %d Releases, the one in line was sent: %v, want %v", releases, got, want)
		}
	}
}

// If Close's context ends, Close uses no fewer lanes than before.
func TestHurryKeepsLanes(t *testing.T) {
	const releases = 1100
	r := newRig(t)
	for n := uint64(1); n <= releases+1; n++ {
		r.acquire(n, func(w *core.Want) { w.Key = fmt.Sprint("key ", n) })
		if n == 1 {
			r.answer("Register", core.Reply{Session: "s"})
		}
		r.answer("Acquire", r.grantedTo(fmt.Sprint("s.", n), 7000))
	}
	r.step(core.Close{Releases: releases})
	for n := uint64(1); n <= releases+1; n++ {
		r.step(&core.Done{Claim: n, Hold: r.calls[n]})
	}
	r.says("the last holder is done, and all lanes are in use", "")
	r.step(core.Hurry{})
	r.says("in a hurry", "")
	r.answer("Release", core.Reply{Found: true})
	r.says("a lane is free", "Freed 1100, Release")
}

// A request that waits for a lane when Close begins is never sent, so there is nothing to release.
func TestCloseSendsNoRequests(t *testing.T) {
	r := newRig(t)
	r.inLine()
	r.step(core.Close{Releases: 1000})
	r.says("closed", "Deliver 9: dsync: session closed, Deliver 1: dsync: session closed")
}

// If the listener breaks, another is opened after a pause. The pause is short again if the listener had run for a while.
func TestListenerIsReplaced(t *testing.T) {
	r := newRig(t)
	r.cfg.AlwaysListen, r.cfg.Backoff = true, 2*r.cfg.Retry
	r.held()
	r.listen()
	r.answer("Heartbeat", core.Reply{})
	for n := range uint64(4) {
		r.beat()
		r.pass(time.Second)
		r.step(core.ListenerBroken{Listener: n + 1})
		r.pass(r.cfg.Retry)
		if r.listener != n+2 {
			t.Fatalf("listener %d is not replaced", n+1)
		}
	}
	r.step(core.Noticed{Listener: 1, Notice: driver.Notice{Type: driver.NoticeReady}})
	if receives, _ := r.c.Listening(); receives {
		t.Error("a notice from the first listener makes the last one ready")
	}
	last := r.listener
	r.step(core.ListenerBroken{Listener: last, Unsupported: true})
	r.acquire(2)
	r.answer("Heartbeat", core.Reply{})
	r.beat()
	r.pass(2 * time.Second)
	if r.listener != last {
		t.Error("another listener is opened, although the store can't notify")
	}
}

// A session that is registered sends a heartbeat before it reads the key for a Break. A heartbeat that was already under
// way does not do.
func TestBreakOfARegisteredSession(t *testing.T) {
	r := newRig(t)
	r.registeredToBreak()
	r.says("a Break", "Heartbeat")
	r.acquire(3, breaks)
	r.says("a Break while a heartbeat is under way", "")
	r.answer("Heartbeat", core.Reply{})
	r.says("the first heartbeat", "Load, Heartbeat")
	r.answer("Heartbeat", core.Reply{})
	r.says("the second heartbeat", "Load")
}

// A registration that was under way when a Break began may have been executed before a fail-over, so a heartbeat
// follows at once.
func TestBreakDuringARegistration(t *testing.T) {
	r := newRig(t)
	r.acquire(1, func(w *core.Want) { w.Key = "other" })
	r.acquire(2, breaks)
	r.says("a Break", "")
	r.answer("Register", core.Reply{Session: "s"})
	r.says("registered", "Acquire, Heartbeat")
	r.answer("Heartbeat", core.Reply{})
	r.says("a heartbeat", "Load")
}

// If the heartbeat that was under way when a Break began has no answer, the Break waits for the next one, which comes
// after a pause, and not for the one after it. Meanwhile the store's error is the reason why the Break has not ended.
func TestBreakDuringAHeartbeatWithoutAnAnswer(t *testing.T) {
	r := newRig(t)
	r.begin(func(w *core.Want) { w.Key = "other" })
	r.untilHeartbeat()
	r.acquire(2, breaks)
	r.answer("Heartbeat", noAnswer)
	if err := r.c.Failure(); err == nil {
		t.Error("no failure, although a Break waits for the heartbeat that had no answer")
	}
	r.pass(r.cfg.Retry)
	r.says("a pause", "Heartbeat")
	r.answer("Heartbeat", core.Reply{})
	r.says("the second heartbeat", "Load")
}

// If the store refuses the heartbeat for which a Break waits, the Break ends with that error, as with a refused
// registration.
func TestBreakWhoseHeartbeatIsRefused(t *testing.T) {
	r := newRig(t)
	r.registeredToBreak()
	r.says("a Break", "Heartbeat")
	r.answer("Heartbeat", core.Reply{Err: driver.ErrRefused})
	r.says("refused", "Deliver 2: dsync: refused by the store")
}

// A Break makes a running listener listen for changes of the key, too.
func TestListenerOfABreak(t *testing.T) {
	r := newRig(t)
	r.cfg.AlwaysListen = true
	r.acquire(1, func(w *core.Want) { w.Key = "other" })
	r.answer("Register", core.Reply{Session: "s"})
	r.acquire(2, breaks)
	r.answer("Heartbeat", core.Reply{})
	r.answer("Load", r.behind(0))
	r.pass(10 * time.Millisecond)
	if r.listener != 2 {
		t.Errorf("the last listener is number %d, want 2", r.listener)
	}
}

// A Break that stops the listener opens another at once, even if it reads the key again before it waits. Otherwise the
// other callers of its process would get no notices until the next heartbeat.
func TestListenerOfABreakThatReadsAgain(t *testing.T) {
	r := newRig(t)
	r.waiting()
	r.listen()
	r.acquire(2, func(w *core.Want) { *w = core.Want{Key: "k2"} })
	r.answer("Heartbeat", core.Reply{})
	r.step(core.Noticed{Listener: r.listener, Notice: driver.Notice{Type: driver.NoticeChange, Key: "k2"}})
	before := r.listener
	r.answer("Load", r.behind(0))
	r.says("held, but changed meanwhile", "Revoke, Load")
	if r.listener == before {
		t.Error("no other listener is opened")
	}
}

// A listener stays open as long as a claim lingers.
func TestListenerOfALingeringClaim(t *testing.T) {
	r := newRig(t)
	r.cfg.Linger = time.Minute
	r.begin()
	r.notice(driver.NoticeReady)
	r.answer("Acquire", r.granted(5000))
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.acquire(2)
	r.answer("Acquire", r.grantedTo("s.2", 6000))
	r.step(&core.Done{Claim: 2, Hold: r.calls[2]})
	r.says("done", "Freed 2")
	for range 4 {
		r.beat()
	}
	if receives, _ := r.c.Listening(); !receives {
		t.Error("the listener is closed")
	}
}

// The session tells the store once that a revoked claim was given up, but not before the claim has left the store.
func TestRevocationIsDoneWhenReleased(t *testing.T) {
	r := newRig(t)
	r.cfg.TTL, r.cfg.Grace = time.Minute, 10*time.Second
	v := driver.Revocation{Key: "k", Claim: "s.1"}
	r.held()
	r.untilHeartbeat()
	r.answer("Heartbeat", core.Reply{Revoked: []driver.Revocation{v}})
	r.beat()
	if got := r.sent["Heartbeat"].Revoked; len(got) > 0 {
		t.Errorf("during the grace, the heartbeat had the revocations %v, want none", got)
	}
	r.done(1)
	r.says("done", "Release")
	r.beat()
	if got := r.sent["Heartbeat"].Revoked; len(got) > 0 {
		t.Errorf("before the release was answered, the heartbeat had the revocations %v, want none", got)
	}
	r.answer("Release", core.Reply{Found: true})
	r.beat()
	if got := r.sent["Heartbeat"].Revoked; len(got) != 1 || got[0] != v {
		t.Errorf("the heartbeat had the revocations %v, want only %v", got, v)
	}
	r.beat()
	if got := r.sent["Heartbeat"].Revoked; len(got) > 0 {
		t.Errorf("once the store knows, the heartbeat had the revocations %v, want none", got)
	}
}

// If a key changes while a notice of an earlier change is under way, the new change is announced, too.
func TestChangeDuringANotify(t *testing.T) {
	r := newRig(t)
	change := driver.Notice{Type: driver.NoticeChange, Key: "k"}
	r.held()
	r.returned(change)
	r.says("a change", "Notify")
	r.returned(change)
	r.says("another", "")
	r.answer("Notify", core.Reply{})
	r.pass(time.Second)
	r.says("later", "Notify")
	r.answer("Notify", core.Reply{})
	r.pass(time.Second)
	r.says("no further change", "")
}

// A look reads a limited number of keys, and the next look continues where it stopped.
func TestLooksRotate(t *testing.T) {
	const keys, most = 600, 500
	r := newRig(t)
	r.acquire(1, func(w *core.Want) { w.Key = "key 001" })
	r.answer("Register", core.Reply{Session: "s"})
	for i := 1; ; i++ {
		r.grants(fmt.Sprintf("s.%d", i), 5000)
		r.answer("Acquire", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: fmt.Sprintf("s.%d", i), Session: "s", Token: 5000}}}})
		if i == keys {
			break
		}
		r.acquire(uint64(i+1), func(w *core.Want) { w.Key = fmt.Sprintf("key %03d", i+1) })
	}
	for _, want := range []string{"key 001", "key 501", "key 401"} {
		r.beat()
		got := r.sent["Keys"].Keys.Keys
		if len(got) != most || got[0] != want {
			t.Errorf("the look reads %d keys, beginning with %s, want %d, beginning with %s", len(got), got[0], most, want)
		}
		r.answer("Keys", core.Reply{Err: errors.New("no answer")})
	}
}

// If an unanswered registration may have left a session behind, Close reports it until the session must have lapsed.
func TestCloseAfterAnUnansweredRegistration(t *testing.T) {
	for after, want := range map[time.Duration]string{13 * time.Second: "Closed, not unregistered", 15 * time.Second: "Closed"} {
		r := newRig(t)
		r.acquire(1)
		r.answer("Register", noAnswer)
		r.giveUp(1)
		r.pass(after)
		r.step(core.Close{})
		r.says(after.String(), want)
	}
}

// Close refuses callers that wait for the registration. It reports the registration if it has no answer in time.
func TestCloseDuringARegistration(t *testing.T) {
	r := newRig(t)
	r.acquire(1)
	r.step(core.Close{})
	r.says("closing", "Deliver 1: "+core.ErrClosed.Error())
	r.c.Waits(func(*core.Call, int, int) { t.Error("the caller still has its slot") })
	r.pass(r.cfg.Grace + r.cfg.Attempt)
	r.says("no answer", "Closed, not unregistered")
}

// The Unregister has no time limit of its own: Close returns an attempt's time after the store's last answer, even if
// the Unregister had to wait for an unanswered heartbeat.
func TestUnregisterIsInTime(t *testing.T) {
	r := newRig(t)
	r.held()
	r.untilHeartbeat()
	r.step(core.Close{})
	r.pass(r.cfg.Grace)
	r.answer("Release", core.Reply{Found: true})
	r.pass(r.cfg.Attempt / 2)
	r.answer("Heartbeat", noAnswer)
	r.says("the heartbeat is not answered", "Unregister")
	r.pass(r.cfg.Attempt / 2)
	r.says("an attempt's time after the release", "Closed, not unregistered")
}

// A later waiter looks at a session ahead a stagger after the session has lapsed. What the waiter learns meanwhile does
// not postpone that.
func TestLaterWaiterLooksAfterItsStagger(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(3, "p")) // the third waits for 360 ms
	r.answer("Read", r.onHost(0, "o", "p"))
	r.step(core.Died{Session: "p"}) // so it lapses a margin later
	r.pass(r.cfg.Margin + 200*time.Millisecond)
	r.step(core.Died{Session: "o"})
	r.says("before the stagger is over", "")
	r.pass(160 * time.Millisecond)
	r.says("a stagger after the lapse", "Expire of a dead process")
}

// If a session ahead had lapsed before the wait began, as after an outage, the stagger counts from when the wait began.
// Otherwise all waiters would look at once.
func TestStaggerAfterAnOutage(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(3))
	r.answer("Read", r.members(5*time.Second, "o"))
	r.giveUp(1)
	r.answer("Release", core.Reply{Found: true})
	r.beat()
	r.beat()
	r.acquire(2)
	r.answer("Acquire", r.behind(3))
	r.says("queued", "")
	r.pass(359 * time.Millisecond)
	r.says("before the stagger is over", "")
	r.pass(time.Millisecond)
	r.says("a stagger after the wait began", "Expire")
}
