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

// A hold that was revoked, or that its holder has resigned, is not kept, even if Close begins before its holder is
// done.
func TestBrokenHoldIsNotKeptByClose(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"revoked, then closed": func(r *rig) { r.revoke(); r.step(core.Close{}) },
		"closed, then revoked": func(r *rig) { r.step(core.Close{}); r.revoke() },
		"resigned, then closed": func(r *rig) {
			r.step(core.WindDown{Claim: 1, Hold: r.calls[1], Cause: errors.New("resigned")})
			r.step(core.Close{})
		},
	} {
		r := newRig(t)
		r.held()
		end(r)
		r.leave(1, &driver.Release{Keep: time.Minute})
		r.says(name, "Release")
	}
	r := newRig(t)
	r.held()
	r.step(core.Close{})
	r.leave(1, &driver.Release{Keep: time.Minute})
	r.says("closed", "Release keeping")
}

// If a wake arrives while a request is under way, the claim requests again after the answer, whether or not a listener
// is ready.
func TestWakeDuringARequest(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.wake()
	r.says("a wake", "")
	r.answer("Acquire", r.behind(1))
	r.says("the reply", "Acquire")
	r.answer("Acquire", r.behind(1))
	r.says("the reply to that", "Read")
}

// A grant that arrives while the claim waits for a lane begins the hold at once.
func TestGrantWhileInLine(t *testing.T) {
	r := newRig(t)
	r.inLine()
	r.claim = 2
	r.step(&core.Reply{Command: r.sent["Acquire"].ID, Lost: true, Notices: []driver.Notice{{Type: driver.NoticeGrant, Session: "s", Key: "k", Claim: "s.2", Token: 7000}}})
	r.says("granted", "Deliver 1: hold 1, token 7000")
}

// If an Expire is answered during a Load, it takes effect when the Load is answered. If the claim resumed earlier,
// nobody would handle the Load's reply, and the claim would wait forever.
func TestExpiryDuringALoad(t *testing.T) {
	r := newRig(t)
	r.mismatched()
	r.answer("Load", r.behind(0, "p"))
	r.answer("Read", core.Reply{})
	r.answer("Read", core.Reply{}) // the sessions were unknown to the Core, and now they may have lapsed
	r.says("both have lapsed", "Expire, Expire")
	ofO := r.sent["Expire"].ID - 1
	r.answer("Expire", core.Reply{})
	r.says("one has expired", "Acquire without the expired")
	r.answer("Acquire", core.Reply{Err: &driver.MismatchError{Key: "k", Kind: driver.KindSemaphore}})
	r.says("the other is still in the way", "Load")
	r.step(&core.Reply{Command: ofO})
	r.says("it has expired", "")
	r.answer("Load", r.behind(0, "p"))
	r.says("loaded", "Acquire without the expired")
	if got := r.sent["Acquire"].Edit.Acquire.Expired; len(got) != 2 {
		t.Errorf("the request names %q as expired, want both", got)
	}
}

// If a forced claim is revoked before its grant is known, it requests again to learn of the grant, begins its hold and
// winds it down. If its caller requested another claim instead, two such callers could take the key from each other
// forever without ever holding it.
func TestForcedClaimIsRevokedBeforeItsGrantIsKnown(t *testing.T) {
	r := newRig(t)
	r.begin(first)
	r.answer("Acquire", r.behind(1))
	r.answer("Read", r.member())
	r.answer("Revoke", core.Reply{})
	r.revoke()
	r.says("revoked", "Acquire first")
	r.revoke()
	r.says("revoked again", "")
	r.answer("Acquire", r.granted(5000))
	r.says("granted", "Deliver 1: hold 1, token 5000, End 1: dsync: asked to give the key up")
}

// A Read of sessions that may have lapsed belongs to its claim even if it has waited for a lane: the sessions that the
// Read shows as lapsed are expired without another Read.
func TestReadThatWaitedForALane(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(1, "p"))
	r.answer("Read", r.members(time.Second, "o", "p"))
	r.cfg.Lanes = 1
	r.acquire(9, func(w *core.Want) { w.Key = "other" })
	r.says("another caller", "Acquire")
	r.pass(1100 * time.Millisecond)
	r.says("both may have lapsed", "")
	r.free()
	r.says("a lane is free", "Read")
	r.answer("Read", core.Reply{})
	r.says("both have lapsed", "Expire")
}

// A caller that steps back for a caller with First gets the next turn, ahead of callers that came after it.
func TestCallerThatStepsBackKeepsItsPlace(t *testing.T) {
	r := newRig(t)
	r.waiting()
	r.acquire(2)
	r.acquire(3, first)
	r.answer("Release", core.Reply{})
	r.answer("Acquire", r.grantedTo("s.2", 7000))
	r.says("granted to the first", "Deliver 3: hold 3, token 7000")
	r.step(&core.Done{Claim: 2, Hold: r.calls[3]})
	r.says("it is done", "Freed 3, Deliver 1: hold 1, token 7001")
}

// So does a caller that must wait for the holder of an earlier tick after all, because its session was lost.
func TestTickThatIsPutBackKeepsItsPlace(t *testing.T) {
	r := newRig(t)
	r.ticking()
	r.acquire(3, func(w *core.Want) { w.Kind, w.Tick = driver.KindPeriodic, 2 })
	r.deadline()
	r.done(1)
	r.answer("Register", core.Reply{Session: "s2"})
	r.answer("Acquire", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "s2.3", Session: "s2", Token: 7000}}}})
	r.says("the earlier tick is done", "Deliver 2: hold 2, token 7000")
}

// If a claim in doubt is released, the doubt begins anew: the store's answer that it does not know the claim is
// believed only after another heartbeat.
func TestReleaseOfADoubtedHold(t *testing.T) {
	r := newRig(t)
	r.held()
	r.notHeld()
	r.done(1)
	r.says("done", "Release")
	r.answer("Release", core.Reply{})
	r.says("not there", "")
	r.answer("Heartbeat", core.Reply{})
	r.says("a heartbeat that was sent before the doubt", "Heartbeat")
	r.answer("Heartbeat", core.Reply{})
	r.says("a heartbeat that was sent in doubt", "Release")
	r.answer("Release", core.Reply{})
	r.says("still not there", "Freed 1: dsync: hold lost: the store did not know it any more")
}

// A released lease in doubt outlives its session. The registration of the next session decides.
func TestReleaseOfADoubtedLeaseAfterTheLoss(t *testing.T) {
	r := newRig(t)
	r.leasedLong()
	r.done(1)
	r.answer("Release", core.Reply{})
	r.deadline()
	r.acquire(2, func(w *core.Want) { w.Key = "other" })
	r.answer("Register", core.Reply{Session: "s2"})
	r.says("the next session", "Release, Acquire")
}

// A held lease in doubt ends with its session, because nothing would find out any more whether the store has it: if
// somebody has deleted both records, another may hold the key. But if the doubt came from a deposed primary, the store has
// the lease, so it is released after the grace.
func TestHeldLeaseInDoubtEndsWithItsSession(t *testing.T) {
	for name, doubt := range map[string]func(*rig){
		"Extend":  func(r *rig) { r.notExtended(driver.ErrNotHeld) },
		"Publish": (*rig).notHeld,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.leasedLong()
			r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Minute}})
			r.extending()
			doubt(r)
			r.says("not held", "Heartbeat")
			r.answer("Heartbeat", core.Reply{Err: driver.ErrSessionExpired})
			r.says("the session has expired", "End 1: the store did not show the lease, and its session has ended: dsync: session expired")
			r.done(1)
			r.says("done", "Release")
			if id := r.sent["Release"].Session; id != "s" {
				t.Errorf("the release is sent for session %q, want s", id)
			}
		})
	}
}

// A lease that has outlived its session is lost as soon as the store says that it does not have it, but is released all the
// same, because a deposed primary may have said so.
func TestOutlivedLeaseThatIsNotHeldIsReleased(t *testing.T) {
	r := newRig(t)
	r.leasedLong()
	r.deadline()
	r.extending()
	r.notExtended(driver.ErrNotHeld)
	r.pass(r.cfg.Grace)
	r.says("the grace is over", "Release")
	r.answer("Release", core.Reply{Found: true})
	r.says("the store had it", "Freed 1")
}

// lookFails leaves a look without an answer. The next follows a heartbeat after the pause.
func (r *rig) lookFails(pause time.Duration) {
	r.t.Helper()
	r.answer("Keys", noAnswer)
	r.exactly(pause, "the pause is over", "", "Heartbeat")
	r.answer("Heartbeat", core.Reply{})
	r.says("acknowledged", "Keys")
}

// looking makes the Core read the held lease, whose Extend may have no answer yet, and returns the number of the Keys.
func (r *rig) looking() {
	r.pass(time.Second)
	r.beat()
	r.says("a heartbeat", "Keys")
}

// shown answers the look: the lease's end is the given time from now.
func (r *rig) shown(left time.Duration) {
	h := driver.Holder{Claim: "s.1", Session: "s", Token: 5000, Until: r.clock().Add(left)}
	r.answer("Keys", core.Reply{States: []driver.State{{Key: "k", Holders: []driver.Holder{h}}}})
}

// A look that shows the claim with an end that has come, because the store's clock has jumped, does not end the doubt. A
// later Extend may still be under way, so this process does not know that.
func TestLookShowsALeaseThatIsOver(t *testing.T) {
	r := newRig(t)
	r.leasedLong()
	r.extending()
	r.looking()
	r.shown(-time.Second)
	r.says("over", "Heartbeat")
	r.answer("Heartbeat", core.Reply{})
	r.shown(-time.Second)
	r.says("still over", "End 1: "+deleted)
}

// A look shows a lease's end as of its beginning. If an Extend moves that end while the look is under way, the lease goes
// on, even if the end that the look shows has come before its answer does.
func TestLateLook(t *testing.T) {
	r := newRig(t)
	r.leased()
	extend := func() (until time.Time) {
		until = r.clock().Add(6 * time.Second)
		r.extending()
		r.extended(until)
		return until
	}
	r.pass(2 * time.Second)
	until := extend()
	r.looking()
	r.pass(time.Second)
	extend()
	r.beat()
	extend()
	r.pass(until.Sub(r.clock()) + time.Second)
	r.shown(-time.Second)
	r.says("the end that was shown has come", "")
}

// A look that began before a doubt does not end it.
func TestLookFromBeforeTheDoubt(t *testing.T) {
	r := newRig(t)
	r.leasedLong()
	r.extending()
	r.looking()
	r.notExtended(driver.ErrNotHeld)
	r.says("not held", "Heartbeat")
	r.shown(time.Minute)
	r.says("the look from before", "")
	r.answer("Heartbeat", core.Reply{})
	r.says("a heartbeat that was sent in doubt", "Keys")
	r.answer("Keys", core.Reply{})
	r.says("a look after it", "End 1: "+deleted)
}

// If a heartbeat that was sent in doubt is acknowledged while an earlier look is under way, that look's answer starts the
// look that decides.
func TestLookAfterALateLook(t *testing.T) {
	r := newRig(t)
	r.leasedLong()
	r.extending()
	r.looking()
	r.notExtended(driver.ErrNotHeld)
	r.answer("Heartbeat", core.Reply{})
	r.says("a look is under way", "")
	r.shown(time.Minute)
	r.says("the look from before", "Keys")
	r.answer("Keys", core.Reply{})
	r.says("a look after it", "End 1: "+deleted)
}

// If a look has no answer while a claim is in doubt, another follows a heartbeat after a pause, which grows. Otherwise it
// follows the next heartbeat.
func TestLookWithoutAnAnswer(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		r := newRig(t)
		r.cfg.Backoff = 2 * time.Second
		r.leasedLong()
		r.extending()
		r.looking()
		pauses := []time.Duration{r.cfg.Heartbeat, r.cfg.Heartbeat}
		if doubt {
			r.notExtended(driver.ErrNotHeld)
			r.answer("Heartbeat", core.Reply{})
			pauses = []time.Duration{r.cfg.Retry * 3 / 4, r.cfg.Backoff * 3 / 4}
		}
		for _, pause := range pauses {
			r.lookFails(pause)
		}
	}
}

// A claim that waits for a lease to end requests again when the lease is over.
func TestWaiterForTheEndOfALease(t *testing.T) {
	r := newRig(t)
	r.joining()
	ahead := r.behind(1)
	ahead.State.Holders[0].Until = r.clock().Add(6 * time.Second)
	r.answer("Acquire", ahead)
	r.says("the lease does not end with its session, which is not read", "")
	r.exactly(6*time.Second, "the lease is over", "Heartbeat", "Acquire")
}

// If Close keeps a claim for its holder's grace, it keeps the claim a margin longer, because the store's clock may jump
// by that much.
func TestKeepForTheGraceHasAMargin(t *testing.T) {
	r := newRig(t)
	r.windingDown()
	r.step(core.Close{})
	r.step(core.Hurry{})
	want := r.cfg.Grace + r.cfg.Grace/1000 + r.cfg.Margin
	if got := r.sent["Release"].Edit.Release.Keep; got != want {
		t.Errorf("the claim is kept for %v, want %v", got, want)
	}
	r = newRig(t)
	r.held()
	r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Minute}})
	r.step(core.Close{})
	r.step(core.Hurry{})
	if got := r.sent["Release"].Edit.Release.Keep; got != time.Minute {
		t.Errorf("the claim is kept for %v, want a minute, as its holder said", got)
	}
}

// The tokens of hand-offs stay below the token of the store's next grant.
func TestTokensOfHandOffsEnd(t *testing.T) {
	for linger, most := range map[time.Duration]int64{0: driver.TokenStep, time.Second: driver.TokenRoom} {
		r := newRig(t)
		r.cfg.HandOff, r.cfg.Linger = time.Hour, linger
		r.held()
		holders, holder := int64(1), r.calls[1]
		for ; holders < most+2; holders++ {
			next := &core.Call{Want: holder.Want, Call: holder.Call + 1}
			r.c.Step(r.now, next)
			if effects := r.c.Step(r.now, &core.Done{Claim: 1, Hold: holder}); len(effects) != 2 { // Freed and Deliver
				break
			}
			holder = next
		}
		if holders != most {
			t.Errorf("the claim had %d holders, want %d", holders, most)
		}
	}
}

// If a session lets claims linger, it hands a claim off after HandOff only if no other session waits.
func TestHandOffsEndWhenOthersWait(t *testing.T) {
	for others, want := range map[bool]string{false: "Freed 1, Deliver 2: hold 2, token 5001", true: "Acquire and leave"} {
		r := newRig(t)
		r.cfg.Linger, r.cfg.AlwaysListen = 2*time.Second, true
		r.begin()
		r.listen()
		r.answer("Acquire", r.behind(1))
		r.answer("Acquire", r.granted(5000))
		r.acquire(2)
		if others {
			r.notice(driver.NoticeYield)
		}
		r.pass(r.cfg.HandOff)
		r.done(1)
		r.says("done", want)
	}
}

// A Revoke that failed is sent again.
func TestRevokeIsRepeated(t *testing.T) {
	r := newRig(t)
	r.begin(first)
	r.answer("Acquire", r.behind(1))
	r.answer("Read", r.member())
	r.answer("Revoke", noAnswer)
	r.pass(r.cfg.Backoff)
	r.says("after a pause", "Acquire first")
	r.answer("Acquire", r.behind(1))
	r.says("still behind it", "Revoke")
	r.answer("Revoke", noAnswer)
	r.pass(r.cfg.Backoff)
	r.answer("Acquire", r.behind(1))
	r.says("no answer again", "Revoke")
	r.answer("Revoke", core.Reply{})
	r.pass(5 * time.Second)
	r.answer("Acquire", r.behind(1))
	r.says("it was revoked", "")
}

// An Extend that waited for a lane until its hold had ended is not sent, because it could keep the key held.
func TestNoExtendAfterTheEnd(t *testing.T) {
	r := newRig(t)
	r.leased()
	r.revoke()
	r.extending()
	r.says("in the grace", "")
	r.pass(r.cfg.Hold(6 * time.Second))
	r.extending()
	r.says("the lease is over", "")
}

// The time that an Extend sets is counted from when the Extend was sent.
func TestExtendCountsFromItsSend(t *testing.T) {
	r := newRig(t)
	r.leased()
	r.extending()
	r.pass(time.Second)
	r.extended(r.clock().Add(6 * time.Second))
	r.exactly(r.cfg.Hold(6*time.Second)-time.Second, "its time is over", "", "End 1: dsync: the lease is over after 6s, Freed 1")
}

// A hold that ends because the session has lapsed is not kept: another has been granted the key.
func TestLapsedHoldIsNotKept(t *testing.T) {
	r := newRig(t)
	r.held()
	r.seenAhead(r.cfg.TTL, driver.Holder{Claim: "o.1", Session: "o", Token: 6000, Weight: 1})
	r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Minute}})
	r.done(1)
	r.says("done", "Release")
}

// A semaphore's claim does not linger, even if it takes all units, because the size can grow. A hold with Auto does not
// linger, either: whoever has resigned no longer leads.
func TestNoLingering(t *testing.T) {
	for name, change := range map[string]func(*core.Want){"semaphore": func(w *core.Want) { w.Kind = driver.KindSemaphore }, "auto": auto} {
		r := newRig(t)
		r.cfg.Linger = 2 * time.Second
		r.begin(change)
		r.answer("Acquire", r.granted(5000))
		r.done(1)
		r.says(name, "Release")
	}
}

// A claim does not linger if its session may have missed the notice that others wait.
func TestNoLingeringAfterAMissedNotice(t *testing.T) {
	for _, again := range []bool{false, true} {
		r := newRig(t)
		r.cfg.Linger, r.cfg.AlwaysListen = 2*time.Second, true
		r.begin()
		r.listen()
		if again { // the listener was ready when the request was sent, and breaks
			r.answer("Acquire", r.behind(1))
			r.step(core.ListenerBroken{Listener: 1})
			r.pass(time.Second)
			r.notice(driver.NoticeReady)
		}
		r.answer("Acquire", r.granted(5000))
		r.done(1)
		r.says("done", "Release")
	}
}

// Readers share a hold only as long as it may be handed off. Without a listener, the session would not learn that others
// wait.
func TestReadersDoNotShareForLong(t *testing.T) {
	for handOff, want := range map[time.Duration]string{-1: "Acquire", time.Second: "Acquire", time.Minute: "Deliver 2: hold 1, token 5000"} {
		r := newRig(t)
		r.cfg.HandOff = handOff
		reads := func(w *core.Want) { w.Kind, w.Limit, w.Shares = driver.KindRWMutex, 100, true }
		if r.cfg.AlwaysListen = handOff < 0; r.cfg.AlwaysListen {
			r.begin(reads)
			r.listen()
			r.answer("Acquire", r.behind(1))
		} else {
			r.begin(reads)
		}
		r.answer("Acquire", r.granted(5000))
		r.pass(time.Second)
		r.acquire(2, reads)
		r.says(handOff.String(), want)
		if handOff == time.Second {
			r.answer("Acquire", r.grantedTo("s.2", 6000))
			r.acquire(3, reads)
			r.says("the second hold is new", "Deliver 3: hold 2, token 6000")
		}
	}
}

// A writer hands off to another.
func TestWritersHandOff(t *testing.T) {
	r := newRig(t)
	writes := func(w *core.Want) { w.Kind, w.Weight, w.Limit = driver.KindRWMutex, 100, 100 }
	r.begin(writes)
	r.answer("Acquire", r.granted(5000))
	r.acquire(2, writes)
	r.done(1)
	r.says("done", "Freed 1, Deliver 2: hold 2, token 5001")
}

// A state that was read before a claim was granted does not put the claim in doubt, even if the state comes later.
func TestStateFromBeforeAGrant(t *testing.T) {
	r := newRig(t)
	units := func(w *core.Want) { w.Kind, w.Limit = driver.KindSemaphore, 2 }
	r.begin(units, tries)
	first := r.sent["Acquire"]
	r.acquire(2, units, tries)
	r.now++
	r.step(&core.Reply{Command: first.ID, State: r.granted(5000).State})
	r.now++
	r.answer("Acquire", r.behind(0))
	r.says("the state without the claim", "Read")
}

// One caller for a semaphore at a time waits in the store's queue. A try's claim does not hide its position.
func TestCallersForASemaphore(t *testing.T) {
	r := newRig(t)
	units := func(w *core.Want) { w.Kind, w.Limit = driver.KindSemaphore, 9 }
	r.begin(units)
	r.answer("Acquire", r.behind(2))
	r.acquire(2, units)
	r.says("another caller", "")
	r.giveUp(2)
	r.acquire(3, units, tries)
	r.says("a try", "Acquire")
	r.c.Waits(func(_ *core.Call, position, _ int) {
		if position != 2 {
			t.Errorf("the caller is at position %d, want 2", position)
		}
	})
}

// A reader's hold ends if a writer has been granted the key since.
func TestReaderIsExcludedByAWriter(t *testing.T) {
	r := newRig(t)
	r.begin(func(w *core.Want) { w.Kind, w.Limit, w.Shares = driver.KindRWMutex, 100, true })
	r.answer("Acquire", r.granted(5000))
	r.load()
	r.shows(driver.State{Key: "k", Now: r.clock(), Kind: driver.KindRWMutex, Limit: 100, Holders: []driver.Holder{{Claim: "o.1", Session: "o", Token: 6000, Weight: 100}}})
	r.says("a writer", "End 1: "+deleted+": another has been granted the key, with token 6000")
}

// To the Core, a session lapses at most a TTL after its reading, even if the store's clock has gone back since the
// session's last heartbeat.
func TestLapseIsAtMostATTLAway(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(1))
	ahead := r.members(10*time.Second, "o")
	ahead.Members[0].LastHeartbeat = r.clock().Add(time.Hour)
	r.answer("Read", ahead)
	r.beat()
	r.beat()
	r.pass(2 * time.Second)
	r.says("a TTL after the reading", "Expire")
}

// A registration is repeated if a caller of any key needs it.
func TestRegistrationForSeveralKeys(t *testing.T) {
	r := newRig(t)
	r.acquire(1)
	r.acquire(2, tries, func(w *core.Want) { w.Key = "other" })
	r.answer("Register", noAnswer)
	r.says("no answer", "Deliver 2: no answer")
	r.acquire(3, tries, func(w *core.Want) { w.Key = "other" })
	r.says("a try", "Register")
	r.answer("Register", noAnswer)
	r.pass(time.Second)
	r.says("after a pause", "Register")
	r.answer("Register", core.Reply{Err: driver.ErrRefused})
	r.says("refused", "Deliver 1: dsync: refused by the store")
}

// An Expire without an answer is repeated, however often.
func TestExpireIsRepeated(t *testing.T) {
	r := newRig(t)
	r.waiting()
	r.beat()
	r.beat()
	r.pass(2 * time.Second)
	for range 6 {
		r.answer("Expire", noAnswer)
		delete(r.sent, "Expire")
		r.pass(r.cfg.Retry * 3 / 4)
	}
}

// A reader does not share a hold ahead of a writer that came first.
func TestReadersDoNotOvertakeAWriter(t *testing.T) {
	r := newRig(t)
	reads := func(w *core.Want) { w.Kind, w.Limit, w.Shares = driver.KindRWMutex, 100, true }
	r.begin(reads)
	r.answer("Acquire", r.granted(5000))
	r.acquire(2, func(w *core.Want) { w.Kind, w.Weight, w.Limit = driver.KindRWMutex, 100, 100 })
	r.acquire(3, reads)
	r.says("a reader behind a writer", "")
	r.acquire(4, reads, tries)
	r.says("a try behind a writer", "Deliver 4: "+(&driver.HeldError{Key: "k", Here: true, Session: "s"}).Error())
	r.acquire(5, reads, first)
	r.says("a reader by force", "Deliver 5: hold 1, token 5000")
}

// Only an Expire decides that a session has expired. A Read may be stale, and even a session that should have lapsed by
// now may have sent a heartbeat.
func TestOnlyAnExpireDecides(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(1))
	reading := r.members(10*time.Second, "o")
	reading.Members[0].Expired = true
	r.answer("Read", reading)
	r.says("a reading shows it as expired", "Expire")
	r.answer("Expire", core.Reply{Left: aMoment})
	r.says("it has not lapsed", "")
	r.pass(aMoment)
	r.says("it may have lapsed", "Expire")
	r.answer("Expire", core.Reply{})
	r.says("it has expired", "Acquire without the expired")
}

// A try that is blocked by two sessions is not refused before both have been looked at.
func TestTryBehindTwoSessions(t *testing.T) {
	r := newRig(t)
	r.begin(tries)
	r.answer("Acquire", r.behind(0, "p"))
	r.answer("Read", core.Reply{})
	r.answer("Read", core.Reply{}) // as in TestExpiryDuringALoad
	r.says("both may have lapsed", "Expire, Expire")
	ofO := r.sent["Expire"].ID - 1
	r.answer("Expire", core.Reply{Left: 5 * time.Second})
	r.says("one has not lapsed", "")
	r.step(&core.Reply{Command: ofO})
	r.says("the other has expired", "Acquire without the expired")
}

// A request may still join until one margin after its NotAfter, because the store's clock may step back by that much. A
// claim that is released before then is discarded.
func TestRequestMayJoinWithinTheMargin(t *testing.T) {
	for wait, want := range map[time.Duration]bool{2500 * time.Millisecond: true, 3500 * time.Millisecond: false} {
		r := newRig(t)
		r.held()
		r.pass(wait)
		r.done(1)
		r.answer("Release", core.Reply{Found: true})
		r.beat()
		if got := r.sent["Discard"].ID != 0; got != want {
			t.Errorf("released after %v: a Discard was sent: %v, want %v", wait, got, want)
		}
	}
}

// If a fail-over may have undone a release, the claim is discarded at once, and again when no copy of its request can
// join.
func TestUndoneReleaseIsDiscardedTwice(t *testing.T) {
	r := newRig(t)
	r.cfg.Heartbeat = time.Second
	r.held()
	r.done(1)
	r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
	r.untilHeartbeat()
	r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: 2, Time: 8}})
	r.says("in another term", "Discard")
	first := r.sent["Discard"].ID
	r.answer("Discard", core.Reply{})
	delete(r.sent, "Heartbeat")
	r.pass(r.cfg.Attempt + r.cfg.Margin + r.cfg.Attempt)
	r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: 2, Time: 8}})
	if r.sent["Discard"].ID == first {
		t.Error("the claim is not discarded again")
	}
}

// A request has no answer, and its caller gives up when the request can no longer join. That the release finds nothing
// may be the answer of a deposed primary, so the claim is discarded after a heartbeat.
func TestUnansweredRequestThatNothingIsFoundOf(t *testing.T) {
	r := newRig(t)
	r.cfg.Retry, r.cfg.Backoff = 4*time.Second, 4*time.Second
	r.joining()
	r.pass(r.cfg.Attempt)
	r.answer("Acquire", core.Reply{Lost: true})
	r.pass(r.cfg.Margin + 200*time.Millisecond)
	r.giveUp(1)
	r.answer("Release", core.Reply{})
	r.beat()
	if r.sent["Discard"].ID == 0 {
		t.Error("the claim is not discarded")
	}
}

// Need registers the session, but not a second time while the first registration is under way, nor while it closes.
func TestNeed(t *testing.T) {
	r := newRig(t)
	r.step(core.Need{})
	r.says("the session is needed", "Register")
	r.step(core.Need{})
	r.says("it is registering", "")
	r.answer("Register", core.Reply{Lost: true})
	r.step(core.Need{})
	r.says("a retry is due after a pause", "Register")
	r.answer("Register", core.Reply{Session: "s"})
	r.step(core.Need{})
	r.says("it is registered", "")
	r = newRig(t)
	r.step(core.Close{})
	r.step(core.Need{})
	r.says("it is closed", "")
}

// A Discard follows a heartbeat that was acknowledged when no request of the claim could join any more: a primary that
// was deposed before would not know of a claim that has joined again.
func TestDiscardFollowsAHeartbeat(t *testing.T) {
	r := newRig(t)
	r.held()
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.pass(r.cfg.Heartbeat + time.Second)
	r.says("no request can join any more", "Heartbeat")
	r.step(&core.Reply{Command: r.sent["Heartbeat"].ID, Now: r.clock().Add(-r.cfg.Heartbeat / 2)})
	if r.sent["Discard"].ID != 0 {
		t.Error("the claim is discarded, although by the store's clock its request can still join")
	}
	r.pass(2500 * time.Millisecond)
	r.acquire(2)
	r.answer("Acquire", r.grantedTo("s.2", 9000))
	r.step(&core.Done{Claim: 2, Hold: r.calls[2]})
	r.answer("Release", core.Reply{Found: true})
	r.beat()
	if got := r.sent["Discard"].Claims; len(got) != 1 || got[0].ID != "s.1" {
		t.Errorf("after a heartbeat, %v are discarded, want claim s.1", got)
	}
	r.pass(r.cfg.Attempt + r.cfg.Margin)
	r.answer("Discard", core.Reply{})
	r.says("claim s.2 is not due before a heartbeat", "")
}

// If the store's clock goes back between two requests, the first may join longer than the second.
func TestRequestFromBeforeTheClockWentBack(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", noAnswer)
	r.acquire(2, func(w *core.Want) { w.Key = "other" })
	r.step(&core.Reply{Command: r.sent["Acquire"].ID, State: driver.State{Key: "other", Now: r.clock().Add(-900 * time.Millisecond), Limit: 1, Position: 1, Waiting: 1}})
	r.pass(r.cfg.Retry * 3 / 4)
	r.says("again", "Acquire")
	r.answer("Acquire", r.granted(5000))
	r.pass(2150 * time.Millisecond) // a margin after the second request's NotAfter, but not after the first's
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.beat()
	if r.sent["Discard"].ID == 0 {
		t.Error("the claim is not discarded, although the first request can still join")
	}
}

// If Close does not wait for a holder that has named a successor, the holder learns that the successor was not granted
// the key.
func TestHurryDropsTheSuccessor(t *testing.T) {
	r := newRig(t)
	r.held()
	r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}})
	r.step(core.Close{})
	r.step(core.Hurry{})
	r.says("in a hurry", "Release keeping")
	r.answer("Release", core.Reply{Found: true})
	r.done(1)
	r.says("done", "Freed 1, not as said: dsync: hold lost: dsync: session closed")
}

// A request that was under way while the listener broke and another became ready is repeated: a notice may have been
// missed between the two.
func TestWakeMissedBetweenTwoListeners(t *testing.T) {
	r := newRig(t)
	r.joiningListening()
	r.listen()
	r.answer("Acquire", r.behind(1))
	r.says("the listener became ready after the request", "Acquire")
	r.step(core.ListenerBroken{Listener: 1})
	r.pass(time.Second)
	r.notice(driver.NoticeReady)
	r.answer("Acquire", r.behind(1))
	r.says("another became ready after the next request", "Acquire")
}

// A look that was under way when the session was lost does not keep the next session from looking.
func TestLookOfTheNextSession(t *testing.T) {
	r := newRig(t)
	r.held()
	r.beat()
	r.says("a heartbeat", "Keys")
	r.deadline()
	r.done(1)
	r.acquire(2)
	r.answer("Register", core.Reply{Session: "s2"})
	r.answer("Acquire", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "s2.2", Session: "s2", Token: 6000}}}})
	r.beat()
	r.says("a heartbeat of the next session", "Keys")
}

// A Break has nothing to do with the waiters ahead: it neither reads nor expires their sessions.
func TestBreakIgnoresWaiters(t *testing.T) {
	r := newRig(t)
	r.begin(breaks)
	held := r.behind(1)
	held.State.WaitersAhead = []driver.Waiter{{Claim: "p.1", Session: "p"}}
	r.answer("Load", held)
	if got := r.sent["Read"].Sessions.IDs; !slices.Equal(got, []string{"o"}) {
		t.Errorf("the Break reads the sessions %q, want only the holder's", got)
	}
}

// If the session is lost while its Unregister is under way, Close does not repeat the Unregister, and so returns at
// once.
func TestUnregisterOfALostSession(t *testing.T) {
	r := newRig(t)
	r.cfg.Heartbeat = 9 * time.Second
	r.held()
	r.pass(8900 * time.Millisecond)
	r.step(core.Close{})
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.says("released", "Freed 1, Unregister")
	r.deadline()
	r.says("lost", "")
	r.answer("Unregister", noAnswer)
	r.says("no answer", "Closed, not unregistered")
}

// A hold that takes all of the key is handed off, whatever its kind, unless that is a semaphore.
func TestKindsThatHandOff(t *testing.T) {
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindRWMutex, driver.KindOnce, driver.KindPeriodic, driver.KindElection, driver.KindSemaphore} {
		r := newRig(t)
		of := func(w *core.Want) { w.Kind = kind }
		r.begin(of)
		r.answer("Acquire", r.granted(5000))
		r.acquire(2, of)
		r.done(1)
		want := "Freed 1, Deliver 2: hold 2, token 5001"
		if kind == driver.KindSemaphore {
			want = "Release"
		}
		r.says(string(kind), want)
	}
}

// A claim whose request is still under way is not released by the next caller's request, because the claim could join
// after that.
func TestNoReplaceDuringARequest(t *testing.T) {
	r := newRig(t)
	r.joiningListening()
	r.listen()
	r.notice(driver.NoticeGrant)
	r.acquire(2)
	r.pass(r.cfg.HandOff)
	r.done(1)
	r.says("done", "")
	r.answer("Acquire", r.granted(7000))
	r.says("the request is answered", "Release")
}

// A caller that begins to wait does not shorten the pause after a listener that broke.
func TestWaiterDoesNotHurryTheListener(t *testing.T) {
	r := newRig(t)
	r.waiting()
	r.listen()
	r.step(core.ListenerBroken{Listener: 1})
	r.acquire(9, func(w *core.Want) { w.Key = "other" })
	r.answer("Acquire", r.behind(1))
	if r.listener != 1 {
		t.Errorf("listener %d is opened without a pause", r.listener)
	}
	r.pass(r.cfg.Retry)
	if r.listener != 2 {
		t.Errorf("after the pause, the last listener is number %d, want 2", r.listener)
	}
}

// Once a look has had an answer, the pause after the next failure is short again.
func TestPauseOfLooksIsShortAgain(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = 4 * time.Second
	r.leasedLong()
	r.looking()
	for _, failures := range []int{2, 1} {
		r.extending()
		r.notExtended(driver.ErrNotHeld)
		r.answer("Heartbeat", core.Reply{})
		for n := range failures {
			r.answer("Keys", noAnswer)
			r.pass(r.cfg.Retry * 3 / 4 << n)
			r.says(fmt.Sprintf("failure %d of %d", n+1, failures), "Heartbeat")
			r.answer("Heartbeat", core.Reply{})
		}
		r.shown(time.Minute)
	}
}

// A reading in brief does not replace what is known of a session.
func TestBriefReadingKeepsTheRecord(t *testing.T) {
	r := newRig(t)
	r.waitingHere()
	many := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "p", "q", "r"}
	r.wake()
	r.answer("Acquire", r.behind(1, many...))
	r.answer("Read", r.members(5*time.Second, many...))
	r.beat()
	r.pass(time.Second)
	if read := r.sent["Read"].Sessions; !read.Liveness || !slices.Contains(read.IDs, "o") {
		t.Fatalf("sent %+v, want a reading of all sessions in brief", read)
	}
	r.answer("Read", r.members(5*time.Second, append(many, "o")...))
	if files := r.c.HostFiles(); files["o"] != "file" {
		t.Errorf("HostFiles: %v; want that of o", files)
	}
}

// Close does not wait for the gap after a message about a key.
func TestCloseAfterAChange(t *testing.T) {
	r := newRig(t)
	r.held()
	r.step(core.Close{})
	r.done(1)
	r.answer("Release", core.Reply{Found: true, Notices: []driver.Notice{{Type: driver.NoticeChange, Key: "k"}}})
	r.says("released", "Freed 1, Notify, Unregister")
	r.answer("Unregister", core.Reply{})
	r.says("unregistered", "")
	r.answer("Notify", core.Reply{})
	r.says("announced", "Closed")
}

// No Discard is sent while another is under way, because the answer to one would count for both.
func TestOneDiscardAtATime(t *testing.T) {
	r := newRig(t)
	r.held()
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.pass(2 * time.Second)
	r.acquire(2)
	r.answer("Acquire", r.grantedTo("s.2", 9000))
	r.step(&core.Done{Claim: 2, Hold: r.calls[2]})
	r.answer("Release", core.Reply{Found: true})
	r.beat()
	first := r.sent["Discard"]
	if got := first.Claims; len(got) != 1 || got[0].ID != "s.1" {
		t.Fatalf("after a heartbeat, %v are discarded, want claim s.1", got)
	}
	r.beat()
	if r.sent["Discard"].ID != first.ID {
		t.Error("another Discard is sent while the first is under way")
	}
	r.answer("Discard", core.Reply{})
	r.says("the first is answered", "Discard")
}

// When a writer that waits in this process gives up, the readers behind it share the hold at once.
func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	r := newRig(t)
	reads := func(w *core.Want) { w.Kind, w.Limit, w.Shares = driver.KindRWMutex, 100, true }
	r.begin(reads)
	r.answer("Acquire", r.granted(5000))
	r.acquire(2, func(w *core.Want) { w.Kind, w.Weight, w.Limit = driver.KindRWMutex, 100, 100 })
	r.acquire(3, reads)
	r.says("a reader behind a writer", "")
	r.giveUp(2)
	r.says("the writer gives up", "Deliver 2: dsync: given up, Deliver 3: hold 1, token 5000")
}

// An early release that found nothing is repeated for a majority.
func TestDoubtedReleaseIsNotEarly(t *testing.T) {
	r := newRig(t)
	r.held()
	r.early(1)
	r.says("done", "Release early")
	r.answer("Release", core.Reply{})
	r.answer("Heartbeat", core.Reply{})
	r.says("not there, and a heartbeat", "Release")
}

// Once the store has queued a claim, the pause after its next failure is short again.
func TestPauseOfRequestsIsShortAgain(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = 4 * time.Second
	r.joining()
	for n := range 2 {
		r.answer("Acquire", noAnswer)
		r.pass(r.cfg.Retry * 3 / 4 << n)
		r.says("again", "Acquire")
	}
	r.answer("Acquire", r.behind(1))
	r.wake()
	r.answer("Acquire", noAnswer)
	r.pass(r.cfg.Retry * 3 / 4)
	r.says("after the first pause", "Acquire")
}

// A registration that the store has refused leaves no session behind.
func TestCloseAfterARefusedRegistration(t *testing.T) {
	r := newRig(t)
	r.acquire(1)
	r.answer("Register", core.Reply{Err: driver.ErrRefused})
	r.says("refused", "Deliver 1: dsync: refused by the store")
	r.step(core.Close{})
	r.says("closed", "Closed")
}

// The files of sessions that have died are not looked at any more.
func TestHostFilesOmitTheDead(t *testing.T) {
	r := newRig(t)
	r.waitingHere()
	r.step(core.Died{Session: "o"})
	if files := r.c.HostFiles(); len(files) != 0 {
		t.Errorf("HostFiles: %v; want none, because o has died", files)
	}
}

// A session that has swept, and finds another sweeper, checks as often as one that has never swept.
func TestFormerSweeperChecksAgain(t *testing.T) {
	r := newRig(t)
	r.cfg.Retention = 4 * time.Hour
	r.held()
	swept := func(by string) (pause time.Duration) {
		r.untilSweep()
		r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7, By: by, At: r.clock(), Now: r.clock(), LastRound: 100, Seen: 100}})
		delete(r.sent, "Sweep")
		began := r.now
		r.untilSweep()
		return r.now.Sub(began)
	}
	first := swept("o")
	swept("o")
	swept("s")
	if again := swept("o"); again > first+time.Second {
		t.Errorf("the former sweeper checks after %v, want %v as at first", again, first)
	}
}

// A hold whose first Extend was repeated is released as any other.
func TestReleaseAfterARepeatedExtend(t *testing.T) {
	r := newRig(t)
	r.dating()
	r.answer("Extend", noAnswer)
	r.pass(time.Second)
	r.answer("Extend", core.Reply{Holder: driver.Holder{Until: r.clock().Add(6 * time.Second)}})
	r.says("extended", "Deliver 1: hold 1, token 5000")
	r.early(1)
	r.says("done", "Release early")
}

// A session with several claims in the way is read once.
func TestSessionsInTheWayAreReadOnce(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(1, "p", "o"))
	if got := r.sent["Read"].Sessions.IDs; !slices.Equal(got, []string{"o", "p"}) {
		t.Errorf("the sessions %q are read, want o and p once each", got)
	}
}

// A session that has died has not expired yet: a request within the margin does not name it.
func TestRequestAfterADeath(t *testing.T) {
	r := newRig(t)
	r.waitingHere()
	r.step(core.Died{Session: "o"})
	r.wake()
	r.says("a wake", "Acquire")
}

// A lease that was not granted ends with its session.
func TestUngrantedLeaseEndsWithItsSession(t *testing.T) {
	r := newRig(t)
	beginnings["waiting for a lease"](r)
	r.deadline()
	r.says("session lost", "Register")
}
