package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// waiters brings n claims, each of its own key, into the state waiting, while the session has no listener that is ready.
func (r *rig) waiters(n int, change ...func(w *core.Want)) {
	for i := 1; i <= n; i++ {
		r.acquire(uint64(i), append([]func(w *core.Want){func(w *core.Want) { w.Key = fmt.Sprint(i) }}, change...)...)
		if i == 1 {
			r.answer("Register", core.Reply{Session: "s"})
		}
		r.answer("Acquire", r.behind(1))
	}
	r.answer("Read", r.member())
}

// twoWaiters is like waiters, for two claims of which only one may request at once.
func (r *rig) twoWaiters() {
	r.cfg.PollLanes = 1
	r.waiters(2)
}

// twoWaitersRead is like twoWaiters, but the listener has become ready, and a look reads their keys.
func (r *rig) twoWaitersRead() {
	r.twoWaiters()
	r.listen()
	r.answer("Heartbeat", core.Reply{})
}

// look answers a look: these of the keys that it reads are held by their claims, and these have no record.
func (r *rig) look(held []string, without ...string) {
	r.t.Helper()
	var states []driver.State
	for _, key := range r.sent["Keys"].Keys.Keys {
		st := driver.State{Key: key}
		if slices.Contains(held, key) {
			st.Holders = []driver.Holder{{Claim: "s." + key, Session: "s", Token: 5000}}
		}
		if !slices.Contains(without, key) {
			states = append(states, st)
		}
	}
	r.answer("Keys", core.Reply{States: states})
}

// When the listener becomes ready, as after a fail-over, each of a few waiters requests again. The keys of more waiters
// are read, many per command and without a pause, and only those that were granted request again.
func TestMissedGrantsOfManyWaiters(t *testing.T) {
	tests := []struct {
		waiters int
		granted []string
		want    map[core.Op]int
	}{
		{8, []string{"3"}, map[core.Op]int{core.Acquire: 8}},
		{9, []string{"3"}, map[core.Op]int{core.Heartbeat: 1, core.Keys: 1, core.Acquire: 1}},
		{500, nil, map[core.Op]int{core.Heartbeat: 1, core.Keys: 1}},
		{1000, []string{"1", "500", "501", "1000"}, map[core.Op]int{core.Heartbeat: 1, core.Keys: 2, core.Acquire: 4}},
		{1001, []string{"1001"}, map[core.Op]int{core.Heartbeat: 1, core.Keys: 3, core.Acquire: 1}},
	}
	for _, test := range tests {
		r := newRig(t)
		r.waiters(test.waiters)
		var sends []core.Send
		var delivered []string
		r.record = func(_ core.Event, effects []core.Effect) {
			for _, e := range effects {
				switch e := e.(type) {
				case *core.Send:
					sends = append(sends, *e)
				case *core.Deliver:
					delivered = append(delivered, e.To.Key)
				}
			}
		}
		began, sent := r.now, make(map[core.Op]int)
		for r.listen(); len(sends) > 0; {
			s := sends[0]
			sends = sends[1:]
			sent[s.Op]++
			switch r.sent[s.Op.String()] = s; s.Op {
			case core.Keys:
				r.look(test.granted)
			case core.Acquire:
				if claim := s.Edit.Acquire.Claim; slices.Contains(test.granted, claim.Key) {
					r.answer("Acquire", r.grantedTo(claim.ID, 5000))
				} else {
					r.answer("Acquire", r.behind(1))
				}
			default:
				r.answer(s.Op.String(), core.Reply{})
			}
		}
		if fmt.Sprint(sent) != fmt.Sprint(test.want) {
			t.Errorf("%d waiters, of which %d were granted: commands %v, want %v", test.waiters, len(test.granted), sent, test.want)
		}
		if !slices.Equal(delivered, test.granted) {
			t.Errorf("%d waiters: delivered %v, want %v", test.waiters, delivered, test.granted)
		}
		if r.now != began {
			t.Errorf("%d waiters: it took %v", test.waiters, r.now.Sub(began))
		}
	}
}

// A deposed primary may acknowledge a heartbeat that was sent before the listener became ready, and would not show a
// later grant. So only a look that follows another heartbeat counts.
func TestLookForGrantsFollowsAHeartbeat(t *testing.T) {
	t.Run("no look is under way", func(t *testing.T) {
		r := newRig(t)
		r.twoWaiters()
		r.untilHeartbeat()
		r.listen()
		r.says("a heartbeat is under way", "")
		r.answer("Heartbeat", core.Reply{})
		r.says("it is acknowledged", "Heartbeat")
		r.answer("Heartbeat", core.Reply{})
		r.says("the next is acknowledged", "Keys")
		r.look([]string{"2"})
		r.says("one was granted", "Acquire")
		if got := r.sent["Acquire"].Edit.Acquire.Claim.ID; got != "s.2" {
			t.Errorf("%s requests again, want s.2", got)
		}
	})
	t.Run("a look of the same key is under way", func(t *testing.T) {
		semaphore := func(w *core.Want) { w.Kind, w.Limit = driver.KindSemaphore, 2 }
		held := core.Reply{State: driver.State{Kind: driver.KindSemaphore, Limit: 2}}
		held.State.Holders = []driver.Holder{{Claim: "s.1", Session: "s", Token: 5000, Weight: 1}}
		r := newRig(t)
		r.cfg.PollLanes = 1
		r.begin(semaphore)
		r.answer("Acquire", held)
		r.acquire(2, semaphore)
		r.answer("Acquire", r.behind(1))
		r.acquire(3, func(w *core.Want) { w.Key = "3" })
		r.answer("Acquire", r.behind(1))
		r.answer("Read", r.member())
		r.beat()
		r.says("the held key is read", "Keys")
		r.listen()
		r.says("ready", "Heartbeat")
		r.answer("Keys", core.Reply{States: []driver.State{{Key: "k", Holders: held.State.Holders}}})
		r.says("the look from before", "")
		r.answer("Heartbeat", core.Reply{})
		r.says("acknowledged", "Keys")
		if got := fmt.Sprint(r.sent["Keys"].Keys.Keys); got != "[k 3]" {
			t.Errorf("the next look reads %s, want [k 3]", got)
		}
		r.answer("Keys", core.Reply{States: []driver.State{{Key: "3"}, {Key: "k", Holders: append(held.State.Holders, driver.Holder{Claim: "s.2", Session: "s", Token: 6000})}}})
		r.says("one was granted", "Acquire")
	})
}

// A look for grants that has no answer is repeated, after a pause and a heartbeat.
func TestLookForGrantsWithoutAnAnswer(t *testing.T) {
	r := newRig(t)
	r.cfg.Backoff = 2 * time.Second
	r.twoWaitersRead()
	for _, pause := range []time.Duration{r.cfg.Retry * 3 / 4, r.cfg.Backoff * 3 / 4} {
		r.lookFails(pause)
	}
	r.look([]string{"1"})
	r.says("one was granted", "Acquire")
	r.pass(r.cfg.Backoff)
	r.says("the other was not", "")
	delete(r.sent, "Keys")
	r.beat()
	if r.sent["Keys"].ID != 0 {
		t.Error("the next heartbeat is followed by a look, although nobody is in doubt")
	}
}

// If the key of a waiter has no record, somebody has deleted it. The waiter joins again.
func TestLookForGrantsFindsNoRecord(t *testing.T) {
	r := newRig(t)
	r.twoWaitersRead()
	r.look(nil, "1")
	r.says("no record of one", "Acquire")
}

// A claim that a look has shown as waiting can linger once it is granted, as after a request: the listener hears if others
// begin to wait.
func TestLookForGrantsLetsLinger(t *testing.T) {
	r := newRig(t)
	r.cfg.Linger = 2 * time.Second
	r.twoWaitersRead()
	r.look(nil)
	r.notice(driver.NoticeGrant)
	r.says("granted", "Deliver 1: hold 1, token 7000")
	r.done(1)
	r.says("done", "Freed 1")
	if got := r.c.ClaimState(1); got != "lingering" {
		t.Errorf("the claim is %s, want lingering", got)
	}
}

// A reading does not show what claims for ticks and claims with First wait for besides their grant. They request again
// when the listener becomes ready, however many wait.
func TestSomeWaitersAlwaysRequest(t *testing.T) {
	for name, change := range map[string]func(w *core.Want){"ticks": forTick(1), "First": first} {
		r := newRig(t)
		r.waiters(20, change)
		r.listen()
		r.says(name, strings.TrimSuffix(strings.Repeat("Acquire"+how(r.sent["Acquire"].Edit)+", ", 8), ", "))
	}
	r := newRig(t)
	r.twoWaiters()
	r.acquire(3, breaks)
	r.answer("Heartbeat", core.Reply{})
	r.answer("Load", r.behind(0))
	r.listen()
	r.says("a Break", "Load, Heartbeat")
}

// The doubt about a waiter ends with its wait: if it is granted the key, or polls, before the look, then the look is not
// about its wait.
func TestWaitEndsBeforeTheLook(t *testing.T) {
	grant := func(claim string) core.Noticed {
		return core.Noticed{Listener: 1, Notice: driver.Notice{Type: driver.NoticeGrant, Session: "s", Key: claim[2:], Claim: claim, Token: 5000}}
	}
	t.Run("granted", func(t *testing.T) {
		r := newRig(t)
		r.twoWaiters()
		r.listen()
		r.step(grant("s.1"))
		r.pass(aMoment)
		r.answer("Heartbeat", core.Reply{})
		r.says("acknowledged", "Keys")
		r.look(nil)
		r.says("a deposed primary does not show the hold", "Heartbeat")
	})
	t.Run("granted, and handed off", func(t *testing.T) {
		r := newRig(t)
		r.twoWaiters()
		r.acquire(3, func(w *core.Want) { w.Key = "1" })
		r.listen()
		r.step(grant("s.1"))
		r.done(1)
		r.says("done", "Freed 1, Deliver 3: hold 3, token 5001")
	})
	t.Run("polled", func(t *testing.T) {
		r := newRig(t)
		r.cfg.Poll = 2 * time.Second
		r.twoWaiters()
		r.listen()
		r.pass(2200 * time.Millisecond)
		for range 2 {
			r.answer("Acquire", r.behind(1))
		}
		r.answer("Heartbeat", core.Reply{})
		r.says("acknowledged", "")
	})
	t.Run("all answered by the look", func(t *testing.T) {
		r := newRig(t)
		r.twoWaiters()
		r.listen()
		r.answer("Heartbeat", core.Reply{})
		r.step(grant("s.1"))
		r.step(grant("s.2"))
		r.look([]string{"1", "2"})
		r.says("granted meanwhile", "")
	})
}
