package core_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// The session tells the store which keys it observes: again if there is no answer, if the keys have changed meanwhile,
// and after a loss.
func TestObservedKeysAreSentUntilAnswered(t *testing.T) {
	r := newRig(t)
	r.acquire(1, auto)
	r.answer("Register", core.Reply{Session: "s"})
	sent := int64(0)
	wantSent := func(what string, d time.Duration, keys ...string) {
		t.Helper()
		delete(r.sent, "Observe")
		r.pass(d)
		got := r.sent["Observe"]
		if got.Command == nil || !slices.Equal(got.Observed, keys) || got.Seq < sent {
			t.Fatalf("%s: sent %+v, want the keys %q and no lower number than %d", what, got.Command, keys, sent)
		}
		sent = got.Seq
	}
	r.step(core.Observe{Key: "b", N: 1})
	r.step(core.Observe{Key: "a", N: 1})
	wantSent("two keys", 10*time.Millisecond, "a", "b")
	r.answer("Observe", noAnswer)
	if err := r.c.Failure(); err != nil {
		t.Errorf("no caller waits for a list, but would learn of %v", err)
	}
	wantSent("no answer", time.Second, "a", "b")
	before := sent
	r.step(core.Observe{Key: "a", N: -1})
	r.says("while a list is under way", "")
	r.answer("Observe", core.Reply{})
	wantSent("changed meanwhile", 20*time.Millisecond, "b")
	if sent == before {
		t.Errorf("two lists have the number %d", sent)
	}
	r.answer("Observe", core.Reply{})
	r.step(core.Observe{Key: "b", N: 1})
	r.pass(time.Second)
	r.says("a second observer of a key", "")
	r.deadline()
	r.answer("Register", core.Reply{Session: "s2"})
	wantSent("registered again", 10*time.Millisecond, "b")
	r.answer("Observe", core.Reply{Err: driver.ErrRefused})
	r.pass(time.Second)
	r.says("refused", "")
	r.step(core.Observe{Key: "c", N: 1})
	wantSent("changed later", 10*time.Millisecond, "b", "c")
	r.answer("Observe", noAnswer)
	r.step(core.Close{})
	r.pass(time.Second)
	if slices.Contains(r.said, "Observe") {
		t.Errorf("when it closes, the session sends %q", r.said)
	}
}

// The list of observed keys has at most MaxObserved bytes.
func TestObservedKeysAreBounded(t *testing.T) {
	r := newRig(t)
	r.held()
	for _, name := range []string{"a", "b", "c"} {
		r.step(core.Observe{Key: strings.Repeat(name, driver.MaxObserved/2), N: 1})
	}
	r.pass(10 * time.Millisecond)
	if got := len(r.sent["Observe"].Observed); got != 2 {
		t.Errorf("%d keys are listed, want 2", got)
	}
}

// A session that observes a key registers, again and again if it must.
func TestObserversNeedTheSession(t *testing.T) {
	r := newRig(t)
	r.step(core.Observe{Key: "k", N: 1})
	r.says("an observer", "Register")
	r.answer("Register", noAnswer)
	r.pass(time.Second)
	r.says("no answer", "Register")
	r.answer("Register", core.Reply{Session: "s"})
	r.deadline()
	r.says("lost", "Register")
	r.step(core.Observe{Key: "k", N: -1})
	r.answer("Register", noAnswer)
	r.pass(time.Minute)
	r.says("without observers", "")
}

// A value that is published later is sent again until the store answers or the hold is over.
func TestPublishLaterUntilTheHoldIsOver(t *testing.T) {
	for _, test := range []struct {
		name  string
		event func(r *rig) // after two values without an answer
		says  string       // in the second after that
	}{
		{"no event", func(*rig) {}, "Publish, Publish"},
		{"revoked", (*rig).revoke, "Release"},
		{"done", func(r *rig) { r.done(1); r.answer("Release", core.Reply{Found: true}) }, ""},
		{"closing", func(r *rig) { r.step(core.Close{}); r.done(1); r.answer("Release", core.Reply{Found: true}) }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			takes(auto)(r)
			for seq := range int64(2) {
				r.step(core.PublishLater{Claim: 1, Seq: seq, Value: []byte("value")})
				r.says("a value", "Publish")
				if got := r.sent["Publish"].Edit.Publish; got.Seq != seq || string(got.Value) != "value" || got.Claim.ID != "s.1" {
					t.Errorf("sent %+v", got)
				}
				r.answer("Publish", noAnswer)
			}
			test.event(r)
			r.pass(time.Second)
			r.says("later", test.says)
		})
	}
	r := newRig(t)
	takes(auto)(r)
	r.step(core.PublishLater{Claim: 1, Value: []byte("value")})
	r.answer("Publish", core.Reply{Err: driver.ErrNotHeld})
	r.says("not held", "Heartbeat")
	r.revoke()
	r.step(core.PublishLater{Claim: 1, Value: []byte("value")})
	r.says("a value of a hold that is over", "")
}
