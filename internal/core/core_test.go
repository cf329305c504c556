package core_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

var config = &core.Config{
	TTL: 12 * time.Second, Margin: time.Second, Grace: time.Second, Heartbeat: 4 * time.Second,
	Attempt: 2 * time.Second, Poll: 20 * time.Second, HandOff: time.Second, Retry: time.Second, Backoff: time.Second,
	Rand: func(n int64) int64 { return n / 2 },
}

// A rig is a Core whose events come from a test.
type rig struct {
	t    *testing.T
	c    *core.Core
	now  core.Instant
	sent map[string]core.Send // the last command of each op
	said []string             // the effects of the last event
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, c: core.New(config), now: 1, sent: make(map[string]core.Send)}
}

// step has the Core take an event.
func (r *rig) step(e core.Event) {
	r.said = nil
	for _, f := range r.c.Step(r.now, e) {
		switch f := f.(type) {
		case core.Send:
			r.sent[f.Op.String()] = f
			r.said = append(r.said, f.Op.String())
		case core.Deliver:
			if f.Err != nil {
				r.said = append(r.said, fmt.Sprintf("Deliver %d: %v", f.Call, f.Err))
			} else {
				r.said = append(r.said, fmt.Sprintf("Deliver %d: hold %d, token %d", f.Call, f.Hold, f.Token))
			}
		case core.End:
			r.said = append(r.said, fmt.Sprintf("End %d: %v", f.Hold, f.Cause))
		case core.Notify:
			r.said = append(r.said, "Notify")
		case core.Closed:
			r.said = append(r.said, "Closed")
		}
	}
}

func (r *rig) clock() time.Time { return time.Unix(1000, int64(r.now)) }

// answer answers the last command of that op.
func (r *rig) answer(op string, reply core.Reply) {
	r.t.Helper()
	s, ok := r.sent[op]
	if !ok {
		r.t.Fatalf("no %s was sent", op)
	}
	reply.Command, reply.Now = s.ID, r.clock()
	reply.State.Key, reply.State.Now = "k", r.clock()
	r.step(reply)
}

// pass lets time pass, with a Tick whenever one is due.
func (r *rig) pass(d time.Duration) {
	for end := r.now.Add(d); ; {
		next := r.c.Next()
		if next > end {
			r.now = end
			return
		}
		r.now = max(r.now, next)
		r.step(core.Tick{})
	}
}

// The states that rows begin in.

func (r *rig) joining() {
	r.step(core.Acquire{Call: 1, Key: "k"})
	r.answer("Register", core.Reply{Session: "s"})
}

func (r *rig) waiting() {
	r.joining()
	r.answer("Join", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "o.1", Session: "o", Token: 1}}, Waiting: 1, Position: 1}})
	r.answer("Read", core.Reply{Members: []driver.Member{{ID: "o", TTL: 10 * time.Second, LastHeartbeat: r.clock()}}})
}

func (r *rig) granted(token int64) core.Reply {
	return core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "s.1", Session: "s", Token: token}}}}
}

func (r *rig) held() {
	r.joining()
	r.answer("Join", r.granted(5000))
}

func (r *rig) windingDown() {
	r.held()
	r.step(core.Revoked{Claim: "s.1", Key: "k"})
}

func (r *rig) lost() {
	r.held()
	r.now = r.c.Deadline()
	r.step(core.Tick{})
}

func (r *rig) leaving() {
	r.held()
	r.step(core.Done{Hold: 1})
}

func (r *rig) left() {
	r.leaving()
	r.answer("Release", core.Reply{Found: true})
}

// Each row of the claim's table.
func TestTable(t *testing.T) {
	notice := func(n driver.NoticeType, claim string) core.Noticed {
		return core.Noticed{Notice: driver.Notice{Type: n, Session: "s", Key: "k", Claim: claim, Token: 7000}}
	}
	rows := []struct {
		from  string
		event string
		do    func(r *rig)
		next  string
		says  string
	}{
		{"joining", "reply: granted", func(r *rig) { r.answer("Join", r.granted(5000)) }, "held", "Deliver 1: hold 1, token 5000"},
		{"joining", "reply: queued", func(r *rig) {
			r.answer("Join", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: "o.1", Session: "o"}}, Waiting: 1, Position: 1}})
		}, "waiting", "Read"},
		{"joining", "reply: too late", func(r *rig) { r.answer("Join", core.Reply{}) }, "joining", "Join"},
		{"joining", "no answer", func(r *rig) { r.answer("Join", core.Reply{Lost: true}) }, "joining", ""},
		{"joining", "no answer, and a pause", func(r *rig) { r.answer("Join", core.Reply{Lost: true}); r.pass(time.Second) }, "joining", "Join"},
		{"joining", "given up, and then no answer", func(r *rig) { r.step(core.GiveUp{Call: 1}); r.answer("Join", core.Reply{Lost: true}) }, "leaving", "Release"},
		{"joining", "session lost", func(r *rig) { r.now = r.c.Deadline(); r.step(core.Tick{}) }, "gone", "Register"},
		{"waiting", "notice: granted", func(r *rig) { r.step(notice(driver.NoticeGrant, "s.1")) }, "held", "Deliver 1: hold 1, token 7000"},
		{"waiting", "notice: wake", func(r *rig) { r.step(notice(driver.NoticeWake, "s.1")) }, "joining", "Join"},
		{"waiting", "a session ahead may have lapsed", func(r *rig) {
			r.step(core.Reply{Command: r.sent["Heartbeat"].ID, Lost: true})
			r.now = r.now.Add(9 * time.Second)
			r.step(core.Tick{})
			r.answer("Heartbeat", core.Reply{})
			r.now = r.now.Add(time.Second)
			r.step(core.Tick{})
		}, "waiting", "Expire"},
		{"waiting", "a session ahead has expired", func(r *rig) {
			r.now = r.now.Add(9 * time.Second)
			r.step(core.Tick{})
			r.answer("Heartbeat", core.Reply{})
			r.now = r.now.Add(time.Second)
			r.step(core.Tick{})
			r.answer("Expire", core.Reply{})
		}, "joining", "Join"},
		{"waiting", "given up", func(r *rig) { r.step(core.GiveUp{Call: 1}) }, "leaving", "Release"},
		{"waiting", "closing", func(r *rig) { r.step(core.Close{}) }, "leaving", "Deliver 1: session closed, Release"},
		{"waiting", "session lost", func(r *rig) { r.now = r.c.Deadline(); r.step(core.Tick{}) }, "gone", "Register"},
		{"held", "done, the next here fits", func(r *rig) { r.step(core.Acquire{Call: 2, Key: "k"}); r.step(core.Done{Hold: 1}) }, "held", "Deliver 2: hold 2, token 5001"},
		{"held", "done, the next here waited too long", func(r *rig) {
			r.step(core.Acquire{Call: 2, Key: "k"})
			r.pass(time.Second)
			r.step(core.Done{Hold: 1})
		}, "leaving", "Release, Join"},
		{"held", "done", func(r *rig) { r.step(core.Done{Hold: 1}) }, "leaving", "Release"},
		{"held", "closing", func(r *rig) { r.step(core.Close{}) }, "windingDown", "End 1: session closed"},
		{"held", "revoked", func(r *rig) { r.step(notice(driver.NoticeRevoke, "s.1")) }, "windingDown", "End 1: asked to give the key up"},
		{"held", "session lost", func(r *rig) { r.now = r.c.Deadline(); r.step(core.Tick{}) }, "lost", "End 1: session lost"},
		{"windingDown", "done", func(r *rig) { r.step(core.Done{Hold: 1}) }, "leaving", "Release"},
		{"windingDown", "grace over", func(r *rig) { r.pass(time.Second) }, "leaving", "Release"},
		{"windingDown", "session lost", func(r *rig) { r.now = r.c.Deadline(); r.step(core.Tick{}) }, "lost", ""},
		{"lost", "done", func(r *rig) { r.step(core.Done{Hold: 1}) }, "gone", ""},
		{"lost", "another caller here", func(r *rig) { r.step(core.Acquire{Call: 2, Key: "k"}) }, "lost", ""},
		{"leaving", "answered", func(r *rig) { r.answer("Release", core.Reply{Found: true}) }, "left", ""},
		{"leaving", "no answer", func(r *rig) { r.answer("Release", core.Reply{Lost: true}) }, "leaving", ""},
		{"leaving", "no answer, and a pause", func(r *rig) { r.answer("Release", core.Reply{Lost: true}); r.pass(time.Second) }, "leaving", "Release"},
		{"leaving", "answered: not there", func(r *rig) { r.answer("Release", core.Reply{}) }, "leaving", "Heartbeat"},
		{"leaving", "answered: not there, said again after a heartbeat", func(r *rig) {
			r.answer("Release", core.Reply{})
			r.answer("Heartbeat", core.Reply{})
			r.answer("Release", core.Reply{})
		}, "left", ""},
		{"leaving", "session lost", func(r *rig) { r.now = r.c.Deadline(); r.step(core.Tick{}) }, "gone", ""},
		{"left", "requests void", func(r *rig) {
			r.pass(4 * time.Second)
			r.answer("Heartbeat", core.Reply{})
			r.pass(time.Second)
		}, "left", "Discard"},
		{"left", "discarded", func(r *rig) {
			r.pass(4 * time.Second)
			r.answer("Heartbeat", core.Reply{})
			r.pass(time.Second)
			r.answer("Discard", core.Reply{})
		}, "gone", ""},
		{"gone", "unknown id in a notice", func(r *rig) { r.joining(); r.step(notice(driver.NoticeGrant, "s.77")) }, "joining", "Release"},
	}
	for _, row := range rows {
		t.Run(row.from+", "+row.event, func(t *testing.T) {
			r := newRig(t)
			map[string]func(){
				"joining": r.joining, "waiting": r.waiting, "held": r.held, "windingDown": r.windingDown,
				"lost": r.lost, "leaving": r.leaving, "left": r.left, "gone": func() {},
			}[row.from]()
			if row.from != "gone" && r.c.ClaimState(1) != row.from {
				t.Fatalf("the claim is %s, want %s to begin with", r.c.ClaimState(1), row.from)
			}
			row.do(r)
			if got := r.c.ClaimState(1); got != row.next {
				t.Errorf("the claim is %s, want %s", got, row.next)
			}
			if got := strings.Join(r.said, ", "); got != row.says {
				t.Errorf("effects %q, want %q", got, row.says)
			}
		})
	}
}

// Time that passed unseen counts first: a process that was frozen past its deadline has lost what it held
// before anything else happens to it.
func TestDeadlineComesFirst(t *testing.T) {
	r := newRig(t)
	r.held()
	r.now = r.c.Deadline()
	r.step(core.Acquire{Call: 2, Key: "k"})
	if got, want := strings.Join(r.said, ", "), "End 1: session lost"; got != want {
		t.Errorf("effects %q, want %q", got, want)
	}
}

// A heartbeat that finds the session expired ends it at once.
func TestExpiredSessionIsLost(t *testing.T) {
	r := newRig(t)
	r.held()
	r.pass(4 * time.Second)
	r.answer("Heartbeat", core.Reply{Err: fmt.Errorf("by others: %w", driver.ErrSessionExpired)})
	if got, want := strings.Join(r.said, ", "), "End 1: session lost"; got != want {
		t.Errorf("effects %q, want %q", got, want)
	}
	if r.c.Session() != "" {
		t.Error("the session goes on")
	}
}

// Close unregisters when all is released, and then says that it is done.
func TestClose(t *testing.T) {
	r := newRig(t)
	r.held()
	r.step(core.Close{})
	r.step(core.Acquire{Call: 3, Key: "k"})
	if got, want := strings.Join(r.said, ", "), "Deliver 3: "+core.ErrClosed.Error(); got != want {
		t.Errorf("a caller after Close: %q, want %q", got, want)
	}
	r.step(core.Done{Hold: 1})
	r.answer("Release", core.Reply{Found: true})
	if got, want := strings.Join(r.said, ", "), "Unregister"; got != want {
		t.Errorf("after the release: %q, want %q", got, want)
	}
	r.answer("Unregister", core.Reply{Err: errors.New("cut off")})
	if got, want := strings.Join(r.said, ", "), "Closed"; got != want {
		t.Errorf("after Unregister: %q, want %q", got, want)
	}
}
