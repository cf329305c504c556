package core_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A rig is a Core that gets its events from a test.
type rig struct {
	t        *testing.T
	cfg      core.Config
	c        *core.Core
	now      core.Instant
	calls    map[uint64]*core.Call
	sent     map[string]core.Send // last command of each op
	listener uint64               // number of the last listener
	claim    uint64               // number of the claim that a row is about
	said     []string             // the effects of the last event
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: 1, claim: 1, calls: make(map[uint64]*core.Call), sent: make(map[string]core.Send)}
	r.cfg = core.Config{
		TTL: 12 * time.Second, Margin: time.Second, Grace: time.Second, LeastMargin: time.Second, LeastGrace: time.Second, Heartbeat: 4 * time.Second,
		Attempt: 2 * time.Second, Poll: 20 * time.Second, HandOff: time.Second, Retention: -1,
		Retry: time.Second, Backoff: time.Second, Lanes: 32, PollLanes: 8,
		Rand: func(n int64) int64 { return n / 2 },
	}
	r.c = core.New(&r.cfg)
	return r
}

// step passes an event to the Core, and records its effects.
func (r *rig) step(e core.Event) {
	r.said = nil
	say := func(format string, args ...any) { r.said = append(r.said, fmt.Sprintf(format, args...)) }
	for _, f := range r.c.Step(r.now, e) {
		switch f := f.(type) {
		case *core.Send:
			r.sent[f.Op.String()] = *f
			if f.Died {
				say("%v of a dead process", f.Op)
			} else {
				say("%v%s", f.Op, how(f.Edit))
			}
		case *core.Deliver:
			if f.Err != nil {
				say("Deliver %d: %v", f.To.Call, f.Err)
			} else {
				say("Deliver %d: hold %d, token %d", f.To.Call, f.Hold.Call, f.Token)
			}
		case *core.End:
			say("End %d: %v", f.Hold.Call, f.Cause)
		case *core.Freed:
			if f.Err != nil {
				say("Freed %d: %v", f.Hold.Call, f.Err)
			} else if f.Passed != nil {
				say("Freed %d, not as said: %v", f.Hold.Call, f.Passed)
			} else {
				say("Freed %d", f.Hold.Call)
			}
		case *core.Listen:
			r.listener = f.Number
		case core.Closed:
			say("Closed%s", notDone(f.Err))
		}
	}
}

// notDone describes what Close has not done.
func notDone(err error) (s string) {
	if e := (*core.NotReleasedError)(nil); errors.As(err, &e) {
		s += fmt.Sprintf(": not released: %q", e.Keys[0])
	}
	if errors.Is(err, core.ErrNotUnregistered) {
		s += ", not unregistered"
	}
	return s
}

// how describes an edit's options.
func how(e driver.Edit) (s string) {
	if j := e.Acquire; j != nil {
		if e.Release != nil {
			s += " and leave"
		}
		if j.Claim.First {
			s += " first"
		}
		if len(j.Expired) > 0 {
			s += " without the expired"
		}
		return s
	}
	if l := e.Release; l != nil {
		switch {
		case l.Seal > 0:
			s = " sealing"
		case l.Keep > 0:
			s = " keeping"
		case l.Successor != "":
			s = " to " + l.Successor
		}
		if l.Early {
			s += " early"
		}
	}
	return s
}

func (r *rig) clock() time.Time { return time.Unix(1000, int64(r.now)) }

// answer answers the last command of the given op.
func (r *rig) answer(op string, reply core.Reply) {
	r.t.Helper()
	s, ok := r.sent[op]
	if !ok {
		r.t.Fatalf("no %s was sent", op)
	}
	reply.Command, reply.Now = s.ID, r.clock()
	reply.State.Key, reply.State.Now = "k", r.clock()
	if reply.Lost {
		reply.Err = errors.New("no answer")
	}
	r.step(&reply)
}

// answerAhead answers the next heartbeat as if the store's clock had jumped forward.
func (r *rig) answerAhead(jump time.Duration) {
	delete(r.sent, "Heartbeat")
	for r.sent["Heartbeat"].ID == 0 {
		r.now = max(r.now, r.c.Next())
		r.step(core.Tick{})
	}
	r.step(&core.Reply{Command: r.sent["Heartbeat"].ID, Now: r.clock().Add(jump)})
}

// pass lets time pass, with a Tick whenever one is due.
func (r *rig) pass(d time.Duration) {
	var said []string
	for end := r.now.Add(d); ; {
		next := r.c.Next()
		if next > end {
			r.now, r.said = end, said
			return
		}
		r.now = max(r.now, next)
		r.step(core.Tick{})
		said = append(said, r.said...)
	}
}

// beat lets time pass until a heartbeat is sent, and answers the heartbeat.
func (r *rig) beat() {
	r.t.Helper()
	delete(r.sent, "Heartbeat")
	for r.sent["Heartbeat"].ID == 0 {
		r.now = max(r.now, r.c.Next())
		r.step(core.Tick{})
	}
	r.answer("Heartbeat", core.Reply{})
}

// notice delivers a notice about claim 1.
func (r *rig) notice(n driver.NoticeType) {
	r.step(core.Noticed{Listener: r.listener, Notice: driver.Notice{Type: n, Session: "s", Key: "k", Claim: "s.1", Token: 7000}})
}

// listen makes the listener ready.
func (r *rig) listen() {
	for i := 0; r.listener == 0; i++ {
		if r.pass(time.Second); i > 10 {
			r.t.Fatal("no listener is opened")
		}
	}
	r.notice(driver.NoticeReady)
}

// acquire makes a caller request the key.
func (r *rig) acquire(call uint64, change ...func(w *core.Want)) {
	w := core.Want{Key: "k", Kind: driver.KindMutex, Weight: 1, Limit: 1}
	for _, change := range change {
		change(&w)
	}
	r.calls[call] = &core.Call{Want: w, Call: call}
	r.step(r.calls[call])
}

func (r *rig) done(call uint64)   { r.leave(call, nil) }
func (r *rig) early(call uint64)  { r.step(&core.Done{Claim: 1, Hold: r.calls[call], Early: true}) }
func (r *rig) giveUp(call uint64) { r.step(core.GiveUp{Call: r.calls[call]}) }
func (r *rig) leave(call uint64, l *driver.Release) {
	r.step(&core.Done{Claim: 1, Hold: r.calls[call], Release: l})
}
func (r *rig) deadline() { r.now = r.c.Deadline(); r.step(core.Tick{}) }
func (r *rig) revoke()   { r.step(core.Revoked{Claim: "s.1", Key: "k"}) }

// deleted is the cause of a hold's end if the key's record was deleted.
const deleted = "dsync: the store has no record of the hold any more; somebody has deleted or changed it"

// seen gives the Core a state of the key, read by a request that was sent at since.
func (r *rig) seen(since core.Instant, holders ...driver.Holder) { r.seenAhead(0, since, holders...) }

// seenAhead is like seen, but the store's clock has jumped forward.
func (r *rig) seenAhead(jump time.Duration, since core.Instant, holders ...driver.Holder) {
	r.step(&core.Seen{State: driver.State{Key: "k", Now: r.clock().Add(jump), Kind: driver.KindMutex, Limit: 1, Holders: holders}, Since: since})
}

func (r *rig) progress(limit time.Duration) {
	r.step(core.Progress{Claim: 1, Hold: r.calls[1], Limit: limit})
}

func tries(w *core.Want)  { w.Try = true }
func leases(w *core.Want) { w.Lease = 6 * time.Second }
func auto(w *core.Want)   { w.Auto = true }
func first(w *core.Want)  { w.First = true }

// These methods bring the claim into the state in which a case begins.

func (r *rig) begin(change ...func(w *core.Want)) {
	r.acquire(1, change...)
	r.answer("Register", core.Reply{Session: "s"})
}

func (r *rig) joining() { r.begin() }

func (r *rig) joiningListening() {
	r.cfg.AlwaysListen = true
	r.begin()
}

// inLine is like joining, but no lane is free.
func (r *rig) inLine() {
	r.cfg.Lanes, r.cfg.PollLanes, r.claim = 1, 1, 2
	r.acquire(9, func(w *core.Want) { w.Key = "other" })
	r.answer("Register", core.Reply{Session: "s"})
	r.acquire(1)
}

// free ends the command that uses the only lane.
func (r *rig) free() {
	r.step(&core.Reply{Command: r.sent["Acquire"].ID, Lost: true, Err: errors.New("no answer")})
}

// behind returns the reply to a request that must wait behind the holder, session o, and behind the others.
func (r *rig) behind(waiting int, others ...string) core.Reply {
	st := driver.State{Kind: driver.KindMutex, Limit: 1, Waiting: waiting, Position: waiting}
	for _, id := range append([]string{"o"}, others...) {
		st.Holders = append(st.Holders, driver.Holder{Claim: id + ".1", Session: id, Token: 1, Weight: 1})
	}
	return core.Reply{State: st}
}

// member returns a reading in which session o is alive.
func (r *rig) member() core.Reply { return r.members(10*time.Second, "o") }

func (r *rig) members(ttl time.Duration, ids ...string) (reply core.Reply) {
	for _, id := range ids {
		reply.Members = append(reply.Members, driver.Member{ID: id, TTL: ttl, LastHeartbeat: r.clock()})
	}
	return reply
}

func (r *rig) waiting() {
	r.joining()
	r.answer("Acquire", r.behind(1))
	r.answer("Read", r.member())
}

func (r *rig) checking() {
	r.begin(tries)
	r.answer("Acquire", r.behind(0))
}

// mismatched is like checking, but the claim is checking because the key is in use as another kind.
func (r *rig) mismatched() {
	r.joining()
	r.answer("Acquire", core.Reply{Err: &driver.MismatchError{Key: "k", Kind: driver.KindSemaphore}})
}

func (r *rig) granted(token int64) core.Reply {
	return core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "s.1", Session: "s", Token: token}}}}
}

func (r *rig) dating() {
	r.begin(leases)
	r.answer("Acquire", r.granted(5000))
}

// datingInLine is like dating, but no lane is free for the Extend.
func (r *rig) datingInLine() {
	r.cfg.Lanes, r.cfg.PollLanes = 1, 1
	r.begin(leases)
	join := r.sent["Acquire"]
	r.acquire(9, func(w *core.Want) { w.Key = "other" })
	r.sent["Acquire"] = join
	r.answer("Acquire", r.granted(5000))
}

func (r *rig) held() {
	r.joining()
	r.answer("Acquire", r.granted(5000))
}

// heldForGood is like held, but a copy of the claim's request can no longer join.
func (r *rig) heldForGood() {
	r.joining()
	granted := r.granted(5000)
	granted.State.Final = true
	r.answer("Acquire", granted)
}

// ticking holds the key for a tick, with claim 2 waiting for the next one.
func (r *rig) ticking() {
	tick := func(n int64) func(*core.Want) {
		return func(w *core.Want) { w.Kind, w.Tick = driver.KindPeriodic, n }
	}
	r.begin(tick(1))
	r.answer("Acquire", r.granted(5000))
	r.acquire(2, tick(2))
}

func (r *rig) leased() {
	r.dating()
	r.answer("Extend", core.Reply{Holder: driver.Holder{Until: r.clock().Add(6 * time.Second)}})
}

// extending tells the Core that an Extend is being sent.
func (r *rig) extending() { r.step(core.Extending{Claim: 1}) }

func (r *rig) leasedLong() {
	r.begin(func(w *core.Want) { w.Lease = time.Minute })
	r.answer("Acquire", r.granted(5000))
	r.answer("Extend", core.Reply{Holder: driver.Holder{Until: r.clock().Add(time.Minute)}})
}

func (r *rig) lingering() {
	r.cfg.Linger = 2 * time.Second
	r.held()
	r.done(1)
}

func (r *rig) windingDown() {
	r.held()
	r.revoke()
}

func (r *rig) lost() {
	r.held()
	r.deadline()
}

func (r *rig) leaving() {
	r.held()
	r.done(1)
}

func (r *rig) keeping() {
	r.held()
	r.leave(1, &driver.Release{Keep: 3 * time.Second})
}

func (r *rig) kept() {
	r.keeping()
	r.answer("Release", core.Reply{Found: true})
}

func (r *rig) hurried() {
	r.begin(auto)
	r.answer("Acquire", r.granted(5000))
	r.step(core.Close{})
	r.step(core.Hurry{})
	r.answer("Release", core.Reply{Found: true})
}

func (r *rig) past() {
	r.leaving()
	r.answer("Release", core.Reply{Found: true})
}

func (r *rig) pastListening() {
	r.cfg.AlwaysListen = true
	r.past()
}

func (r *rig) gone() {}

// The claim makes the transitions in the package documentation's table. Each case tests one row.
func TestTable(t *testing.T) {
	lost := core.Reply{Lost: true}
	begin := map[string]func(r *rig){
		"joining": (*rig).joining, "joining and listening": (*rig).joiningListening, "joining in line": (*rig).inLine, "waiting": (*rig).waiting, "checking": (*rig).checking,
		"checking a mismatch": (*rig).mismatched, "dating": (*rig).dating, "dating in line": (*rig).datingInLine, "held": (*rig).held, "held for a tick": (*rig).ticking, "held for a lease": (*rig).leased, "held for a long lease": (*rig).leasedLong,
		"lingering": (*rig).lingering, "windingDown": (*rig).windingDown, "lost": (*rig).lost, "leaving": (*rig).leaving,
		"leaving to be kept": (*rig).keeping, "held for good": (*rig).heldForGood, "kept": (*rig).kept, "kept for the grace": (*rig).hurried, "past": (*rig).past, "past and listening": (*rig).pastListening, "gone": (*rig).gone,
	}
	rows := []struct {
		from  string
		event string
		do    func(r *rig)
		next  string
		says  string
	}{
		{"joining", "reply: granted", func(r *rig) { r.answer("Acquire", r.granted(5000)) }, "held", "Deliver 1: hold 1, token 5000"},
		{"joining", "reply: queued", func(r *rig) { r.answer("Acquire", r.behind(1)) }, "waiting", "Read"},
		{"joining", "reply: too late", func(r *rig) { r.answer("Acquire", core.Reply{}) }, "joining", ""},
		{"joining", "reply: refused", func(r *rig) { r.answer("Acquire", core.Reply{Err: driver.ErrRefused}) }, "past", "Deliver 1: dsync: refused by the store"},
		{"joining", "reply: sealed", func(r *rig) { r.answer("Acquire", core.Reply{State: driver.State{Sealed: 1}}) }, "past", "Deliver 1: dsync: the tick is over"},
		{"joining", "reply: another kind", func(r *rig) {
			r.answer("Acquire", core.Reply{Err: &driver.MismatchError{Key: "k", Kind: driver.KindSemaphore}})
		}, "checking", "Load"},
		{"joining", "no answer", func(r *rig) { r.answer("Acquire", lost) }, "joining", ""},
		{"joining", "no answer, and a pause", func(r *rig) { r.answer("Acquire", lost); r.pass(time.Second) }, "joining", "Acquire"},
		{"joining and listening", "notice: granted", func(r *rig) { r.listen(); r.notice(driver.NoticeGrant) }, "held", "Deliver 1: hold 1, token 7000"},
		{"joining and listening", "the listener is ready, and then queued", func(r *rig) { r.listen(); r.answer("Acquire", r.behind(1)) }, "joining", "Acquire"},
		{"joining", "notice: wake, and then queued", func(r *rig) {
			r.answer("Acquire", r.behind(1))
			r.listen()
			r.notice(driver.NoticeWake)
			r.answer("Acquire", r.behind(1))
		}, "joining", "Acquire"},
		{"joining", "given up", func(r *rig) { r.giveUp(1) }, "leaving", "Deliver 1: dsync: given up"},
		{"joining", "given up, and then no answer", func(r *rig) { r.giveUp(1); r.answer("Acquire", lost) }, "leaving", "Release"},
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
		{"checking", "no answer", func(r *rig) { r.answer("Read", lost) }, "past", "Deliver 1: no answer"},
		{"checking", "given up", func(r *rig) { r.giveUp(1) }, "past", "Deliver 1: dsync: given up"},
		{"checking", "revoked", func(r *rig) { r.revoke() }, "past", "Acquire"},
		{"checking", "session lost", (*rig).deadline, "gone", "Register"},
		{"checking a mismatch", "no answer", func(r *rig) { r.answer("Load", lost) }, "joining", ""},
		{"checking a mismatch", "a lane is free", func(r *rig) {
			r.cfg.Lanes = 1
			r.acquire(9, func(w *core.Want) { w.Key = "other" })
			r.answer("Load", lost)
			r.step(&core.Reply{Command: r.sent["Acquire"].ID, Lost: true, Err: errors.New("no answer")})
		}, "joining", ""},
		{"checking a mismatch", "the session in the way lives", func(r *rig) { r.answer("Load", r.behind(0)); r.answer("Read", r.member()) }, "past", "Deliver 1: dsync: key \"k\" is in use as a semaphore, not as a "},
		{"checking a mismatch", "the session in the way has expired", func(r *rig) {
			r.answer("Load", r.behind(0))
			r.answer("Read", core.Reply{})
			r.answer("Expire", core.Reply{})
		}, "joining", "Acquire without the expired"},
		{"dating", "extended", func(r *rig) { r.answer("Extend", core.Reply{}) }, "held", "Deliver 1: hold 1, token 5000"},
		{"dating", "no answer", func(r *rig) { r.answer("Extend", lost) }, "dating", ""},
		{"dating", "no answer, and a pause", func(r *rig) { r.answer("Extend", lost); r.pass(time.Second) }, "dating", "Extend"},
		{"dating", "not held", func(r *rig) { r.answer("Extend", core.Reply{Err: driver.ErrNotHeld}) }, "leaving", "Release, Acquire"},
		{"dating", "answered when the lease is over", func(r *rig) { r.now = r.now.Add(r.cfg.Hold(6 * time.Second)); r.answer("Extend", core.Reply{}) }, "leaving", "Release, Acquire"},
		{"dating", "refused", func(r *rig) { r.answer("Extend", core.Reply{Err: driver.ErrRefused}) }, "leaving", "Deliver 1: dsync: refused by the store, Release"},
		{"dating", "given up", func(r *rig) { r.giveUp(1) }, "leaving", "Deliver 1: dsync: given up, Release"},
		{"dating", "revoked", func(r *rig) { r.revoke() }, "leaving", "Release, Acquire"},
		{"dating", "session lost", (*rig).deadline, "leaving", "Release, Register"},
		{"dating", "no answer, and session lost", func(r *rig) { r.answer("Extend", lost); r.deadline() }, "leaving", "Release, Register"},
		{"dating in line", "session lost", (*rig).deadline, "gone", "Register"},
		{"held", "done, the next here fits", func(r *rig) { r.acquire(2); r.done(1) }, "held", "Freed 1, Deliver 2: hold 2, token 5001"},
		{"held", "done, the next here waited too long", func(r *rig) { r.acquire(2); r.pass(time.Second); r.done(1) }, "leaving", "Acquire and leave"},
		{"held", "done", func(r *rig) { r.done(1) }, "leaving", "Release"},
		{"held", "done, early", func(r *rig) { r.early(1) }, "leaving", "Release early"},
		{"held", "done, early, no answer, and a pause", func(r *rig) { r.early(1); r.answer("Release", lost); r.pass(time.Second) }, "leaving", "Release"},
		{"held", "done, early, with a successor", func(r *rig) { r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}}); r.early(1) }, "leaving", "Release to o.2"},
		{"held", "done, and kept", func(r *rig) { r.leave(1, &driver.Release{Keep: time.Second}) }, "leaving", "Release keeping"},
		{"held", "done, and sealed", func(r *rig) { r.leave(1, &driver.Release{Seal: 1}) }, "leaving", "Release sealing"},
		{"held", "done, with a successor", func(r *rig) { r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}}); r.done(1) }, "leaving", "Release to o.2"},
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
			g := r.granted(9000)
			g.State.Holders[0].Claim = "s.2"
			r.answer("Acquire", g)
		}, "windingDown", "End 1: " + deleted + ": another has been granted the key, with token 9000, Release"},
		{"held for a tick", "the next one is granted by a notice", func(r *rig) {
			r.listen()
			r.step(core.Noticed{Listener: r.listener, Notice: driver.Notice{Type: driver.NoticeGrant, Session: "s", Key: "k", Claim: "s.2", Token: 9000}})
		}, "windingDown", "End 1: " + deleted + ": the store has granted a later tick"},
		{"held", "a reading does not show it", func(r *rig) { r.pass(time.Second); r.seen(r.now) }, "held", "Heartbeat"},
		{"held", "a reading from before the grant does not show it", func(r *rig) { r.pass(time.Second); r.seen(0) }, "held", ""},
		{"held", "a reading shows another, with a greater token", func(r *rig) { r.seen(0, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1}) },
			"windingDown", "End 1: " + deleted + ": another has been granted the key, with token 5001"},
		{"held", "a reading shows another just before its TTL is over", func(r *rig) {
			r.seenAhead(12*time.Second-1, 0, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
		}, "windingDown", "End 1: " + deleted + ": another has been granted the key, with token 5001"},
		{"held", "a reading shows another when its TTL is over", func(r *rig) {
			r.seenAhead(12*time.Second, 0, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
		}, "windingDown", "End 1: dsync: session not renewed: by the store's clock its TTL was over, and another has been granted the key, with token 5001, Heartbeat"},
		{"held for a long lease", "a reading shows another when the session's TTL is over", func(r *rig) {
			r.seenAhead(12*time.Second, 0, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
		}, "windingDown", "End 1: " + deleted + ": another has been granted the key, with token 5001"},
		{"held for a long lease", "a reading shows another when the lease is over", func(r *rig) {
			r.seenAhead(2*time.Minute, 0, driver.Holder{Claim: "o.1", Session: "o", Token: 5001, Weight: 1})
		}, "lost", "End 1: dsync: the lease is over after 1m0s, Freed 1"},
		{"held", "a reading shows another, with a smaller token", func(r *rig) {
			r.pass(time.Second)
			r.seen(r.now, driver.Holder{Claim: "o.1", Session: "o", Token: 4999, Weight: 1})
		}, "held", "Heartbeat"},
		{"held", "a reading shows it with another token", func(r *rig) {
			r.pass(time.Second)
			r.seen(r.now, driver.Holder{Claim: "s.1", Session: "s", Token: 4999, Weight: 1})
		}, "held", "Heartbeat"},
		{"held", "its holder's command is refused", func(r *rig) { r.step(core.NotHeld{Claim: 1}) }, "held", "Heartbeat"},
		{"held", "a reading does not show it, and done, and the next here fits", func(r *rig) {
			r.acquire(2)
			r.now++
			r.seen(r.now)
			r.done(1)
		}, "leaving", "Acquire and leave"},
		{"held", "a look does not show it", func(r *rig) { r.beat(); r.answer("Keys", core.Reply{}) }, "held", "Heartbeat"},
		{"held", "a look from before the next grant does not show that", func(r *rig) {
			r.beat()
			r.now++
			r.done(1)
			r.answer("Release", core.Reply{Found: true})
			r.acquire(2)
			g := r.granted(9000)
			g.State.Holders[0].Claim = "s.2"
			r.answer("Acquire", g)
			r.answer("Keys", core.Reply{})
		}, "past", ""},
		{"held", "a look has no answer", func(r *rig) { r.beat(); r.answer("Keys", lost) }, "held", ""},
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
			r.seen(r.now)
			r.answer("Heartbeat", core.Reply{})
			r.answer("Keys", core.Reply{})
		}, "leaving", "Release"},
		{"windingDown", "a reading does not show it", func(r *rig) { r.now++; r.seen(r.now) }, "windingDown", ""},
		{"held for a tick", "the next one is granted after the grace", func(r *rig) {
			r.revoke()
			r.pass(time.Second)
			g := r.granted(9000)
			g.State.Holders[0].Claim = "s.2"
			r.answer("Acquire", g)
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
			r.step(core.Extended{Claim: 1, Sent: r.now, Until: r.clock().Add(6 * time.Second)})
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
			r.step(core.Extended{Claim: 1, Until: r.clock().Add(6 * time.Second)})
			r.pass(2 * time.Second)
		}, "leaving", "Heartbeat, Release"},
		{"held for a lease", "an Extend is answered when the lease is long over", func(r *rig) {
			r.extending()
			r.now = r.now.Add(8 * time.Second)
			r.step(core.Extended{Claim: 1, Until: r.clock().Add(6 * time.Second)})
			r.pass(time.Second)
		}, "leaving", "Release"},
		{"held for a lease", "an Extend is refused, lease over", func(r *rig) {
			r.extending()
			r.step(core.Extended{Claim: 1, Err: driver.ErrRefused})
			r.pass(r.cfg.Hold(6 * time.Second))
		}, "lost", "End 1: dsync: the lease is over after 6s, Freed 1"},
		{"held for a lease", "not held any more", func(r *rig) { r.step(core.Extended{Claim: 1, Err: driver.ErrNotHeld}) }, "lost", "End 1: " + deleted + ": dsync: not held, Freed 1"},
		{"held for a long lease", "not held any more, and over by the store's clock", func(r *rig) {
			r.beat()
			r.answerAhead(2 * time.Minute)
			r.step(core.Extending{Claim: 1})
			r.step(core.Extended{Claim: 1, Err: driver.ErrNotHeld})
		}, "lost", "End 1: dsync: the lease is over after 1m0s, Freed 1"},
		{"lingering", "a reading does not show it, and wanted here", func(r *rig) { r.pass(time.Second); r.seen(r.now); r.acquire(2) }, "leaving", "Release"},
		{"lingering", "wanted here", func(r *rig) { r.acquire(2) }, "held", "Deliver 2: hold 2, token 5001"},
		{"lingering", "wanted here in another way", func(r *rig) { r.acquire(2, auto) }, "leaving", "Release"},
		{"lingering", "time over", func(r *rig) { r.pass(2 * time.Second) }, "leaving", "Release"},
		{"lingering", "others came", func(r *rig) { r.notice(driver.NoticeYield) }, "leaving", "Release"},
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
			r.answer("Release", lost)
			r.pass(time.Second)
		}, "leaving", "Release"},
		{"past and listening", "closing, a copy of its request is granted, and unregistered", func(r *rig) {
			r.step(core.Close{})
			r.notice(driver.NoticeGrant)
			r.answer("Unregister", core.Reply{})
		}, "gone", "Closed"},
		{"leaving", "answered", func(r *rig) { r.answer("Release", core.Reply{Found: true}) }, "past", "Freed 1"},
		{"leaving", "no answer", func(r *rig) { r.answer("Release", lost) }, "leaving", ""},
		{"leaving", "no answer, and a pause", func(r *rig) { r.answer("Release", lost); r.pass(time.Second) }, "leaving", "Release"},
		{"leaving", "no answer, while the next here waits", func(r *rig) { r.acquire(2); r.answer("Release", lost) }, "leaving", ""},
		{"leaving", "refused", func(r *rig) { r.answer("Release", core.Reply{Err: driver.ErrRefused}) }, "leaving", "Freed 1: dsync: refused by the store"},
		{"leaving", "refused, and a pause", func(r *rig) { r.answer("Release", core.Reply{Err: driver.ErrRefused}); r.pass(time.Second) }, "leaving", "Release"},
		{"leaving", "refused while closing", func(r *rig) { r.step(core.Close{}); r.answer("Release", core.Reply{Err: driver.ErrRefused}) }, "past", "Freed 1: dsync: not released: dsync: session closed: dsync: refused by the store, Unregister"},
		{"leaving", "no answer while closing, and a pause", func(r *rig) { r.step(core.Close{}); r.answer("Release", lost); r.pass(time.Second) }, "leaving", "Release"},
		{"leaving", "hurry, and no answer to what was sent before", func(r *rig) {
			r.pass(time.Second / 2)
			r.step(core.Close{})
			r.step(core.Hurry{})
			r.answer("Release", lost)
		}, "leaving", "Release"},
		{"leaving", "hurry, and no answer twice", func(r *rig) {
			r.pass(time.Second / 2)
			r.step(core.Close{})
			r.step(core.Hurry{})
			r.answer("Release", lost)
			r.answer("Release", lost)
		}, "past", "Freed 1: dsync: not released: dsync: session closed: no answer, Unregister"},
		{"leaving", "while closing, the time of the store is over", func(r *rig) {
			r.step(core.Close{})
			r.pass(3 * time.Second)
		}, "gone", "Freed 1: dsync: not released: dsync: session closed: the store did not answer in time: context deadline exceeded, Closed: not released: \"k\", not unregistered"},
		{"leaving", "hurry, no answer, and unregistered", func(r *rig) {
			r.step(core.Close{})
			r.step(core.Hurry{})
			r.answer("Release", lost)
			r.answer("Unregister", core.Reply{})
		}, "gone", "Closed"},
		{"held for a long lease", "done, hurry, no answer, and unregistered", func(r *rig) {
			r.done(1)
			r.step(core.Close{})
			r.step(core.Hurry{})
			r.answer("Release", lost)
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
			r.answer("Release", lost)
		}, "lost", "Closed: not released: \"k\", not unregistered"},
		{"leaving", "answered: not there", func(r *rig) { r.answer("Release", core.Reply{}) }, "leaving", "Heartbeat"},
		{"leaving", "answered: not there; a heartbeat", func(r *rig) { r.answer("Release", core.Reply{}); r.answer("Heartbeat", core.Reply{}) }, "leaving", "Release"},
		{"leaving", "answered: not there, said again after a heartbeat", func(r *rig) {
			r.answer("Release", core.Reply{})
			r.answer("Heartbeat", core.Reply{})
			r.answer("Release", core.Reply{})
		}, "past", "Freed 1: dsync: hold lost: the store did not know it any more"},
		{"held", "done, and the successor does not wait", func(r *rig) {
			r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}})
			r.done(1)
			r.answer("Release", core.Reply{Err: driver.ErrNotWaiting})
		}, "leaving", "Release"},
		{"held for a long lease", "done, as said before, no answer; the session is lost, and the store has it no more", func(r *rig) {
			r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}})
			r.done(1)
			r.answer("Release", lost)
			r.deadline()
			r.pass(time.Second)
			r.answer("Release", core.Reply{})
			r.pass(r.cfg.TTL)
			r.answer("Release", core.Reply{})
		}, "gone", "Freed 1, not as said: dsync: hold lost"},
		{"held", "done, as said before, no answer, and the store has it no more", func(r *rig) {
			r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}})
			r.done(1)
			r.answer("Release", lost)
			r.pass(time.Second)
			r.answer("Release", core.Reply{})
			r.answer("Heartbeat", core.Reply{})
			r.answer("Release", core.Reply{})
		}, "past", "Freed 1"},
		{"held for a lease", "done, as said before, no answer, and the store has it no more", func(r *rig) {
			r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}})
			r.done(1)
			r.answer("Release", lost)
			r.pass(time.Second)
			r.answer("Release", core.Reply{})
			r.answer("Heartbeat", core.Reply{})
			r.answer("Release", core.Reply{})
		}, "past", "Freed 1, not as said: dsync: hold lost"},
		{"held", "done, as said before, no answer, and the successor does not wait, or has held since", func(r *rig) {
			r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}})
			r.done(1)
			r.pass(r.cfg.Attempt + 2*r.cfg.Margin) // before that, a copy of the claim's request could join
			r.answer("Release", lost)
			r.pass(time.Second)
			r.answer("Release", core.Reply{Err: driver.ErrNotWaiting})
			r.answer("Release", core.Reply{Found: true})
		}, "past", "Freed 1, not as said: dsync: hold lost: it is not known whether the successor was granted the key"},
		{"held for good", "done, as said before, no answer, and the successor does not wait", func(r *rig) {
			r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: "o.2"}})
			r.done(1)
			r.answer("Release", lost)
			r.pass(time.Second)
			r.answer("Release", core.Reply{Err: driver.ErrNotWaiting})
			r.answer("Release", core.Reply{Found: true})
		}, "gone", "Freed 1, not as said: dsync: not in the queue"},
		{"leaving", "session lost", (*rig).deadline, "gone", "Freed 1: dsync: hold lost: no heartbeat was acknowledged within 9.988s"},
		{"leaving to be kept", "revoked", func(r *rig) { r.revoke(); r.answer("Release", core.Reply{Found: true}) }, "leaving", "Freed 1, Release"},
		{"leaving to be kept", "answered", func(r *rig) { r.answer("Release", core.Reply{Found: true}) }, "kept", "Freed 1"},
		{"kept", "time over", func(r *rig) { r.pass(5 * time.Second) }, "past", "Heartbeat"},
		{"kept", "revoked", func(r *rig) { r.revoke() }, "leaving", "Release"},
		{"kept", "session lost", (*rig).deadline, "gone", ""},
		{"kept for the grace", "revoked", (*rig).revoke, "kept", ""},
		{"past and listening", "notice: granted again", func(r *rig) { r.listen(); r.notice(driver.NoticeGrant) }, "leaving", "Release"},
		{"past", "reply: granted again", func(r *rig) { r.acquire(2); r.answer("Acquire", r.granted(9000)) }, "leaving", "Release"},
		{"past", "reply: as before", func(r *rig) { r.acquire(2); r.answer("Acquire", r.granted(5000)) }, "past", ""},
		{"past", "requests void", func(r *rig) { r.beat(); r.pass(time.Second) }, "past", "Discard"},
		{"past", "discarded", func(r *rig) {
			r.beat()
			r.pass(time.Second)
			r.answer("Discard", core.Reply{})
			r.beat()
		}, "gone", ""},
		{"gone", "unknown id in a notice", func(r *rig) {
			r.acquire(1)
			r.answer("Register", core.Reply{Session: "s"})
			r.answer("Acquire", r.behind(1))
			r.listen()
			r.step(core.Noticed{Listener: r.listener, Notice: driver.Notice{Type: driver.NoticeGrant, Session: "s", Key: "k", Claim: "s.77", Token: 7000}})
		}, "joining", "Release"},
	}
	for _, row := range rows {
		name := row.from + ", " + row.event
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			begin[row.from](r)
			if state, _, _ := strings.Cut(row.from, " "); r.c.ClaimState(r.claim) != state {
				t.Fatalf("the claim is %s, want %s to begin with", r.c.ClaimState(r.claim), state)
			}
			row.do(r)
			if got := r.c.ClaimState(r.claim); got != row.next {
				t.Errorf("the claim is %s, want %s", got, row.next)
			}
			if got := strings.Join(r.said, ", "); got != row.says {
				t.Errorf("effects %q, want %q", got, row.says)
			}
		})
	}
}

// says checks the effects of the last event.
func (r *rig) says(what, want string) {
	r.t.Helper()
	if got := strings.Join(r.said, ", "); got != want {
		r.t.Errorf("%s: effects %q, want %q", what, got, want)
	}
}

// A Step checks the deadline before it handles its event, so the first Step after a freeze past the deadline ends the
// holds before it does anything else.
func TestDeadlineComesFirst(t *testing.T) {
	r := newRig(t)
	r.held()
	r.now = r.c.Deadline()
	r.acquire(2)
	r.says("after the deadline", "End 1: no heartbeat was acknowledged within 9.988s")
}

// A heartbeat that finds the session expired ends it at once.
func TestExpiredSessionIsLost(t *testing.T) {
	r := newRig(t)
	r.held()
	r.pass(4 * time.Second)
	r.answer("Heartbeat", core.Reply{Err: fmt.Errorf("by others: %w", driver.ErrSessionExpired)})
	r.says("expired", "End 1: by others: dsync: session expired")
	if r.c.Session() != "" {
		t.Error("the session is still live")
	}
}

// Once all claims are released, Close unregisters the session, and then reports that it is done.
func TestClose(t *testing.T) {
	r := newRig(t)
	r.held()
	r.pass(3 * time.Second)
	r.step(core.Close{})
	r.acquire(3)
	r.says("a caller after Close", "Deliver 3: "+core.ErrClosed.Error())
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.says("after the release", "Freed 1, Unregister")
	r.pass(1900 * time.Millisecond) // no further heartbeat is sent
	r.answer("Unregister", core.Reply{Err: errors.New("cut off")})
	r.says("after Unregister", "Closed, not unregistered")
}

// An unanswered Unregister is repeated until ctx ends, and then sent once more.
func TestUnregisterIsRepeated(t *testing.T) {
	r := newRig(t)
	r.held()
	r.step(core.Close{})
	r.done(1)
	r.answer("Release", core.Reply{Found: true})
	r.says("after the release", "Freed 1, Unregister")
	r.answer("Unregister", core.Reply{Lost: true, Err: errors.New("cut off")})
	r.says("no answer", "")
	r.pass(time.Second)
	r.says("after a pause", "Unregister")
	r.answer("Unregister", core.Reply{Lost: true, Err: errors.New("cut off")})
	r.step(core.Hurry{})
	r.says("ctx has ended", "Unregister")
	r.answer("Unregister", core.Reply{})
	r.says("an answer", "Closed")
}

func TestUnregisterIsSentOnceAfterHurry(t *testing.T) {
	r := newRig(t)
	r.held()
	r.step(core.Close{})
	r.step(core.Hurry{})
	r.answer("Release", core.Reply{Found: true})
	r.says("after the release", "Unregister")
	r.answer("Unregister", core.Reply{Lost: true, Err: errors.New("cut off")})
	r.says("no answer", "Closed, not unregistered")
}

// A lease whose end was never set ends with its session: after an Unregister the store does not have it, even if
// earlier commands got no answer.
func TestCloseOfAWaiterForALease(t *testing.T) {
	r := newRig(t)
	r.begin(leases)
	r.step(core.Close{})
	r.step(core.Hurry{})
	r.answer("Acquire", core.Reply{Lost: true})
	r.says("after the request", "Release")
	r.answer("Release", core.Reply{Lost: true})
	r.says("after the release", "Unregister")
	r.answer("Unregister", core.Reply{})
	r.says("after Unregister", "Closed")
}

// If a try fails because the session can't be registered, the session still registers again for a waiting caller.
func TestWaiterAfterATryRegistersAgain(t *testing.T) {
	r := newRig(t)
	r.acquire(1, tries)
	r.acquire(2)
	r.answer("Register", core.Reply{Lost: true})
	r.says("no answer", "Deliver 1: no answer")
	r.pass(time.Second)
	r.says("after a pause", "Register")
}

// Readers of one process share a hold, which is released when the last of them is done.
func TestSharing(t *testing.T) {
	r := newRig(t)
	reads := func(w *core.Want) { w.Kind, w.Limit, w.Shares = driver.KindRWMutex, 100, true }
	r.begin(reads)
	r.answer("Acquire", r.granted(5000))
	r.acquire(2, reads)
	r.says("another reader", "Deliver 2: hold 1, token 5000")
	r.done(1)
	r.says("the first is done", "")
	r.done(1)
	r.says("both are done", "Release")
}

// A reader does not share a hold for which others wait.
func TestReadersLetOthersHaveTheirTurn(t *testing.T) {
	r := newRig(t)
	reads := func(w *core.Want) { w.Kind, w.Limit, w.Shares = driver.KindRWMutex, 100, true }
	r.cfg.AlwaysListen = true
	r.begin(reads)
	r.listen()
	r.answer("Acquire", r.granted(5000))
	r.notice(driver.NoticeYield)
	r.acquire(2, reads)
	r.says("another reader", "Acquire")
}

// A reader does not share a hold that the store may have lost.
func TestReadersDoNotShareADoubtedHold(t *testing.T) {
	r := newRig(t)
	reads := func(w *core.Want) { w.Kind, w.Limit, w.Shares = driver.KindRWMutex, 100, true }
	r.begin(reads)
	r.answer("Acquire", r.granted(5000))
	r.step(core.NotHeld{Claim: 1})
	r.acquire(2, reads)
	r.says("another reader", "Acquire")
}

// The slot of a hold with Auto becomes free when the grace is over and its claim is released, whatever its holder
// does.
func TestAutoHoldIsFreed(t *testing.T) {
	r := newRig(t)
	r.begin(auto)
	r.answer("Acquire", r.granted(5000))
	r.acquire(2)
	r.revoke()
	r.pass(time.Second)
	r.answer("Release", core.Reply{Found: true})
	r.says("released after the grace", "Freed 1, Acquire")
}

// A caller with First goes ahead of all waiters, and asks each holder that blocks it to give up the key.
func TestForceAsksTheHolders(t *testing.T) {
	r := newRig(t)
	r.acquire(1, first)
	r.answer("Register", core.Reply{Session: "s"})
	r.says("requested", "Acquire first")
	r.answer("Acquire", r.behind(1))
	r.says("in the queue", "Revoke, Read")
}

// A lease that is over is remembered during the grace, so that notices about it are ignored.
func TestLostLeaseIsRemembered(t *testing.T) {
	r := newRig(t)
	r.cfg.AlwaysListen = true
	r.leased()
	r.listen()
	r.pass(r.cfg.Hold(6 * time.Second))
	r.notice(driver.NoticeGrant)
	r.says("named when it is over", "")
}

// A notice is repeated until it is answered.
func TestNoticesAreRepeated(t *testing.T) {
	r := newRig(t)
	r.leaving()
	r.answer("Release", core.Reply{Found: true, Notices: []driver.Notice{{Type: driver.NoticeGrant, Session: "o", Key: "k", Claim: "o.1"}}})
	r.says("a notice", "Freed 1, Notify")
	r.answer("Notify", core.Reply{Lost: true})
	r.pass(time.Second)
	r.says("no answer", "Notify")
	r.answer("Notify", core.Reply{})
	r.step(core.Close{})
	r.says("nothing is left to send", "Unregister")
}

// Two Cores in one process share no data that either of them changes. Here both handle a revocation of a claim whose
// early release is under way. This test can fail only with -race.
func TestCoresShareNothing(t *testing.T) {
	var wg sync.WaitGroup
	for range 2 {
		r := newRig(t)
		r.held()
		r.early(1)
		wg.Go(func() { r.c.Step(r.now, core.Revoked{Claim: "s.1", Key: "k"}) }) // no fmt: its sync.Pool would synchronize the goroutines
	}
	wg.Wait()
}
