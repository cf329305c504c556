package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A revoked hold is not kept, even if Close begins before its holder is done.
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
	r.step(core.NoticesDue{Notices: []driver.Notice{{Type: driver.NoticeWake, Session: "s", Key: "k", Claim: "s.1"}}})
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
	r.step(core.NoticesDue{Notices: []driver.Notice{{Type: driver.NoticeGrant, Session: "s", Key: "k", Claim: "s.2", Token: 7000}}})
	r.says("granted", "Deliver 1: hold 1, token 7000")
}

// An Expire answered during a Load takes effect when the Load is answered. If the claim resumed earlier, nobody would
// handle the Load's reply, and the claim would wait forever.
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
	r.answer("Load", r.behind(0))
	r.says("loaded", "Acquire without the expired")
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

// A Read of sessions that may have lapsed still belongs to its claim after it has waited for a lane: the claim
// expires the sessions that the Read finds lapsed, without another Read.
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
