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
	if r.c.Wants("k") {
		t.Error("the hold still has its slot")
	}
}

// If a notice arrives about a released claim, and a fail-over may have undone the release, the session sends a
// heartbeat. The reply says whether the release was undone.
func TestNoticeOfAReleasedClaim(t *testing.T) {
	r := newRig(t)
	r.leaving()
	r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
	r.step(grants("s.1", 5000))
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
		r.step(grants("s.1", 5000))
		r.says("a late notice", "")
		r.beat()
	}
	r.step(grants("s.1", 5000))
	r.says("a notice after two heartbeats", "Release")
}

// After a Hurry, further answers from the store don't give Close more time.
func TestHurryIsBounded(t *testing.T) {
	r := newRig(t)
	r.held()
	r.acquire(2, func(w *core.Want) { w.Key = "other" })
	r.answer("Acquire", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "s.2", Session: "s", Token: 6000}}}})
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
		if answered {
			r.answer("Release", core.Reply{Found: true})
			r.says("released", "Acquire")
		} else {
			r.answer("Release", noAnswer)
			r.says("no answer", `Deliver 2: dsync: "k" is waited for by this process`)
		}
	}
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

// If the listener breaks, another is opened after a pause.
func TestListenerIsReplaced(t *testing.T) {
	r := newRig(t)
	r.cfg.AlwaysListen = true
	r.held()
	r.listen()
	r.step(core.ListenerBroken{Listener: 1})
	r.pass(r.cfg.Backoff)
	if r.listener != 2 {
		t.Error("no other listener is opened")
	}
}

// The session tells the store that a revoked claim was given up, but not before the claim has left the store.
func TestRevocationIsDoneWhenReleased(t *testing.T) {
	r := newRig(t)
	v := driver.Revocation{Key: "k", Claim: "s.1"}
	r.held()
	r.untilHeartbeat()
	r.answer("Heartbeat", core.Reply{Revoked: []driver.Revocation{v}})
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
}

// If a key changes while a notice of an earlier change is under way, the new change is announced, too.
func TestChangeDuringANotify(t *testing.T) {
	r := newRig(t)
	change := core.NoticesDue{Notices: []driver.Notice{{Type: driver.NoticeChange, Key: "k"}}}
	r.held()
	r.step(change)
	r.says("a change", "Notify")
	r.step(change)
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
		r.step(grants(fmt.Sprintf("s.%d", i), 5000))
		r.answer("Acquire", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: fmt.Sprintf("s.%d", i), Session: "s", Token: 5000}}}})
		if i == keys {
			break
		}
		r.acquire(uint64(i+1), func(w *core.Want) { w.Key = fmt.Sprintf("key %03d", i+1) })
	}
	for _, want := range []string{"key 001", "key 501", "key 401"} {
		r.beat()
		got := r.sent["Keys"].Keys
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
