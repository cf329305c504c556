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

// A judge is the part of testing.T that a rig uses.
type judge interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A rig is a Core that gets its events from a test.
type rig struct {
	t        judge
	cfg      core.Config
	c        *core.Core
	now      core.Instant
	calls    map[uint64]*core.Call
	sent     map[string]core.Send // last command of each op
	listener uint64               // number of the last listener
	claim    uint64               // number of the claim that a row is about
	said     []string             // the effects of the last event

	record func(e core.Event, effects []core.Effect) // called after each event; nil: not called
}

func newRig(t judge) *rig {
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
	effects := r.c.Step(r.now, e)
	if r.record != nil {
		r.record(e, effects)
	}
	for _, f := range effects {
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
	r.untilHeartbeat()
	r.step(&core.Reply{Command: r.sent["Heartbeat"].ID, Now: r.clock().Add(jump)})
}

// pass lets time pass, with a Tick whenever one is due.
func (r *rig) pass(d time.Duration) {
	var said []string
	for i, end := 0, r.now.Add(d); ; i++ {
		next := r.c.Next()
		if i > 1000 {
			r.t.Fatalf("a Tick is due again and again")
		}
		if next > end {
			r.now, r.said = end, said
			return
		}
		r.now = max(r.now, next)
		r.step(core.Tick{})
		said = append(said, r.said...)
	}
}

// exactly lets time pass. At its end, and no moment earlier, the effects are those of then.
func (r *rig) exactly(d time.Duration, what, before, then string) {
	r.t.Helper()
	r.pass(d - aMoment)
	r.says("before: "+what, before)
	r.pass(aMoment)
	r.says(what, then)
}

// untilHeartbeat lets time pass until a heartbeat is sent.
func (r *rig) untilHeartbeat() {
	r.t.Helper()
	for i := 0; r.sent["Heartbeat"].ID == 0; i++ {
		if i > 100 || r.c.Next() == core.Never {
			r.t.Fatalf("no heartbeat is sent")
		}
		r.now = max(r.now, r.c.Next())
		r.step(core.Tick{})
	}
}

// beat lets time pass until a heartbeat is sent, and answers the heartbeat.
func (r *rig) beat() {
	r.t.Helper()
	delete(r.sent, "Heartbeat")
	r.untilHeartbeat()
	r.answer("Heartbeat", core.Reply{})
}

// alive lets time pass, and answers the heartbeat that was sent meanwhile, if any.
func (r *rig) alive(d time.Duration) {
	r.t.Helper()
	if r.pass(d); r.sent["Heartbeat"].ID != 0 {
		r.answer("Heartbeat", core.Reply{})
		delete(r.sent, "Heartbeat")
	}
}

// watch calls f for each later effect of its kind.
func watch[T core.Effect](r *rig, f func(T)) {
	r.record = func(_ core.Event, effects []core.Effect) {
		for _, e := range effects {
			if e, is := e.(T); is {
				f(e)
			}
		}
	}
}

// notice delivers a notice about claim 1.
func (r *rig) notice(n driver.NoticeType) {
	r.step(core.Noticed{Listener: r.listener, Notice: driver.Notice{Type: n, Session: "s", Key: "k", Claim: "s.1", Token: 7000}})
}

// wake delivers a notice to request claim 1 again, which a command of this session has returned.
func (r *rig) wake() {
	r.returned(driver.Notice{Type: driver.NoticeWake, Session: "s", Key: "k", Claim: "s.1"})
}

// grants delivers a notice of a grant, which a command of this session has returned.
func (r *rig) grants(claim string, token int64) {
	r.returned(driver.Notice{Type: driver.NoticeGrant, Session: "s", Key: "k", Claim: claim, Token: token})
}

// returned answers a caller's command with notices.
func (r *rig) returned(notices ...driver.Notice) {
	r.step(&core.Ask{Command: core.Command{Op: core.Resize}})
	r.step(&core.Reply{Command: r.sent["Resize"].ID, Notices: notices})
}

// listen makes the listener ready.
func (r *rig) listen() {
	for i := 0; r.listener == 0; i++ {
		if r.pass(time.Second); i > 10 {
			r.t.Fatalf("no listener is opened")
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

// doneFor makes the holder ask for a release to the successor, and then be done.
func (r *rig) doneFor(successor string) {
	r.step(core.ReleaseBy{Claim: 1, Release: driver.Release{Successor: successor}})
	r.done(1)
}

func (r *rig) deadline() { r.now = r.c.Deadline(); r.step(core.Tick{}) }
func (r *rig) revoke()   { r.step(core.Revoked{Claim: "s.1", Key: "k"}) }

// deleted is the cause of a hold's end if the key's record was deleted.
const deleted = "dsync: the store has no record of the hold any more; somebody has deleted or changed it"

// load makes a caller read the key.
func (r *rig) load() { r.step(&core.Ask{Command: core.Command{Op: core.Load, Key: "k"}}) }

// seen makes a caller read the key at once.
func (r *rig) seen(holders ...driver.Holder) { r.seenAhead(0, holders...) }

// seenAhead is like seen, but the store's clock has jumped forward.
func (r *rig) seenAhead(jump time.Duration, holders ...driver.Holder) {
	r.load()
	r.shows(driver.State{Key: "k", Now: r.clock().Add(jump), Kind: driver.KindMutex, Limit: 1, Holders: holders})
}

// shows answers the caller's reading.
func (r *rig) shows(st driver.State) { r.step(&core.Reply{Command: r.sent["Load"].ID, State: st}) }

// notHeld makes the store refuse the holder's Publish, because it does not have the claim.
func (r *rig) notHeld() {
	r.step(&core.Ask{Command: core.Command{Op: core.Publish}, Claim: 1})
	r.answer("Publish", core.Reply{Err: driver.ErrNotHeld})
}

func (r *rig) progress(limit time.Duration) {
	r.step(core.Progress{Claim: 1, Hold: r.calls[1], Limit: limit})
}

func tries(w *core.Want)  { w.Try = true }
func leases(w *core.Want) { w.Lease = 6 * time.Second }
func auto(w *core.Want)   { w.Auto = true }
func first(w *core.Want)  { w.First = true }
func breaks(w *core.Want) { *w = core.Want{Key: w.Key} }
func forTick(n int64) func(w *core.Want) {
	return func(w *core.Want) { w.Kind, w.Tick = driver.KindPeriodic, n }
}

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

func (r *rig) registeredToBreak() {
	r.begin(func(w *core.Want) { w.Key = "other" })
	r.claim = 2
	r.acquire(2, breaks)
}

// waitingToBreak is like waiting, for a Break.
func (r *rig) waitingToBreak() {
	r.begin(breaks)
	r.answer("Load", r.behind(0))
	r.answer("Read", r.member())
}

func (r *rig) checking() {
	r.begin(tries)
	r.answer("Acquire", r.behind(0))
}

// mismatched is like checking, but here the claim is checking because the key is in use as another kind of lock.
func (r *rig) mismatched() {
	r.joining()
	r.answer("Acquire", core.Reply{Err: &driver.MismatchError{Key: "k", Kind: driver.KindSemaphore}})
}

func (r *rig) granted(token int64) core.Reply { return r.grantedTo("s.1", token) }

func (r *rig) grantedTo(claim string, token int64) core.Reply {
	return core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: claim, Session: "s", Token: token}}}}
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
	r.begin(forTick(1))
	r.answer("Acquire", r.granted(5000))
	r.acquire(2, forTick(2))
}

func (r *rig) leased() {
	r.dating()
	r.answer("Extend", core.Reply{Holder: driver.Holder{Until: r.clock().Add(6 * time.Second)}})
}

// extending makes the holder send an Extend, and returns the number of the command.
func (r *rig) extending() uint64 {
	r.step(&core.Ask{Command: core.Command{Op: core.Extend}, Claim: 1})
	return r.sent["Extend"].ID
}

// extended answers the last Extend.
func (r *rig) extended(until time.Time) { r.extendedBy(r.sent["Extend"].ID, until) }

// extendedBy answers the Extend with the given number.
func (r *rig) extendedBy(command uint64, until time.Time) {
	r.step(&core.Reply{Command: command, Holder: driver.Holder{Until: until}})
}

// notExtended answers the last Extend with an error.
func (r *rig) notExtended(err error) {
	r.t.Helper()
	r.answer("Extend", core.Reply{Err: err})
}

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

// says checks the effects of the last event.
func (r *rig) says(what, want string) {
	r.t.Helper()
	if got := strings.Join(r.said, ", "); got != want {
		r.t.Errorf("%s: effects %q, want %q", what, got, want)
	}
}

// A Step checks the deadline before it handles its event, so if a freeze lasts past the deadline, the next Step ends
// the holds before it does anything else.
func TestDeadlineComesFirst(t *testing.T) {
	r := newRig(t)
	r.held()
	r.now = r.c.Deadline()
	r.acquire(2)
	r.says("after the deadline", "End 1: no heartbeat was acknowledged within 9.988s")
}

// If a heartbeat finds the session expired, the Core ends the session at once.
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
	r.pass(r.cfg.Retry * 3 / 4)
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

// A fail-over may undo an early release. The key is free nevertheless once the session is unregistered. If it can't be
// unregistered, Close names the key.
func TestCloseAfterAnEarlyRelease(t *testing.T) {
	for says, reply := range map[string]core.Reply{
		"Closed": {},
		`Closed: not released: "k", not unregistered`: {Lost: true},
	} {
		r := newRig(t)
		r.heldForGood()
		r.early(1)
		r.answer("Release", core.Reply{Found: true, Applied: driver.OpTime{Term: 1, Time: 7}})
		r.step(core.Close{})
		r.step(core.Hurry{})
		r.answer("Unregister", reply)
		r.says("after Unregister", says)
	}
}

// Close does not name a key whose release it had given up, if the claim was shown again and then released.
func TestCloseAfterALaterRelease(t *testing.T) {
	r := newRig(t)
	r.held()
	r.step(core.Close{})
	r.done(1)
	r.answer("Release", core.Reply{Err: driver.ErrRefused})
	r.grants("s.1", 1<<40)
	r.answer("Release", core.Reply{Found: true})
	r.step(core.Hurry{})
	r.answer("Unregister", core.Reply{Lost: true})
	r.says("after Unregister", "Closed, not unregistered")
}

// Close names a key that was lost with the session during Close, even if Close goes on until the grace is over: the key
// was never released.
func TestCloseAfterALoss(t *testing.T) {
	r := newRig(t)
	r.begin(auto)
	r.answer("Acquire", r.granted(5000))
	r.pass(r.c.Deadline().Sub(r.now) - aMoment)
	r.step(core.Close{})
	r.returned(driver.Notice{Type: driver.NoticeGrant, Session: "o", Key: "other", Claim: "o.1", Token: 1})
	r.pass(aMoment + r.cfg.Grace) // the session is lost, and the grace that followed is over, but the notice has no answer
	r.answer("Notify", core.Reply{})
	r.says("the notice was sent", `Closed: not released: "k", not unregistered`)
}

// Answers to callers' commands give Close no more time, because callers may go on reading.
func TestCloseDuringReadings(t *testing.T) {
	r := newRig(t)
	r.held()
	r.step(core.Close{})
	r.done(1)
	r.pass(r.cfg.Grace + r.cfg.Attempt - aMoment)
	r.load()
	r.answer("Load", core.Reply{})
	r.pass(aMoment)
	if n := len(r.said); n == 0 || !strings.HasPrefix(r.said[n-1], "Closed") {
		t.Errorf("when Close's time is over: %q", r.said)
	}
}

// Failure is about what waiters wait for. Whether a caller's command has an answer does not matter to them.
func TestFailureOfACallersCommand(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.load()
	r.answer("Load", noAnswer)
	if err := r.c.Failure(); err != nil {
		t.Errorf("a reading failed: %v", err)
	}
	r.answer("Acquire", noAnswer)
	r.load()
	r.answer("Load", core.Reply{})
	if r.c.Failure() == nil {
		t.Error("a reading was answered after a request was not: no error")
	}
}

// A lease whose end was never set ends with its session: after an Unregister the store no longer has the lease, even if
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
	r.notHeld()
	r.acquire(2, reads)
	r.says("another reader", "Acquire")
}

// The slot of a hold with Auto becomes free when the grace is over and the hold's claim is released, whatever the
// holder does.
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

// A caller with First goes ahead of all waiters, and asks the holders in its way to give up the key.
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
	r.says("a notice after the lease is over", "")
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

// A Step in which a transition is always followed by another panics. It would not end otherwise.
func TestStepEnds(t *testing.T) {
	r := newRig(t)
	r.waiting()
	r.c.Repeat()
	defer func() {
		if p := recover(); p != core.NeverDone {
			t.Errorf("panic %v, want %q", p, core.NeverDone)
		}
	}()
	r.wake()
}

// A Step may end thousands of holds of a key, and the waits of thousands of callers.
func TestStepForManyClaims(t *testing.T) {
	const many = 1500
	share := func(w *core.Want) { w.Kind, w.Limit = driver.KindRWMutex, many }
	r := newRig(t)
	r.begin(share)
	for n := range uint64(many) {
		reply := r.grantedTo(fmt.Sprint("s.", n+1), int64(n+1)<<20)
		reply.State.Kind, reply.State.Limit = driver.KindRWMutex, many
		r.answer("Acquire", reply)
		r.acquire(n+2, share)
	}
	if r.acquire(many+2, share, first); len(r.said) < many {
		t.Errorf("%d effects, want at least one for each of %d holds", len(r.said), many)
	}
	r = newRig(t)
	for n := range uint64(many) {
		r.acquire(n+1, forTick(1))
	}
	r.answer("Register", core.Reply{Session: "s"})
	if r.answer("Acquire", core.Reply{State: driver.State{Sealed: 1}}); len(r.said) < many {
		t.Errorf("%d effects, want at least one for each of %d callers", len(r.said), many)
	}
}
