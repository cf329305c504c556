package core_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A tableCase brings a claim into a state, makes something happen, and lists the claim's next state and the expected
// effects.
type tableCase struct {
	from  string // a name in beginnings; its first word is the claim's state
	event string
	do    func(r *rig)
	next  string
	says  string
}

func (k *tableCase) name() string { return k.from + ", " + k.event }

// beginnings bring the claim into a state.
var beginnings = map[string]func(r *rig){
	"joining a try": begins(tries), "joining by force": begins(first), "waiting by force": queuedUp(first), "waiting for a lease": queuedUp(leases),
	"waiting for a poll":   func(r *rig) { r.cfg.Poll = 2 * time.Second; r.waiting() },
	"checking for a lease": func(r *rig) { r.begin(leases, tries); r.answer("Acquire", r.behind(0)) },
	"checking by force":    func(r *rig) { r.begin(first); r.answer("Acquire", mismatch) },
	"checking in line": func(r *rig) {
		r.cfg.Lanes, r.cfg.PollLanes = 1, 1
		r.begin()
		join := r.sent["Acquire"]
		r.acquire(9, func(w *core.Want) { w.Key = "other" })
		r.sent["Acquire"] = join
		r.answer("Acquire", mismatch)
	},
	"dating a try": takes(leases, tries), "dating by force": takes(leases, first), "held with Auto": takes(auto),
	"leaving in line": func(r *rig) {
		r.cfg.Lanes, r.cfg.PollLanes = 1, 1
		r.held()
		r.acquire(9, func(w *core.Want) { w.Key = "other" })
		r.done(1)
	},
	"leaving when the grace is over": func(r *rig) { r.windingDown(); r.pass(time.Second) },
	"leaving after a Hurry":          func(r *rig) { r.windingDown(); r.step(core.Close{}); r.step(core.Hurry{}) },
	"kept while its holder is not done": func(r *rig) {
		r.cfg.Attempt = 8 * time.Second
		r.windingDown()
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", core.Reply{Found: true})
	},
	"kept although its holder is not done": func(r *rig) {
		r.held()
		r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: 3 * time.Second}})
		r.step(core.WindDown{Claim: 1, Hold: r.calls[1], Cause: errors.New("notice")})
		r.pass(time.Second)
		r.answer("Release", core.Reply{Found: true})
	},
	"joining to break": begins(breaks), "joining to break, not registered": func(r *rig) { r.acquire(1, breaks) }, "joining to break, registered": (*rig).registeredToBreak, "waiting to break": (*rig).waitingToBreak,
	"kept for a minute": func(r *rig) {
		r.held()
		r.leave(1, &driver.Release{Keep: time.Minute})
		r.answer("Release", core.Reply{Found: true})
	},
	"joining": (*rig).joining, "joining and listening": (*rig).joiningListening, "joining in line": (*rig).inLine, "waiting": (*rig).waiting, "checking": (*rig).checking,
	"checking a mismatch": (*rig).mismatched, "dating": (*rig).dating, "dating in line": (*rig).datingInLine, "held": (*rig).held, "held for a tick": (*rig).ticking, "held for a lease": (*rig).leased, "held for a long lease": (*rig).leasedLong,
	"lingering": (*rig).lingering, "windingDown": (*rig).windingDown, "lost": (*rig).lost, "leaving": (*rig).leaving,
	"leaving to be kept": (*rig).keeping, "held for good": (*rig).heldForGood, "kept": (*rig).kept, "kept for the grace": (*rig).hurried, "past": (*rig).past, "past and listening": (*rig).pastListening, "gone": (*rig).gone,
}

// begins returns a beginning in which the claim is joining.
func begins(change ...func(*core.Want)) func(r *rig) { return func(r *rig) { r.begin(change...) } }

// queuedUp returns a beginning in which the claim is waiting.
func queuedUp(change ...func(*core.Want)) func(r *rig) {
	return func(r *rig) {
		r.begin(change...)
		r.answer("Acquire", r.behind(1))
		r.answer("Read", r.member())
	}
}

// takes returns a beginning in which the claim has been granted: it is held, or dating if it is a lease.
func takes(change ...func(*core.Want)) func(r *rig) {
	return func(r *rig) {
		r.begin(change...)
		r.answer("Acquire", r.granted(5000))
	}
}

var mismatch = core.Reply{Err: &driver.MismatchError{Key: "k", Kind: driver.KindSemaphore}}

// free is the result of a Break.
const free = "dsync: given up by those that held it"

// noAnswer is the reply to a command without an answer.
var noAnswer = core.Reply{Lost: true}

// tableCases are cases for all rows of the claim's table.
var tableCases = []tableCase{
	{"joining a try", "reply: too late", func(r *rig) { r.answer("Acquire", core.Reply{}) }, "joining", "Acquire"},
	{"joining a try", "reply: too late, twice", func(r *rig) { r.answer("Acquire", core.Reply{}); r.answer("Acquire", core.Reply{}) }, "past", "Deliver 1: dsync: the request came too late to count"},
	{"joining a try", "no answer", func(r *rig) { r.answer("Acquire", noAnswer) }, "leaving", "Deliver 1: no answer, Release"},
	{"joining a try", "reply: too late, and the key has room for it", func(r *rig) {
		r.answer("Acquire", core.Reply{State: driver.State{Limit: 3, Holders: []driver.Holder{{Claim: "o.1", Session: "o", Weight: 2}}}})
	}, "joining", "Acquire"},
	{"joining by force", "revoked, and granted", func(r *rig) { r.revoke(); r.answer("Acquire", r.granted(5000)) }, "windingDown", "Deliver 1: hold 1, token 5000, End 1: dsync: asked to give the key up"},
	{"waiting by force", "revoked", (*rig).revoke, "joining", "Acquire first"},
	{"waiting by force", "another here wants it by force, but gives up, and granted", func(r *rig) {
		r.acquire(2, first)
		r.giveUp(2)
		r.grants("s.1", 7000)
	}, "held", "Deliver 1: hold 1, token 7000"},
	{"checking by force", "revoked, and granted", func(r *rig) { r.revoke(); r.grants("s.1", 7000) }, "windingDown", "Deliver 1: hold 1, token 7000, End 1: dsync: asked to give the key up"},
	{"dating by force", "revoked, and extended", func(r *rig) { r.revoke(); r.answer("Extend", core.Reply{}) }, "windingDown", "Deliver 1: hold 1, token 5000, End 1: dsync: asked to give the key up"},
	{"waiting for a poll", "poll", func(r *rig) { r.pass(2 * time.Second) }, "joining", "Acquire"},
	{"waiting for a lease", "notice: granted", func(r *rig) { r.grants("s.1", 7000) }, "dating", "Extend"},
	{"checking for a lease", "notice: granted", func(r *rig) { r.grants("s.1", 7000) }, "dating", "Extend"},
	{"checking", "notice: granted", func(r *rig) { r.grants("s.1", 7000) }, "held", "Deliver 1: hold 1, token 7000"},
	{"checking", "closing", func(r *rig) { r.step(core.Close{}) }, "past", "Deliver 1: dsync: session closed, Unregister"},
	{"checking in line", "a lane is free", (*rig).free, "checking", "Load"},
	{"checking a mismatch", "no answer, and a pause", func(r *rig) { r.answer("Load", noAnswer); r.pass(time.Second) }, "joining", "Acquire"},
	{"dating in line", "a lane is free", (*rig).free, "dating", "Extend"},
	{"dating a try", "no answer", func(r *rig) { r.answer("Extend", noAnswer) }, "leaving", "Deliver 1: no answer, Release"},
	{"dating", "closing", func(r *rig) { r.step(core.Close{}) }, "leaving", "Deliver 1: dsync: session closed, Release"},
	{"dating in line", "session lost, and registered again", func(r *rig) {
		r.deadline()
		r.cfg.Lanes, r.cfg.PollLanes = 32, 8
		r.answer("Register", core.Reply{Session: "s2"})
	}, "gone", "Acquire, Acquire"},
	{"held", "done, the next here waited too long; the claim of the next", func(r *rig) { r.acquire(2); r.pass(time.Second); r.done(1); r.claim = 2 }, "joining", "Acquire and leave"},
	{"held for a tick", "the next one is granted; the claim of the next", func(r *rig) {
		r.answer("Acquire", r.grantedTo("s.2", 9000))
		r.claim = 2
	}, "leaving", "End 1: " + deleted + ": another has been granted the key, with token 9000, Release"},
	{"held for a tick", "the next one waits, and is granted", func(r *rig) {
		r.answer("Acquire", r.behind(1))
		r.grants("s.2", 9000)
		r.claim = 2
	}, "leaving", "End 1: " + deleted + ": the store has granted a later tick, Release"},
	{"held for a tick", "the next one finds another kind, and is granted", func(r *rig) {
		r.answer("Acquire", mismatch)
		r.answer("Load", r.behind(0))
		r.grants("s.2", 9000)
		r.claim = 2
	}, "leaving", "End 1: " + deleted + ": the store has granted a later tick, Release"},
	{"held for a long lease", "over by the store's clock, and two looks do not show it", func(r *rig) {
		r.beat()
		r.answer("Keys", core.Reply{})
		r.step(&core.Reply{Command: r.sent["Heartbeat"].ID, Now: r.clock().Add(2 * time.Minute)})
		r.answer("Keys", core.Reply{})
	}, "lost", "End 1: dsync: the lease is over after 1m0s, Freed 1"},
	{"held with Auto", "revoked, and done after the grace", func(r *rig) { r.revoke(); r.pass(time.Second); r.done(1) }, "leaving", ""},
	{"lingering", "session lost, and wanted here", func(r *rig) { r.deadline(); r.acquire(2) }, "gone", "Register"},
	{"held", "gives notice, and done, to be kept", func(r *rig) {
		r.step(core.WindDown{Claim: 1, Hold: r.calls[1], Cause: errors.New("notice")})
		r.leave(1, &driver.Release{Keep: time.Minute})
	}, "leaving", "Release"},
	{"held", "closing, and done, to be kept", func(r *rig) { r.step(core.Close{}); r.leave(1, &driver.Release{Keep: time.Minute}) }, "leaving", "Release keeping"},
	{"windingDown", "while closing, the time of the store is over, unseen", func(r *rig) {
		r.step(core.Close{})
		r.now = r.now.Add(4 * time.Second)
		r.step(core.Tick{})
	}, "lost", "Closed: not released: \"k\", not unregistered"},
	{"held with Auto", "closing, and the time of the store is over, unseen", func(r *rig) {
		r.step(core.Close{})
		r.now = r.now.Add(4 * time.Second)
		r.step(core.Tick{})
	}, "gone", "Freed 1: dsync: not released: dsync: session closed: the store did not answer in time: context deadline exceeded, Closed: not released: \"k\", not unregistered"},
	{"leaving in line", "a lane is free", (*rig).free, "leaving", "Release"},
	{"leaving", "answered: not there; two heartbeats", func(r *rig) {
		r.answer("Release", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.pass(4 * time.Second)
		r.answer("Heartbeat", core.Reply{})
	}, "leaving", ""},
	{"leaving when the grace is over", "done", func(r *rig) { r.done(1) }, "leaving", "Freed 1"},
	{"leaving when the grace is over", "answered", func(r *rig) { r.answer("Release", core.Reply{Found: true}) }, "lost", ""},
	{"leaving when the grace is over", "answered, and done", func(r *rig) { r.answer("Release", core.Reply{Found: true}); r.done(1) }, "past", "Freed 1"},
	{"leaving when the grace is over", "session lost", (*rig).deadline, "lost", ""},
	{"leaving when the grace is over", "session lost, and done", func(r *rig) { r.deadline(); r.done(1) }, "gone", "Freed 1: dsync: hold lost: no heartbeat was acknowledged within 9.988s"},
	{"leaving after a Hurry", "revoked, and answered", func(r *rig) { r.revoke(); r.answer("Release", core.Reply{Found: true}) }, "kept", "Unregister"},
	{"kept while its holder is not done", "done", func(r *rig) { r.done(1) }, "kept", "Freed 1, not as said: dsync: hold lost: dsync: session closed"},
	{"kept while its holder is not done", "session lost", (*rig).deadline, "lost", "Closed, not unregistered"},
	{"kept while its holder is not done", "session lost, and done", func(r *rig) { r.deadline(); r.done(1) }, "gone", "Freed 1, not as said: dsync: hold lost: dsync: session closed"},
	{"kept although its holder is not done", "time over", func(r *rig) { r.pass(5 * time.Second) }, "lost", "Heartbeat"},
	{"kept although its holder is not done", "time over, and done", func(r *rig) { r.pass(5 * time.Second); r.done(1) }, "past", "Freed 1"},
	{"kept for a minute", "session lost", (*rig).deadline, "gone", ""},
	{"joining to break", "nobody holds the key", func(r *rig) { r.answer("Load", core.Reply{}) }, "gone", "Deliver 1: " + free},
	{"joining to break", "a lease is over", func(r *rig) {
		over := r.behind(0)
		over.State.Holders[0].Until = r.clock()
		r.answer("Load", over)
	}, "gone", "Deliver 1: " + free},
	{"joining to break", "a lease ends later than it seemed, because the store's clock went back", func(r *rig) {
		later := r.behind(0)
		later.State.Now, later.State.Holders[0].Until = r.clock().Add(-2*time.Second), r.clock()
		r.step(&core.Reply{Command: r.sent["Load"].ID, State: later.State})
		r.pass(time.Second)
	}, "waiting", ""},
	{"joining to break", "somebody holds the key", func(r *rig) { r.answer("Load", r.behind(0)) }, "waiting", "Revoke, Read"},
	{"joining to break", "session lost before the answer, which shows a holder", func(r *rig) {
		r.untilHeartbeat()
		late := r.sent["Load"].ID
		r.answer("Heartbeat", core.Reply{Err: driver.ErrSessionExpired})
		r.step(&core.Reply{Command: late, State: r.behind(0).State})
	}, "joining", "Register"},
	{"joining to break, registered", "a heartbeat is acknowledged", func(r *rig) { r.answer("Heartbeat", core.Reply{}) }, "joining", "Load"},
	{"joining to break, not registered", "registered", func(r *rig) { r.answer("Register", core.Reply{Session: "s"}) }, "joining", "Load"},
	{"joining to break, not registered", "registering has no answer", func(r *rig) { r.answer("Register", noAnswer); r.pass(time.Second) }, "joining", "Register"},
	{"joining to break, not registered", "registering is refused", func(r *rig) { r.answer("Register", core.Reply{Err: driver.ErrRefused}) }, "gone", "Deliver 1: dsync: refused by the store"},
	{"joining to break", "no answer, and a pause", func(r *rig) { r.answer("Load", noAnswer); r.pass(time.Second) }, "joining", "Load"},
	{"joining to break", "refused", func(r *rig) { r.answer("Load", core.Reply{Err: driver.ErrRefused}) }, "gone", "Deliver 1: dsync: refused by the store"},
	{"joining to break", "closing", func(r *rig) { r.step(core.Close{}) }, "gone", "Deliver 1: dsync: session closed, Unregister"},
	{"waiting to break", "reading again without an answer, and session lost", func(r *rig) {
		r.listen()
		r.untilHeartbeat()
		r.answer("Load", noAnswer)
		r.answer("Heartbeat", core.Reply{Err: driver.ErrSessionExpired})
	}, "joining", "Load"},
	{"waiting to break", "given up", func(r *rig) { r.giveUp(1) }, "gone", "Deliver 1: dsync: given up"},
	{"waiting to break", "closing", func(r *rig) { r.step(core.Close{}) }, "gone", "Deliver 1: dsync: session closed, Unregister"},
	{"waiting to break", "session lost", (*rig).deadline, "joining", "Load"},
	{"waiting to break", "session lost, and somebody still holds the key", func(r *rig) { r.deadline(); r.answer("Load", r.behind(0)) }, "joining", "Register"},
	{"waiting to break", "session lost, and registered again", func(r *rig) {
		r.deadline()
		r.answer("Load", r.behind(0))
		r.answer("Register", core.Reply{Session: "s2"})
		r.answer("Load", r.behind(0))
	}, "waiting", ""},
	{"waiting to break", "notice: the key has changed", func(r *rig) { r.listen(); r.answer("Load", r.behind(0)); r.notice(driver.NoticeChange) }, "joining", "Load"},
	{"waiting to break", "another has acquired a part of the key since", func(r *rig) { r.listen(); r.answer("Load", r.behind(0, "o2")) }, "waiting", ""},
	{"waiting to break", "only another has the key by now", func(r *rig) {
		r.listen()
		later := r.behind(0)
		later.State.Holders[0].Claim = "o.2"
		r.answer("Load", later)
	}, "gone", "Deliver 1: " + free},
	{"waiting to break", "the revocation has no answer, and a pause", func(r *rig) {
		r.answer("Revoke", noAnswer)
		r.pass(time.Second)
		r.answer("Load", r.behind(0))
	}, "waiting", "Revoke"},
	{"waiting to break", "the revocation is refused", func(r *rig) { r.answer("Revoke", core.Reply{Err: driver.ErrRefused}) }, "gone", "Deliver 1: dsync: refused by the store"},
	{"waiting to break", "the session in the way has expired", func(r *rig) { r.beat(); r.pass(6 * time.Second); r.answer("Expire", core.Reply{}) }, "joining", "Acquire without the expired"},
	{"waiting to break", "the session in the way has expired, its claim stays, and session lost", func(r *rig) {
		r.beat()
		r.pass(6 * time.Second)
		r.answer("Expire", core.Reply{})
		r.answer("Acquire", r.behind(0))
		r.deadline()
	}, "joining", "Load"},
	{"waiting to break", "the session in the way has expired, and its claim is dropped", func(r *rig) {
		r.beat()
		r.pass(6 * time.Second)
		r.answer("Expire", core.Reply{})
		r.answer("Acquire", core.Reply{})
	}, "gone", "Deliver 1: " + free},
	{"waiting to break", "the session in the way has expired, and this one, too", func(r *rig) {
		r.beat()
		r.pass(6 * time.Second)
		r.answer("Expire", core.Reply{})
		r.answer("Acquire", core.Reply{Err: driver.ErrSessionExpired})
	}, "joining", ""},
	{"waiting to break", "the session in the way has expired, and the key is in use as another kind", func(r *rig) {
		r.beat()
		r.pass(6 * time.Second)
		r.answer("Expire", core.Reply{})
		r.answer("Acquire", mismatch)
	}, "joining", "Load"},
	{"joining", "reply: granted", func(r *rig) { r.answer("Acquire", r.granted(5000)) }, "held", "Deliver 1: hold 1, token 5000"},
	{"joining", "reply: queued", func(r *rig) { r.answer("Acquire", r.behind(1)) }, "waiting", "Read"},
	{"joining", "reply: queued, and observers are to be notified", func(r *rig) {
		queued := r.behind(1)
		queued.Notices = []driver.Notice{{Type: driver.NoticeChange, Key: "k"}}
		r.answer("Acquire", queued)
	}, "waiting", "Read, Notify"},
	{"joining", "reply: queued behind a claim of this session that it does not know", func(r *rig) {
		queued := r.behind(2)
		queued.State.WaitersAhead = []driver.Waiter{{Claim: "s.77", Session: "s"}}
		r.answer("Acquire", queued)
	}, "waiting", "Release, Read"},
	{"joining", "reply: too late", func(r *rig) { r.answer("Acquire", core.Reply{}) }, "joining", ""},
	{"joining", "reply: refused", func(r *rig) { r.answer("Acquire", core.Reply{Err: driver.ErrRefused}) }, "past", "Deliver 1: dsync: refused by the store"},
	{"joining", "reply: sealed", func(r *rig) { r.answer("Acquire", core.Reply{State: driver.State{Sealed: 1}}) }, "past", "Deliver 1: dsync: the tick is over"},
	{"held for a tick", "done, and others for the next ones wait; the next is over, and then the last", func(r *rig) {
		r.acquire(3, forTick(2))
		r.acquire(4, forTick(5))
		r.acquire(5, forTick(5))
		r.answer("Acquire", core.Reply{State: driver.State{Sealed: 2}})
		r.answer("Acquire", core.Reply{State: driver.State{Sealed: 5}})
		r.claim = 3
	}, "past", "Deliver 4: dsync: the tick is over, Deliver 5: dsync: the tick is over"},
	{"held for a tick", "done, and another for the next one waits", func(r *rig) { r.acquire(3, forTick(2)); r.done(1) }, "leaving", "Release"},
	{"joining", "reply: another kind", func(r *rig) {
		r.answer("Acquire", core.Reply{Err: &driver.MismatchError{Key: "k", Kind: driver.KindSemaphore}})
	}, "checking", "Load"},
	{"joining", "no answer", func(r *rig) { r.answer("Acquire", noAnswer) }, "joining", ""},
	{"joining", "no answer, and a pause", func(r *rig) { r.answer("Acquire", noAnswer); r.pass(time.Second) }, "joining", "Acquire"},
	{"joining and listening", "notice: granted", func(r *rig) { r.listen(); r.notice(driver.NoticeGrant) }, "held", "Deliver 1: hold 1, token 7000"},
	{"joining and listening", "notice: granted, a reply from before that, and done", func(r *rig) {
		r.listen()
		r.notice(driver.NoticeGrant)
		r.answer("Acquire", core.Reply{})
		r.done(1)
	}, "leaving", "Release"},
	{"joining and listening", "the listener is ready, and then queued", func(r *rig) { r.listen(); r.answer("Acquire", r.behind(1)) }, "joining", "Acquire"},
	{"joining", "notice: wake, and then queued", func(r *rig) {
		r.answer("Acquire", r.behind(1))
		r.listen()
		r.notice(driver.NoticeWake)
		r.answer("Acquire", r.behind(1))
	}, "joining", "Acquire"},
	{"joining", "given up", func(r *rig) { r.giveUp(1) }, "leaving", "Deliver 1: dsync: given up"},
	{"joining", "given up, and then no answer", func(r *rig) { r.giveUp(1); r.answer("Acquire", noAnswer) }, "leaving", "Release"},
	{"joining", "given up, and then granted", func(r *rig) { r.giveUp(1); r.answer("Acquire", r.granted(5000)) }, "leaving", "Release"},
	{"joining", "revoked", func(r *rig) { r.revoke() }, "leaving", "Acquire"},
	{"joining", "session lost", (*rig).deadline, "gone", "Register"},
	{"joining", "closing", func(r *rig) { r.step(core.Close{}) }, "leaving", "Deliver 1: dsync: session closed"},
	{"joining in line", "a lane is free", (*rig).free, "joining", "Acquire"},
	{"joining in line", "given up", func(r *rig) { r.giveUp(1) }, "past", "Deliver 1: dsync: given up"},
	{"joining in line", "somebody here wants it by force", func(r *rig) { r.acquire(3, first); r.free() }, "past", "Acquire first"},
	{"waiting", "notice: granted", func(r *rig) { r.listen(); r.answer("Acquire", r.behind(1)); r.notice(driver.NoticeGrant) }, "held", "Deliver 1: hold 1, token 7000"},
	{"waiting", "notice: wake", func(r *rig) { r.listen(); r.answer("Acquire", r.behind(1)); r.notice(driver.NoticeWake) }, "joining", "Acquire"},
	{"waiting", "the listener is ready", (*rig).listen, "joining", "Acquire"},
	{"waiting", "poll", func(r *rig) {
		for range 5 {
			r.beat()
			if r.sent["Expire"].ID != 0 {
				r.answer("Expire", core.Reply{Left: 30 * time.Second})
			}
		}
		r.pass(time.Second)
	}, "joining", ""},
	{"waiting", "a session ahead may have lapsed", func(r *rig) { r.beat(); r.beat(); r.pass(2 * time.Second) }, "waiting", "Expire"},
	{"waiting", "a session ahead has expired", func(r *rig) {
		r.beat()
		r.beat()
		r.pass(2 * time.Second)
		r.answer("Expire", core.Reply{})
	}, "joining", "Acquire without the expired"},
	{"waiting", "given up", func(r *rig) { r.giveUp(1) }, "leaving", "Deliver 1: dsync: given up, Release"},
	{"waiting", "revoked", func(r *rig) { r.revoke() }, "leaving", "Release, Acquire"},
	{"waiting", "closing", func(r *rig) { r.step(core.Close{}) }, "leaving", "Deliver 1: dsync: session closed, Release"},
	{"waiting", "session lost", (*rig).deadline, "gone", "Register"},
	{"checking", "the session in the way lives", func(r *rig) { r.answer("Read", r.member()) }, "past", "Deliver 1: dsync: \"k\" is held by another"},
	{"checking", "the session in the way has lapsed", func(r *rig) { r.answer("Read", core.Reply{}) }, "checking", "Expire"},
	{"checking", "the session in the way has expired", func(r *rig) { r.answer("Read", core.Reply{}); r.answer("Expire", core.Reply{}) }, "joining", "Acquire without the expired"},
	{"checking", "no answer", func(r *rig) { r.answer("Read", noAnswer) }, "past", "Deliver 1: no answer"},
	{"checking", "given up", func(r *rig) { r.giveUp(1) }, "past", "Deliver 1: dsync: given up"},
	{"checking", "revoked", func(r *rig) { r.revoke() }, "past", "Acquire"},
	{"checking", "session lost", (*rig).deadline, "gone", "Register"},
	{"checking a mismatch", "no answer", func(r *rig) { r.answer("Load", noAnswer) }, "joining", ""},
	{"checking a mismatch", "a lane is free", func(r *rig) {
		r.cfg.Lanes = 1
		r.acquire(9, func(w *core.Want) { w.Key = "other" })
		r.answer("Load", noAnswer)
		r.step(&core.Reply{Command: r.sent["Acquire"].ID, Lost: true, Err: errors.New("no answer")})
	}, "joining", ""},
	{"checking a mismatch", "the session in the way lives", func(r *rig) { r.answer("Load", r.behind(0)); r.answer("Read", r.member()) }, "past", "Deliver 1: dsync: key \"k\" is in use with kind semaphore, not "},
	{"checking a mismatch", "the session in the way can't be read", func(r *rig) { r.answer("Load", r.behind(0)); r.answer("Read", noAnswer) }, "joining", ""},
	{"checking a mismatch", "the session in the way has expired", func(r *rig) {
		r.answer("Load", r.behind(0))
		r.answer("Read", core.Reply{})
		r.answer("Expire", core.Reply{})
	}, "joining", "Acquire without the expired"},
	{"dating", "extended", func(r *rig) { r.answer("Extend", core.Reply{}) }, "held", "Deliver 1: hold 1, token 5000"},
	{"dating", "no answer", func(r *rig) { r.answer("Extend", noAnswer) }, "dating", ""},
	{"dating", "no answer, and a pause", func(r *rig) { r.answer("Extend", noAnswer); r.pass(time.Second) }, "dating", "Extend"},
	{"dating", "not held", func(r *rig) { r.answer("Extend", core.Reply{Err: driver.ErrNotHeld}) }, "leaving", "Release, Acquire"},
	{"dating", "answered when the lease is over", func(r *rig) { r.now = r.now.Add(r.cfg.Hold(6 * time.Second)); r.answer("Extend", core.Reply{}) }, "leaving", "Release, Acquire"},
	{"dating", "refused", func(r *rig) { r.answer("Extend", core.Reply{Err: driver.ErrRefused}) }, "leaving", "Deliver 1: dsync: refused by the store, Release"},
	{"dating", "given up", func(r *rig) { r.giveUp(1) }, "leaving", "Deliver 1: dsync: given up, Release"},
	{"dating", "revoked", func(r *rig) { r.revoke() }, "leaving", "Release, Acquire"},
	{"dating", "session lost", (*rig).deadline, "leaving", "Release, Register"},
	{"dating", "no answer, and session lost", func(r *rig) { r.answer("Extend", noAnswer); r.deadline() }, "leaving", "Release, Register"},
	{"dating", "no answer, closing, hurry, no answer, and unregistered", func(r *rig) {
		r.answer("Extend", noAnswer)
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", noAnswer)
		r.answer("Unregister", core.Reply{})
	}, "gone", "Closed: not released: \"k\""},
	{"dating in line", "session lost", (*rig).deadline, "gone", "Register"},
	{"held", "done, the next here fits", func(r *rig) { r.acquire(2); r.done(1) }, "held", "Freed 1, Deliver 2: hold 2, token 5001"},
	{"held", "done, the next here waited too long", func(r *rig) { r.acquire(2); r.pass(time.Second); r.done(1) }, "leaving", "Acquire and leave"},
	{"held", "done", func(r *rig) { r.done(1) }, "leaving", "Release"},
	{"held", "done, and the next here wants a lease", func(r *rig) { r.acquire(2, leases); r.done(1) }, "leaving", "Release"},
	{"held", "done, the next here waited too long, and no answer", func(r *rig) {
		r.acquire(2)
		r.pass(time.Second)
		r.done(1)
		r.answer("Acquire", noAnswer)
	}, "leaving", "Release"},
	{"held for good", "done, applied, not committed yet, and a fail-over", func(r *rig) {
		r.done(1)
		r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 8}})
		r.untilHeartbeat()
		r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: 1, Time: 7}})
		delete(r.sent, "Heartbeat")
		r.untilHeartbeat()
		r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: 2, Time: 9}})
	}, "past", "Discard"},
	{"held for good", "done, applied, and a fail-over", func(r *rig) {
		r.done(1)
		r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
		r.untilHeartbeat()
		r.answer("Heartbeat", core.Reply{Committed: driver.OpTime{Term: 2, Time: 8}})
	}, "past", "Discard"},
	{"held", "session lost, registered again, and then the reply to a heartbeat", func(r *rig) {
		r.untilHeartbeat()
		r.deadline()
		r.acquire(9, func(w *core.Want) { w.Key = "other" })
		r.answer("Register", core.Reply{Session: "s2"})
		r.claim = 2
		r.answer("Heartbeat", core.Reply{Err: driver.ErrSessionExpired})
	}, "joining", ""},
	{"held", "done, early", func(r *rig) { r.early(1) }, "leaving", "Release early"},
	{"held", "done, early, no answer, and a pause", func(r *rig) { r.early(1); r.answer("Release", noAnswer); r.pass(time.Second) }, "leaving", "Release"},
	{"held", "done, early, with a successor", func(r *rig) { r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}}); r.early(1) }, "leaving", "Release to o.2"},
	{"held", "done, and kept", func(r *rig) { r.leave(1, &driver.Release{Keep: time.Second}) }, "leaving", "Release keeping"},
	{"held", "done, and sealed", func(r *rig) { r.leave(1, &driver.Release{Seal: 1}) }, "leaving", "Release sealing"},
	{"held", "done, with a successor", func(r *rig) { r.doneFor("o.2") }, "leaving", "Release to o.2"},
	{"held", "done, as said before: kept", func(r *rig) {
		r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Second}})
		r.done(1)
		r.answer("Release", core.Reply{Found: true})
	}, "kept", "Freed 1"},
	{"held", "to be kept, revoked, and done", func(r *rig) {
		r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Second}})
		r.revoke()
		r.done(1)
	}, "leaving", "Release"},
	{"held", "winds down, to be kept, revoked, and done", func(r *rig) {
		r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Second}})
		r.step(core.WindDown{Claim: 1, Hold: r.calls[1], Cause: errors.New("notice")})
		r.revoke()
		r.done(1)
	}, "leaving", "Release"},
	{"held", "gives notice", func(r *rig) { r.step(core.WindDown{Claim: 1, Hold: r.calls[1], Cause: errors.New("notice")}) }, "windingDown", "End 1: notice"},
	{"held", "closing", func(r *rig) { r.step(core.Close{}) }, "windingDown", "End 1: dsync: session closed"},
	{"held", "revoked", func(r *rig) { r.revoke() }, "windingDown", "End 1: dsync: asked to give the key up"},
	{"held for a tick", "the next one is granted", func(r *rig) {
		r.answer("Acquire", r.grantedTo("s.2", 9000))
	}, "windingDown", "End 1: " + deleted + ": another has been granted the key, with token 9000, Release"},
	{"held for a tick", "the next one is granted by a notice", func(r *rig) {
		r.listen()
		r.step(core.Noticed{Listener: r.listener, Notice: driver.Notice{Type: driver.NoticeGrant, Session: "s", Key: "k", Claim: "s.2", Token: 9000}})
	}, "windingDown", "End 1: " + deleted + ": the store has granted a later tick"},
	{"held", "a reading does not show it", func(r *rig) { r.pass(time.Second); r.seen() }, "held", "Heartbeat"},
	{"held", "a reading from before the grant does not show it", func(r *rig) { r.load(); r.pass(time.Second); r.shows(driver.State{Key: "k"}) }, "held", ""},
	{"held", "a reading shows another, with a greater token", func(r *rig) { r.seen(driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1}) },
		"windingDown", "End 1: " + deleted + ": another has been granted the key, with token 5001"},
	{"held", "a reading shows another just before its TTL is over", func(r *rig) {
		r.seenAhead(12*time.Second-1, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
	}, "windingDown", "End 1: " + deleted + ": another has been granted the key, with token 5001"},
	{"held", "a reading shows another when its TTL is over", func(r *rig) {
		r.seenAhead(12*time.Second, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
	}, "windingDown", "End 1: dsync: session not renewed: by the store's clock its TTL was over, and another has been granted the key, with token 5001, Heartbeat"},
	{"held for a long lease", "a reading shows another when the session's TTL is over", func(r *rig) {
		r.seenAhead(12*time.Second, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
	}, "windingDown", "End 1: " + deleted + ": another has been granted the key, with token 5001"},
	{"held for a long lease", "a reading shows another when the lease is over", func(r *rig) {
		r.seenAhead(2*time.Minute, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
	}, "lost", "End 1: dsync: the lease is over after 1m0s, Freed 1"},
	{"held for a long lease", "a reading from before its end shows another, when the lease is over", func(r *rig) {
		r.answerAhead(2 * time.Minute)
		r.seen(driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
	}, "lost", "End 1: dsync: the lease is over after 1m0s, Freed 1"},
	{"held for a long lease", "session lost, and a Break here", func(r *rig) {
		r.deadline()
		r.acquire(2, breaks)
		holder := core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "s.1", Session: "s", Token: 5000, Until: r.clock().Add(time.Minute)}}}}
		r.answer("Register", core.Reply{Session: "s2"})
		r.answer("Load", holder)
	}, "windingDown", "End 1: dsync: asked to give the key up"},
	{"held for a lease", "an Extend that a later one has overtaken in the store is answered first", func(r *rig) {
		first := r.extending()
		r.pass(2 * time.Second)
		r.extending()
		until := r.clock().Add(6 * time.Second)
		r.extendedBy(first, until)
		r.extended(until)
		r.pass(r.cfg.Hold(6*time.Second) - time.Millisecond)
	}, "held", "Heartbeat"},
	{"held for a lease", "an older Extend is answered after a later one", func(r *rig) {
		older := r.extending()
		until := r.clock().Add(6 * time.Second)
		r.pass(2 * time.Second)
		r.extending()
		r.extended(r.clock().Add(6 * time.Second))
		r.extendedBy(older, until)
		r.pass(3 * time.Second)
	}, "held", "Heartbeat"},
	{"held", "a reading shows another, with a smaller token", func(r *rig) {
		r.pass(time.Second)
		r.seen(driver.Holder{Claim: "o.1", Session: "o", Token: 4999, Weight: 1})
	}, "held", "Heartbeat"},
	{"held", "a reading shows it with another token", func(r *rig) {
		r.pass(time.Second)
		r.seen(driver.Holder{Claim: "s.1", Session: "s", Token: 4999, Weight: 1})
	}, "held", "Heartbeat"},
	{"held", "a reading shows it with a greater token", func(r *rig) {
		r.pass(time.Second)
		r.seen(driver.Holder{Claim: "s.1", Session: "s", Token: 5001, Weight: 1})
	}, "windingDown", "End 1: " + deleted + ": another has been granted the key, with token 5001"},
	{"held", "its holder's command is refused", func(r *rig) { r.notHeld() }, "held", "Heartbeat"},
	{"held", "a reading does not show it, and done, and the next here fits", func(r *rig) {
		r.acquire(2)
		r.now++
		r.seen()
		r.done(1)
	}, "leaving", "Acquire and leave"},
	{"held", "a look does not show it", func(r *rig) { r.beat(); r.answer("Keys", core.Reply{}) }, "held", "Heartbeat"},
	{"held", "a look from before the next grant does not show that", func(r *rig) {
		r.beat()
		r.now++
		r.done(1)
		r.answer("Release", core.Reply{Found: true})
		r.acquire(2)
		r.answer("Acquire", r.grantedTo("s.2", 9000))
		r.answer("Keys", core.Reply{})
	}, "past", ""},
	{"held", "a look has no answer", func(r *rig) { r.beat(); r.answer("Keys", noAnswer) }, "held", ""},
	{"held", "two looks do not show it", func(r *rig) {
		r.beat()
		r.answer("Keys", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{})
	}, "windingDown", "End 1: " + deleted},
	{"held", "the second look shows it, and the third does not", func(r *rig) {
		r.beat()
		r.answer("Keys", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{States: []driver.State{{Key: "k", Holders: r.granted(5000).State.Holders}}})
		r.beat()
		r.answer("Keys", core.Reply{})
	}, "held", "Heartbeat"},
	{"held", "the second look comes after a heartbeat that was under way at the first", func(r *rig) {
		r.beat()
		r.pass(4 * time.Second) // the next heartbeat has been sent
		r.answer("Keys", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{})
	}, "held", ""},
	{"held", "the third look comes after one that was sent later", func(r *rig) {
		r.beat()
		r.pass(4 * time.Second)
		r.answer("Keys", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{})
	}, "windingDown", "End 1: " + deleted},
	{"held for a long lease", "two looks do not show it", func(r *rig) {
		r.beat()
		r.answer("Keys", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{})
	}, "windingDown", "End 1: " + deleted},
	{"lingering", "two readings do not show it", func(r *rig) {
		r.pass(time.Second)
		r.seen()
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{})
	}, "leaving", "Release"},
	{"windingDown", "a reading does not show it", func(r *rig) { r.now++; r.seen() }, "windingDown", ""},
	{"held for a tick", "the next one is granted after the grace", func(r *rig) {
		r.revoke()
		r.pass(time.Second)
		r.answer("Acquire", r.grantedTo("s.2", 9000))
	}, "leaving", "Release"},
	{"held", "somebody here wants it by force", func(r *rig) { r.acquire(2, first) }, "windingDown", "End 1: dsync: asked to give the key up"},
	{"held", "progress, again in time", func(r *rig) {
		r.progress(2 * time.Second)
		r.pass(time.Second)
		r.progress(2 * time.Second)
		r.pass(1900 * time.Millisecond)
	}, "held", ""},
	{"held", "progress, and no more within the limit", func(r *rig) { r.progress(2 * time.Second); r.pass(2 * time.Second) }, "windingDown", "End 1: dsync: no progress within the limit"},
	{"held", "progress, no more within the limit, and the grace", func(r *rig) { r.progress(2 * time.Second); r.pass(3 * time.Second) }, "leaving", "End 1: dsync: no progress within the limit, Release"},
	{"held", "progress, again with a shorter limit", func(r *rig) { r.progress(9 * time.Second); r.progress(2 * time.Second); r.pass(2 * time.Second) }, "windingDown", "End 1: dsync: no progress within the limit"},
	{"held", "progress, again when the limit has passed unseen", func(r *rig) { r.progress(2 * time.Second); r.now = r.now.Add(2 * time.Second); r.progress(time.Minute) }, "windingDown", "End 1: dsync: no progress within the limit"},
	{"held", "progress, and the limit is removed", func(r *rig) { r.progress(2 * time.Second); r.progress(0); r.pass(3 * time.Second) }, "held", ""},
	{"held", "progress, and handed off", func(r *rig) { r.progress(2 * time.Second); r.acquire(2); r.done(1); r.pass(3 * time.Second) }, "held", ""},
	{"held", "handed off, and the holder before gives notice", func(r *rig) {
		r.acquire(2)
		r.done(1)
		r.step(core.WindDown{Claim: 1, Hold: r.calls[1], Cause: errors.New("notice")})
	}, "held", ""},
	{"held", "handed off, and the next here waited too long since the grant", func(r *rig) {
		r.acquire(2)
		r.pass(600 * time.Millisecond)
		r.done(1)
		r.acquire(3)
		r.pass(600 * time.Millisecond)
		r.done(2)
	}, "leaving", "Acquire and leave"},
	{"held", "done, the next here waited too long, granted, but this claim was not found", func(r *rig) {
		r.acquire(2)
		r.pass(time.Second)
		r.done(1)
		r.answer("Acquire", r.grantedTo("s.2", 9000))
	}, "leaving", "Release, Deliver 2: hold 2, token 9000"},
	{"held", "done, the next here waited too long, granted, and requests void", func(r *rig) {
		r.acquire(2)
		r.pass(time.Second)
		r.done(1)
		g := r.grantedTo("s.2", 9000)
		g.Found = true
		r.answer("Acquire", g)
		r.beat()
	}, "past", "Discard, Keys"},
	{"held", "a claim of an earlier session is revoked", func(r *rig) { r.step(core.Revoked{Claim: "r.7", Key: "k"}) }, "held", ""},
	{"held", "a try here", func(r *rig) { r.acquire(2, tries) }, "held", "Deliver 2: " + (&driver.HeldError{Key: "k", Here: true, Session: "s"}).Error()},
	{"held", "a caller here wants another kind", func(r *rig) {
		r.acquire(2, func(w *core.Want) { w.Kind = driver.KindSemaphore })
	}, "held", "Deliver 2: dsync: key \"k\" is in use with kind mutex, not semaphore"},
	{"held", "handed off, and progress of the holder before", func(r *rig) { r.acquire(2); r.done(1); r.progress(2 * time.Second); r.pass(3 * time.Second) }, "held", ""},
	{"held", "progress, done, and the next here waited too long", func(r *rig) {
		r.progress(2 * time.Second)
		r.acquire(2)
		r.pass(time.Second)
		r.done(1)
		r.pass(1900 * time.Millisecond)
	}, "leaving", ""},
	{"held", "no progress within the limit, and done unseen, to be kept", func(r *rig) {
		r.progress(2 * time.Second)
		r.now = r.now.Add(2 * time.Second)
		r.leave(1, &driver.Release{Keep: time.Minute})
	}, "leaving", "End 1: dsync: no progress within the limit, Release"},
	{"held for a lease", "progress", func(r *rig) { r.progress(time.Second); r.pass(2 * time.Second) }, "held", ""},
	{"lingering", "progress of the last holder", func(r *rig) { r.progress(time.Minute); r.pass(2 * time.Second) }, "leaving", "Release"},
	{"windingDown", "progress", func(r *rig) { r.progress(time.Minute); r.pass(time.Second) }, "leaving", "Release"},
	{"held", "session lost", (*rig).deadline, "lost", "End 1: no heartbeat was acknowledged within 9.988s"},
	{"held for a long lease", "session lost", (*rig).deadline, "held", ""},
	{"held for a lease", "closing", func(r *rig) { r.step(core.Close{}) }, "lost", "End 1: dsync: session closed, Freed 1, Unregister"},
	{"held for a lease", "lease over", func(r *rig) { r.pass(r.cfg.Hold(6 * time.Second)) }, "lost", "End 1: dsync: the lease is over after 6s, Freed 1"},
	{"held for a lease", "lease over, and then the grace", func(r *rig) { r.pass(6 * time.Second) }, "past", "End 1: dsync: the lease is over after 6s, Freed 1, Heartbeat"},
	{"held for a lease", "lease over, unseen", func(r *rig) { r.now = r.now.Add(r.cfg.Hold(6 * time.Second)); r.done(1) }, "lost", "End 1: dsync: the lease is over after 6s, Freed 1"},
	{"held for a lease", "extended", func(r *rig) {
		r.pass(2 * time.Second)
		r.extending()
		r.extended(r.clock().Add(6 * time.Second))
		r.pass(2 * time.Second)
	}, "held", "Heartbeat"},
	{"held for a lease", "an Extend has no answer, lease over", func(r *rig) { r.extending(); r.pass(r.cfg.Hold(6 * time.Second)) }, "windingDown", "End 1: dsync: the lease is over after 6s"},
	{"held for a lease", "an Extend has no answer, lease over, and then the grace", func(r *rig) { r.extending(); r.pass(5 * time.Second) }, "leaving", "End 1: dsync: the lease is over after 6s, Heartbeat, Release"},
	{"held for a lease", "an Extend has no answer, lease over, and done", func(r *rig) { r.extending(); r.pass(r.cfg.Hold(6 * time.Second)); r.done(1) }, "leaving", "Release"},
	{"held for a lease", "an Extend has no answer, and released long after its end", func(r *rig) { r.extending(); r.now = r.now.Add(9 * time.Second); r.step(core.Tick{}); r.done(1) }, "leaving", "Release"},
	{"held for a lease", "an Extend has no answer, and released when whatever it has set is over", func(r *rig) { r.extending(); r.now = r.now.Add(13 * time.Second); r.step(core.Tick{}); r.done(1) }, "gone", "Freed 1: dsync: hold lost: dsync: the lease is over after 6s"},
	{"held for a lease", "an Extend is answered when the lease is over", func(r *rig) {
		r.extending()
		r.pass(r.cfg.Hold(6 * time.Second))
		r.extended(r.clock().Add(6 * time.Second))
		r.pass(2 * time.Second)
	}, "leaving", "Heartbeat, Release"},
	{"held for a lease", "an Extend is answered when the lease is long over", func(r *rig) {
		r.extending()
		r.now = r.now.Add(8 * time.Second)
		r.extended(r.clock().Add(6 * time.Second))
		r.pass(time.Second)
	}, "leaving", "Release"},
	{"held for a lease", "an Extend is refused, lease over", func(r *rig) {
		r.extending()
		r.notExtended(driver.ErrRefused)
		r.pass(r.cfg.Hold(6 * time.Second))
	}, "lost", "End 1: dsync: the lease is over after 6s, Freed 1"},
	{"held for a lease", "not held, says perhaps a deposed primary", func(r *rig) { r.extending(); r.notExtended(driver.ErrNotHeld) }, "held", "Heartbeat"},
	{"held for a lease", "not held, and a reading after a heartbeat does not show it either", func(r *rig) {
		r.pass(time.Second)
		r.extending()
		r.notExtended(driver.ErrNotHeld)
		r.answer("Heartbeat", core.Reply{})
		r.answer("Keys", core.Reply{})
	}, "windingDown", "End 1: " + deleted},
	{"held for a long lease", "session lost, and not held any more", func(r *rig) { r.deadline(); r.extending(); r.notExtended(driver.ErrNotHeld) }, "windingDown", "End 1: " + deleted + ": dsync: not held"},
	{"held for a long lease", "not held any more, and over by the store's clock", func(r *rig) {
		r.beat()
		r.answerAhead(2 * time.Minute)
		r.extending()
		r.notExtended(driver.ErrNotHeld)
	}, "lost", "End 1: dsync: the lease is over after 1m0s, Freed 1"},
	{"lingering", "a reading does not show it, and wanted here", func(r *rig) { r.pass(time.Second); r.seen(); r.acquire(2) }, "leaving", "Release"},
	{"lingering", "wanted here", func(r *rig) { r.acquire(2) }, "held", "Deliver 2: hold 2, token 5001"},
	{"lingering", "wanted here in another way", func(r *rig) { r.acquire(2, auto) }, "leaving", "Release"},
	{"lingering", "time over", func(r *rig) { r.pass(2 * time.Second) }, "leaving", "Release"},
	{"lingering", "others came", func(r *rig) { r.notice(driver.NoticeYield) }, "leaving", "Release"},
	{"lingering", "the listener is ready", func(r *rig) { r.listen() }, "leaving", "Release, Heartbeat"},
	{"lingering", "revoked", func(r *rig) { r.revoke() }, "leaving", "Release"},
	{"lingering", "closing", func(r *rig) { r.step(core.Close{}) }, "leaving", "Release"},
	{"lingering", "session lost", func(r *rig) { r.now = r.c.Deadline(); r.step(core.Tick{}) }, "gone", ""},
	{"windingDown", "done", func(r *rig) { r.done(1) }, "leaving", "Release"},
	{"windingDown", "done, early", func(r *rig) { r.early(1) }, "leaving", "Release early"},
	{"windingDown", "closing, and done, early", func(r *rig) { r.step(core.Close{}); r.early(1) }, "leaving", "Release"},
	{"windingDown", "done, and sealed", func(r *rig) { r.leave(1, &driver.Release{Seal: 1}) }, "leaving", "Release"},
	{"windingDown", "grace over", func(r *rig) { r.pass(time.Second) }, "leaving", "Release"},
	{"windingDown", "session lost", (*rig).deadline, "lost", ""},
	{"windingDown", "hurry", func(r *rig) { r.step(core.Close{}); r.step(core.Hurry{}) }, "leaving", "Release keeping"},
	{"lost", "done", func(r *rig) { r.done(1) }, "gone", "Freed 1: dsync: hold lost: no heartbeat was acknowledged within 9.988s"},
	{"windingDown", "session lost, and done", func(r *rig) { r.deadline(); r.done(1) }, "gone", "Freed 1: dsync: hold lost: no heartbeat was acknowledged within 9.988s"},
	{"lost", "grace over", func(r *rig) { r.pass(time.Second) }, "lost", ""},
	{"lost", "another caller here", func(r *rig) { r.acquire(2) }, "lost", ""},
	{"leaving", "said to be kept, and answered", func(r *rig) {
		r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Hour}})
		r.answer("Release", core.Reply{Found: true})
	}, "past", "Freed 1, not as said: dsync: hold lost: its grace was over, and it was being released"},
	{"leaving", "said to be kept, and sent again", func(r *rig) {
		r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Keep: time.Hour}})
		r.answer("Release", noAnswer)
		r.pass(time.Second)
	}, "leaving", "Release"},
	{"past and listening", "closing, a copy of its request is granted, and unregistered", func(r *rig) {
		r.step(core.Close{})
		r.notice(driver.NoticeGrant)
		r.answer("Unregister", core.Reply{})
	}, "gone", "Closed"},
	{"leaving", "answered", func(r *rig) { r.answer("Release", core.Reply{Found: true}) }, "past", "Freed 1"},
	{"leaving", "no answer", func(r *rig) { r.answer("Release", noAnswer) }, "leaving", ""},
	{"leaving", "no answer, and a pause", func(r *rig) { r.answer("Release", noAnswer); r.pass(time.Second) }, "leaving", "Release"},
	{"leaving", "no answer, while the next here waits", func(r *rig) { r.acquire(2); r.answer("Release", noAnswer) }, "leaving", ""},
	{"leaving", "refused", func(r *rig) { r.answer("Release", core.Reply{Err: driver.ErrRefused}) }, "leaving", "Freed 1: dsync: refused by the store"},
	{"leaving", "refused, and a pause", func(r *rig) { r.answer("Release", core.Reply{Err: driver.ErrRefused}); r.pass(time.Second) }, "leaving", "Release"},
	{"leaving", "refused while closing", func(r *rig) { r.step(core.Close{}); r.answer("Release", core.Reply{Err: driver.ErrRefused}) }, "past", "Freed 1: dsync: not released: dsync: session closed: dsync: refused by the store, Unregister"},
	{"leaving", "no answer while closing, and a pause", func(r *rig) { r.step(core.Close{}); r.answer("Release", noAnswer); r.pass(time.Second) }, "leaving", "Release"},
	{"leaving", "hurry, and no answer to what was sent before", func(r *rig) {
		r.pass(time.Second / 2)
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", noAnswer)
	}, "leaving", "Release"},
	{"leaving", "hurry, and no answer twice", func(r *rig) {
		r.pass(time.Second / 2)
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", noAnswer)
		r.answer("Release", noAnswer)
	}, "past", "Freed 1: dsync: not released: dsync: session closed: no answer, Unregister"},
	{"leaving", "while closing, the time of the store is over", func(r *rig) {
		r.step(core.Close{})
		r.pass(3 * time.Second)
	}, "gone", "Freed 1: dsync: not released: dsync: session closed: the store did not answer in time: context deadline exceeded, Closed: not released: \"k\", not unregistered"},
	{"leaving", "closing, and no answer again and again", func(r *rig) {
		r.step(core.Close{})
		for range 3 {
			r.answer("Release", noAnswer)
			r.pass(time.Second)
		}
	}, "gone", "Release, Freed 1: dsync: not released: dsync: session closed: no answer, Closed: not released: \"k\", not unregistered"},
	{"leaving", "closing, an answer, and none for less than an attempt", func(r *rig) {
		r.step(core.Close{})
		r.pass(2500 * time.Millisecond)
		r.answer("Release", core.Reply{Found: true})
		r.pass(1900 * time.Millisecond)
	}, "past", ""},
	{"leaving", "closing, session lost, and unregistered", func(r *rig) {
		r.now = r.c.Deadline().Add(-time.Second)
		r.step(core.Close{})
		r.answer("Heartbeat", noAnswer)
		r.answer("Release", core.Reply{Found: true})
		r.deadline()
		r.answer("Unregister", core.Reply{})
	}, "gone", "Closed"},
	{"leaving", "a notice has no answer, closing, and hurry", func(r *rig) {
		r.answer("Release", core.Reply{Found: true, Notices: []driver.Notice{{Type: driver.NoticeGrant, Session: "o", Key: "k", Claim: "o.1"}}})
		r.answer("Notify", noAnswer)
		r.step(core.Close{})
		r.step(core.Hurry{})
	}, "past", "Notify"},
	{"held with Auto", "closing, hurry, and answered", func(r *rig) {
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", core.Reply{Found: true})
	}, "kept", "Freed 1: dsync: hold lost: dsync: session closed, Unregister"},
	{"leaving", "answered: not there; closing, and hurry", func(r *rig) {
		r.answer("Release", core.Reply{})
		r.step(core.Close{})
		r.step(core.Hurry{})
	}, "leaving", ""},
	{"leaving", "hurry, no answer, and unregistered", func(r *rig) {
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", noAnswer)
		r.answer("Unregister", core.Reply{})
	}, "gone", "Closed"},
	{"held for a long lease", "done, hurry, no answer, and unregistered", func(r *rig) {
		r.done(1)
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", noAnswer)
		r.answer("Unregister", core.Reply{})
	}, "gone", "Closed: not released: \"k\""},
	{"leaving", "closing, and session lost", func(r *rig) {
		r.now = r.c.Deadline().Add(-time.Second)
		r.step(core.Close{})
		r.deadline()
	}, "gone", "Freed 1: dsync: hold lost: no heartbeat was acknowledged within 9.988s, Closed: not released: \"k\", not unregistered"},
	{"held", "closing, and session lost", func(r *rig) {
		r.now = r.c.Deadline().Add(-time.Second / 2)
		r.step(core.Close{})
		r.deadline()
	}, "lost", "Closed: not released: \"k\", not unregistered"},
	{"windingDown", "hurry, and no answer", func(r *rig) {
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Release", noAnswer)
	}, "lost", "Closed: not released: \"k\", not unregistered"},
	{"leaving", "answered: not there", func(r *rig) { r.answer("Release", core.Reply{}) }, "leaving", "Heartbeat"},
	{"leaving", "answered: not there; a heartbeat", func(r *rig) { r.answer("Release", core.Reply{}); r.answer("Heartbeat", core.Reply{}) }, "leaving", "Release"},
	{"leaving", "answered: not there, said again after a heartbeat", func(r *rig) {
		r.answer("Release", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Release", core.Reply{})
	}, "past", "Freed 1: dsync: hold lost: the store did not know it any more"},
	{"held", "done, and the successor does not wait", func(r *rig) {
		r.doneFor("o.2")
		r.answer("Release", core.Reply{Err: driver.ErrNotWaiting})
	}, "leaving", "Release"},
	{"held for a long lease", "done, as said before, no answer; the session is lost, and the store has it no more", func(r *rig) {
		r.doneFor("o.2")
		r.answer("Release", noAnswer)
		r.deadline()
		r.pass(time.Second)
		r.answer("Release", core.Reply{})
		r.pass(r.cfg.TTL)
		r.answer("Release", core.Reply{})
	}, "gone", "Freed 1, not as said: dsync: hold lost"},
	{"held", "done, as said before, no answer, and the store has it no more", func(r *rig) {
		r.doneFor("o.2")
		r.answer("Release", noAnswer)
		r.pass(time.Second)
		r.answer("Release", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Release", core.Reply{})
	}, "past", "Freed 1"},
	{"held for a lease", "done, as said before, no answer, and the store has it no more", func(r *rig) {
		r.doneFor("o.2")
		r.answer("Release", noAnswer)
		r.pass(time.Second)
		r.answer("Release", core.Reply{})
		r.answer("Heartbeat", core.Reply{})
		r.answer("Release", core.Reply{})
	}, "past", "Freed 1, not as said: dsync: hold lost"},
	{"held", "done, as said before, no answer, and the successor does not wait, or has held since", func(r *rig) {
		r.doneFor("o.2")
		r.pass(r.cfg.Attempt + 2*r.cfg.Margin) // before that, a copy of the claim's request could join
		r.answer("Release", noAnswer)
		r.pass(time.Second)
		r.answer("Release", core.Reply{Err: driver.ErrNotWaiting})
		r.answer("Release", core.Reply{Found: true})
	}, "past", "Freed 1, not as said: dsync: hold lost: it is not known whether the successor was granted the key"},
	{"held for good", "done, as said before, no answer, and the successor does not wait", func(r *rig) {
		r.doneFor("o.2")
		r.answer("Release", noAnswer)
		r.pass(time.Second)
		r.answer("Release", core.Reply{Err: driver.ErrNotWaiting})
		r.answer("Release", core.Reply{Found: true})
	}, "gone", "Freed 1, not as said: dsync: hold lost: it is not known whether the successor was granted the key"},
	{"leaving", "session lost", (*rig).deadline, "gone", "Freed 1: dsync: hold lost: no heartbeat was acknowledged within 9.988s"},
	{"leaving to be kept", "revoked", func(r *rig) { r.revoke(); r.answer("Release", core.Reply{Found: true}) }, "leaving", "Freed 1, Release"},
	{"leaving to be kept", "answered", func(r *rig) { r.answer("Release", core.Reply{Found: true}) }, "kept", "Freed 1"},
	{"kept", "time over", func(r *rig) { r.pass(5 * time.Second) }, "past", "Heartbeat"},
	{"kept", "revoked", func(r *rig) { r.revoke() }, "leaving", "Release"},
	{"kept", "session lost", (*rig).deadline, "gone", ""},
	{"kept although its holder is not done", "revoked", (*rig).revoke, "kept", ""},
	{"kept for the grace", "revoked", (*rig).revoke, "kept", ""},
	{"past and listening", "notice: granted again", func(r *rig) { r.listen(); r.notice(driver.NoticeGrant) }, "leaving", "Release"},
	{"past", "reply: granted again", func(r *rig) { r.acquire(2); r.answer("Acquire", r.granted(9000)) }, "leaving", "Release"},
	{"past", "reply: as before", func(r *rig) { r.acquire(2); r.answer("Acquire", r.granted(5000)) }, "past", ""},
	{"past", "requests void", func(r *rig) { r.beat() }, "past", "Discard"},
	{"past", "discarded, and another is granted the key", func(r *rig) {
		r.beat()
		r.pass(time.Second)
		r.answer("Discard", core.Reply{Notices: []driver.Notice{{Type: driver.NoticeGrant, Session: "o", Key: "k", Claim: "o.1"}}})
	}, "past", "Notify"},
	{"past", "discarded", func(r *rig) {
		r.beat()
		r.pass(time.Second)
		r.answer("Discard", core.Reply{})
		r.beat()
	}, "gone", ""},
	{"past and listening", "notice: granted again, released, and requests void", func(r *rig) {
		r.listen()
		r.notice(driver.NoticeGrant)
		r.answer("Release", core.Reply{Found: true})
		r.beat()
	}, "past", "Discard"},
	{"gone", "requested for a lease, and granted by a notice before the reply", func(r *rig) { r.begin(leases); r.grants("s.1", 7000) }, "dating", ""},
	{"gone", "unknown id in a notice", func(r *rig) {
		r.acquire(1)
		r.answer("Register", core.Reply{Session: "s"})
		r.answer("Acquire", r.behind(1))
		r.listen()
		r.step(core.Noticed{Listener: r.listener, Notice: driver.Notice{Type: driver.NoticeGrant, Session: "s", Key: "k", Claim: "s.77", Token: 7000}})
	}, "joining", "Release"},
}

// run runs the case with r, which may have a broken table.
func (k *tableCase) run(r *rig) {
	beginnings[k.from](r)
	if state, _, _ := strings.Cut(k.from, " "); r.c.ClaimState(r.claim) != state {
		r.t.Fatalf("the claim is %s, want %s to begin with", r.c.ClaimState(r.claim), state)
	}
	k.do(r)
	if got := r.c.ClaimState(r.claim); got != k.next {
		r.t.Errorf("the claim is %s, want %s", got, k.next)
	}
	if got := strings.Join(r.said, ", "); got != k.says {
		r.t.Errorf("effects %q, want %q", got, k.says)
	}
}

// The claim makes the transitions in its table.
func TestTable(t *testing.T) {
	for _, k := range tableCases {
		t.Run(k.name(), func(t *testing.T) { k.run(newRig(t)) })
	}
}

// A catcher is a judge that notes whether a test fails.
type catcher struct{ failed bool }

func (c *catcher) Helper()               {}
func (c *catcher) Errorf(string, ...any) { c.failed = true }
func (c *catcher) Fatalf(string, ...any) { panic("fatal") }

// finds reports whether the case fails after change has changed the Core.
func (k *tableCase) finds(change func(c *core.Core)) (failed bool) {
	var c catcher
	defer func() { failed = recover() != nil || c.failed }()
	r := newRig(&c)
	change(r.c)
	k.run(r)
	return
}

// harmless lists the defects that change nothing. When Close gives up the release of a hold that winds down, it ends
// the session in the same Step, and the hold is lost anyway.
var harmless = map[core.Row][]string{
	{From: "windingDown", On: "left", When: "inUse", Next: "lost", Do: "leaveStore"}: {core.OtherState, core.NoEffect},
}

// Each row of the claim's table has a case, and whatever is wrong with a row makes one of its cases fail.
func TestTableIsTested(t *testing.T) {
	rows := core.Rows(false)
	uses := make([]bool, len(rows))
	meets := make([]map[*tableCase]bool, len(rows)) // the cases in which the row may be the one that decides
	for n := range rows {
		meets[n] = make(map[*tableCase]bool)
	}
	for i := range tableCases {
		k := &tableCases[i]
		k.finds(func(c *core.Core) { c.Watch(func(n int) { meets[n][k] = true }, func(n int) { uses[n] = true }) })
	}
	for n, row := range rows {
		if !uses[n] {
			t.Errorf("%+v: no case makes this transition", row)
			continue
		}
		for _, defect := range core.Defects {
			found, can := false, true
			for k := range meets[n] {
				if found = k.finds(func(c *core.Core) { can = c.Break(n, defect) }); found || !can {
					break
				}
			}
			if can && !found && !slices.Contains(harmless[row], defect) {
				t.Errorf("%+v: if %s, no case fails", row, defect)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the claim's table into doc.go, or record the cases in ../trace/testdata")

// The package documentation has the claim's table.
func TestTableInTheDocumentation(t *testing.T) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "state\ttrigger\tif\tnext\teffect")
	for _, r := range core.Rows(true) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.From, r.On, r.When, r.Next, r.Do)
	}
	w.Flush()
	table := ""
	for l := range strings.Lines(b.String()) {
		table += "//\t" + strings.TrimRight(l, " \n") + "\n"
	}
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "//\tstate", "//\n// "
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatal("doc.go has no table")
	}
	want := before + table + end + after
	if string(text) == want {
		return
	}
	if !*update {
		t.Fatal("the table in doc.go is not that of the code; run go test ./internal/core -run TestTableInTheDocumentation -update")
	}
	if err := os.WriteFile("doc.go", []byte(want), 0o666); err != nil {
		t.Fatal(err)
	}
}
