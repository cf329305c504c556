package core_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// These tests find bugs that somebody had planted in this package, and that neither its other tests nor package explore
// had found.

// If the store has no session any more, Close does not report what its session held.
func TestCloseOfAnExpiredSession(t *testing.T) {
	for name, end := range map[string]func(r *rig){"leaving": func(r *rig) { r.done(1) }, "winding down": (*rig).revoke} {
		r := newRig(t)
		r.held()
		r.untilHeartbeat()
		end(r)
		r.step(core.Close{})
		r.answer("Heartbeat", core.Reply{Err: driver.ErrSessionExpired})
		said := r.said
		r.pass(r.cfg.Grace)
		if said = append(said, r.said...); !slices.Contains(said, "Closed") {
			t.Errorf("%s, and the session has expired: got %q, want Close to report nothing", name, said)
		}
	}
}

// Close reports a release that a fail-over may still undo, even if a copy of the claim's request may still join.
func TestCloseReportsAnUncommittedRelease(t *testing.T) {
	r := newRig(t)
	r.held()
	r.early(1)
	r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
	r.step(core.Close{})
	r.answer("Unregister", core.Reply{Err: driver.ErrRefused})
	r.says("not unregistered", `Closed: not released: "k", not unregistered`)
}

// A lease whose Extend was refused has no end, so that it ends with its session, and Close does not report it.
func TestCloseAfterARefusedExtend(t *testing.T) {
	r := newRig(t)
	r.dating()
	r.answer("Extend", core.Reply{Err: driver.ErrRefused})
	r.step(core.Close{})
	r.answer("Release", core.Reply{Err: driver.ErrRefused})
	r.answer("Unregister", core.Reply{})
	r.says("unregistered", "Closed")
}

// If something needs a heartbeat while one is under way, another follows it at once: the one under way may have been
// executed before.
func TestAnotherHeartbeatFollows(t *testing.T) {
	r := newRig(t)
	r.leaving()
	r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
	r.untilHeartbeat()
	first := r.sent["Heartbeat"].ID
	r.grants("s.1", 5000) // the release may have been undone
	r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: 1, Time: 6}})
	if r.sent["Heartbeat"].ID == first {
		t.Error("no other heartbeat follows")
	}
}

// The answer to a Discard of a lost session says nothing about the claims of the present one.
func TestDiscardOfALostSession(t *testing.T) {
	r := newRig(t)
	undone := func(call, term uint64, claim string) {
		t.Helper()
		r.answer("Acquire", r.grantedTo(claim, int64(5000*call)))
		r.step(&core.Done{Claim: call, Hold: r.calls[call]})
		r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: int64(term), Time: 7}})
		delete(r.sent, "Heartbeat")
		r.untilHeartbeat()
		r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: int64(term) + 1, Time: 8}})
	}
	r.joining()
	undone(1, 1, "s.1")
	old := r.sent["Discard"]
	r.deadline()
	r.acquire(2)
	r.answer("Register", core.Reply{Session: "s2"})
	undone(2, 2, "s2.2")
	present := r.sent["Discard"]
	if present.ID == old.ID {
		t.Fatal("the second session sends no Discard")
	}
	r.sent["Discard"] = old
	r.answer("Discard", core.Reply{})
	r.sent["Discard"] = present
	r.answer("Discard", noAnswer)
	for range 3 {
		r.beat()
		r.pass(time.Second)
	}
	if r.sent["Discard"].ID == present.ID {
		t.Error("the Discard that had no answer is not sent again")
	}
}

// A registration without an answer is repeated after a pause that grows.
func TestRegistrationBacksOff(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = time.Minute
	r.acquire(1)
	var pauses []time.Duration
	for range 4 {
		r.answer("Register", core.Reply{Err: driver.ErrSessionExists, Lost: true})
		sent, began := r.sent["Register"].ID, r.now
		for r.sent["Register"].ID == sent {
			r.pass(100 * time.Millisecond)
		}
		pauses = append(pauses, r.now.Sub(began))
	}
	for i := range 3 {
		if pauses[i+1] < 3*pauses[i]/2 {
			t.Fatalf("registered again after %v, want pauses that double", pauses)
		}
	}
}

// While a claim that its caller gave up is being released, a notice shows that it was granted. That the release finds
// nothing may then be the answer of a deposed primary, so the claim is released again after a heartbeat.
func TestNoticeOfAClaimThatLeaves(t *testing.T) {
	r := newRig(t)
	r.joiningListening()
	r.listen()
	r.answer("Acquire", noAnswer)
	r.giveUp(1)
	r.notice(driver.NoticeGrant)
	first := r.sent["Release"].ID
	r.answer("Release", core.Reply{})
	r.untilHeartbeat()
	r.answer("Heartbeat", core.Reply{})
	if r.sent["Release"].ID == first {
		t.Error("the claim is not released again")
	}
}

// A copy of the request of an unknown claim may still arrive within an attempt's time after the claim has appeared, so
// the claim is discarded later than that.
func TestOrphanIsDiscardedLate(t *testing.T) {
	r := newRig(t)
	r.cfg.AlwaysListen = true
	r.heldForGood()
	r.listen()
	r.pass(2500*time.Millisecond - r.now.Sub(0))
	r.grants("s.7", 5000)
	r.answer("Release", core.Reply{Found: true})
	released := r.now
	for r.sent["Discard"].ID == 0 {
		r.untilHeartbeat()
		r.answer("Heartbeat", core.Reply{})
		delete(r.sent, "Heartbeat")
	}
	if took := r.now.Sub(released); took < r.cfg.Attempt+r.cfg.Margin {
		t.Errorf("the claim was discarded %v after it appeared", took)
	}
}

// A caller that waits for the registration lets a caller with First go ahead.
func TestFirstGoesAheadAtTheRegistration(t *testing.T) {
	r := newRig(t)
	r.acquire(1)
	r.acquire(2, first)
	r.answer("Register", core.Reply{Session: "s"})
	r.says("registered", "Acquire first")
}

// A try that would fit, but must not overtake a waiter, fails at once.
func TestTryBehindAWaiter(t *testing.T) {
	r := newRig(t)
	r.begin(tries, func(w *core.Want) { w.Kind, w.Limit = driver.KindSemaphore, 3 })
	r.answer("Acquire", core.Reply{State: driver.State{
		Kind: driver.KindSemaphore, Limit: 3, Waiting: 1, Holders: []driver.Holder{{Claim: "o.1", Session: "o", Token: 1, Weight: 1}},
	}})
	r.answer("Read", r.member())
	r.says("another waits", `Deliver 1: dsync: "k" is held by another`)
}

// A hold ends if the reading for a Break shows a later one that leaves no room for it.
func TestReadingForABreakEndsAHold(t *testing.T) {
	r := newRig(t)
	r.held()
	r.acquire(2, breaks)
	r.answer("Heartbeat", core.Reply{})
	r.answer("Load", core.Reply{State: driver.State{
		Kind: driver.KindMutex, Limit: 1, Holders: []driver.Holder{{Claim: "o.1", Session: "o", Token: 9000, Weight: 1}},
	}})
	if !slices.ContainsFunc(r.said, func(s string) bool { return strings.HasPrefix(s, "End 1: "+deleted) }) {
		t.Errorf("another holds the key: got %q, want the end of the hold", r.said)
	}
}

// Answered heartbeats give Close no more time to release what is held.
func TestHeartbeatsDoNotProlongClose(t *testing.T) {
	r := newRig(t)
	r.cfg.Heartbeat = 500 * time.Millisecond
	r.leaving()
	r.step(core.Close{})
	began := r.now
	for !slices.ContainsFunc(r.said, func(s string) bool { return strings.HasPrefix(s, "Closed") }) {
		r.alive(100 * time.Millisecond)
		if r.now.Sub(began) > r.cfg.Grace+r.cfg.Attempt {
			t.Fatalf("Close has not returned after %v", r.now.Sub(began))
		}
	}
}

// An extended lease that is short has a short margin and a short grace, like any other.
func TestShortLeaseIsExtended(t *testing.T) {
	r := newRig(t)
	r.cfg.LeastMargin, r.cfg.LeastGrace = 100*time.Millisecond, 100*time.Millisecond
	r.begin(func(w *core.Want) { w.Lease = 3 * time.Second })
	r.answer("Acquire", r.granted(5000))
	r.answer("Extend", core.Reply{Holder: driver.Holder{Until: r.clock().Add(3 * time.Second)}})
	r.pass(time.Second)
	r.extending()
	r.extended(r.clock().Add(3 * time.Second))
	r.pass(r.cfg.Hold(3*time.Second) - time.Millisecond)
	r.says("just before its end", "")
	r.pass(time.Millisecond)
	r.says("at its end", "End 1: dsync: the lease is over after 3s, Freed 1")
}

// When the context of Close ends, the releases that wait for a lane are sent, too.
func TestHurrySendsWhatIsInLine(t *testing.T) {
	r := newRig(t)
	r.held()
	r.acquire(2, func(w *core.Want) { w.Key = "other" })
	r.answer("Acquire", r.grantedTo("s.2", 6000))
	r.cfg.Lanes, r.cfg.PollLanes = 1, 1
	r.done(1)
	r.step(&core.Done{Claim: 2, Hold: r.calls[2]})
	r.says("no lane is free", "")
	r.step(core.Close{})
	r.step(core.Hurry{})
	r.says("in a hurry", "Release")
}

// A heartbeat without an answer is repeated after pauses that double.
func TestHeartbeatBacksOff(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = 4 * time.Second
	r.held()
	r.untilHeartbeat()
	for _, pause := range []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond} {
		r.answer("Heartbeat", noAnswer)
		r.exactly(pause, "after "+pause.String(), "", "Heartbeat")
	}
}

// So is a Revoke.
func TestRevokeBacksOff(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = 8 * time.Second
	r.waitingToBreak()
	for _, pause := range []time.Duration{1500 * time.Millisecond, 3 * time.Second} {
		r.answer("Revoke", noAnswer)
		delete(r.sent, "Load")
		if r.pass(pause - aMoment); r.sent["Load"].ID != 0 {
			t.Errorf("read again before %v", pause)
		}
		r.pass(aMoment)
		r.answer("Load", r.behind(0))
		r.says("after "+pause.String(), "Revoke")
	}
}

// An Expire that was answered ends the pauses that had grown.
func TestExpireIsRepeatedSoonAfterAnAnswer(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = 8 * time.Second
	r.waiting()
	r.beat()
	r.pass(6 * time.Second)
	r.answer("Expire", noAnswer)
	r.pass(750 * time.Millisecond)
	r.answer("Expire", core.Reply{Left: time.Second})
	r.pass(time.Second)
	r.answer("Expire", noAnswer)
	delete(r.sent, "Expire")
	if r.pass(750 * time.Millisecond); r.sent["Expire"].ID == 0 {
		t.Error("the pause is as long as if there had been no answer before")
	}
}

// So does a Notify.
func TestNotifyIsRepeatedSoonAfterAnAnswer(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = 8 * time.Second
	change := func() {
		r.returned(driver.Notice{Type: driver.NoticeChange, Key: "k"})
	}
	r.held()
	change()
	for _, pause := range []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond} {
		r.answer("Notify", noAnswer)
		r.pass(pause)
		r.says("after "+pause.String(), "Notify")
	}
	r.answer("Notify", core.Reply{})
	change()
	r.pass(20 * time.Millisecond)
	r.says("the next change", "Notify")
	r.answer("Notify", noAnswer)
	r.pass(750 * time.Millisecond)
	r.says("after a short pause", "Notify")
}

// A listener that has run for a while is opened again soon, however often listeners had broken before.
func TestListenerIsOpenedSoonAfterARun(t *testing.T) {
	r := newRig(t)
	r.cfg.AlwaysListen, r.cfg.Backoff = true, 8*time.Second
	r.held()
	for range 4 {
		r.step(core.ListenerBroken{Listener: r.listener})
		for broken := r.listener; r.listener == broken; {
			r.alive(time.Second)
		}
	}
	for range 10 {
		r.alive(time.Second)
	}
	broken := r.listener
	r.step(core.ListenerBroken{Listener: broken})
	if r.pass(750 * time.Millisecond); r.listener == broken {
		t.Error("the listener is not opened again")
	}
}

// A waiter requests again when a hold ends that this process has kept.
func TestWaiterBehindAHoldThatIsKeptHere(t *testing.T) {
	r := newRig(t)
	r.kept()
	r.acquire(2)
	ahead := r.behind(1)
	ahead.State.Holders[0] = driver.Holder{Claim: "s.1", Session: "s", Token: 5000, Weight: 1, Until: r.clock().Add(3 * time.Second)}
	r.answer("Acquire", ahead)
	r.exactly(3*time.Second, "at its end", "", "Acquire")
}

// A forced claim polls every five seconds: another forced claim may be granted first.
func TestForcedClaimPolls(t *testing.T) {
	r := newRig(t)
	r.begin(first)
	r.answer("Acquire", r.behind(1))
	r.answer("Read", r.member())
	r.exactly(5*time.Second, "after that", "Heartbeat", "Acquire first")
}

// A kept hold is remembered for a margin longer than it lasts, because the store's clock may be behind.
func TestKeptHoldIsRemembered(t *testing.T) {
	r := newRig(t)
	r.kept()
	r.pass(3*time.Second + r.cfg.Margin/2)
	r.revoke()
	r.says("revoked within the margin", "Release")
}

// If a hold that was to be kept is not there, even after a heartbeat, its holder learns that it was lost.
func TestKeptHoldIsNotThere(t *testing.T) {
	r := newRig(t)
	r.keeping()
	r.answer("Release", core.Reply{})
	r.answer("Heartbeat", core.Reply{})
	r.says("a heartbeat that the doubt has caused", "Release keeping")
	r.answer("Release", core.Reply{})
	r.says("still not there", "Freed 1: dsync: hold lost: the store did not know it any more")
}

// A Discard is due two attempts and a margin after its claim was released.
func TestDiscardIsDue(t *testing.T) {
	r := newRig(t)
	r.cfg.TTL, r.cfg.Heartbeat = time.Minute, 20*time.Second
	r.past()
	r.pass(r.cfg.Margin + 2*r.cfg.Attempt)
	r.says("it is due", "Heartbeat")
	r.answer("Heartbeat", core.Reply{})
	r.says("acknowledged", "Discard")
}

// While the Discard of a claim is refused, a reading that shows the claim costs no heartbeat.
func TestReadingOfAClaimWhoseDiscardIsRefused(t *testing.T) {
	r := newRig(t)
	r.heldForGood()
	r.early(1)
	r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
	r.untilHeartbeat()
	r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: 2, Time: 9}})
	r.says("it may be undone", "Discard")
	r.answer("Discard", core.Reply{Err: driver.ErrRefused})
	r.acquire(2)
	ahead := r.behind(1)
	ahead.State.Holders[0] = driver.Holder{Claim: "s.1", Session: "s", Token: 5000, Weight: 1}
	r.answer("Acquire", ahead)
	r.says("behind it", "")
}

// A lost session's holds that have ended before are not counted as lost with it.
func TestSessionLostCountsHolds(t *testing.T) {
	r := newRig(t)
	r.windingDown()
	watch(r, func(l core.SessionLost) {
		if l.Holds != 0 {
			t.Errorf("%d holds were lost", l.Holds)
		}
	})
	r.deadline()
}

// After a long time without a session, clocks may differ by a thousandth of that time.
func TestJumpAfterALongTime(t *testing.T) {
	r := newRig(t)
	r.held()
	r.deadline()
	r.pass(time.Hour)
	watch(r, func(j core.Jumped) { t.Errorf("a jump by %v is reported", j) })
	r.acquire(2, func(w *core.Want) { w.Key = "other" })
	r.step(&core.Reply{Command: r.sent["Register"].ID, Session: "s2", Now: r.clock().Add(3 * time.Second)})
}
