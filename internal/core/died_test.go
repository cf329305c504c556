package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// onHost returns a reading of sessions on this machine that lapse in 5 s. margin is their Margin.
func (r *rig) onHost(margin time.Duration, ids ...string) core.Reply {
	reply := r.members(5*time.Second, ids...)
	for i := range reply.Members {
		reply.Members[i].HostFile, reply.Members[i].Settings.Margin = "file", margin
	}
	return reply
}

// waitingHere makes the claim wait behind session o, whose process runs on this machine.
func (r *rig) waitingHere() {
	r.joining()
	r.answer("Acquire", r.behind(1))
	r.answer("Read", r.onHost(0, "o"))
	r.says("read", "")
}

const aMoment = time.Millisecond

// expiresAfter checks that the Core sends an Expire for the dead session o once the margin has passed, and not before.
func (r *rig) expiresAfter(margin time.Duration) {
	r.t.Helper()
	r.exactly(margin, "the margin is over", "", "Expire of a dead process")
}

// A session whose process has died is expired one margin later, even if it has not lapsed by then.
func TestDeathCostsAMargin(t *testing.T) {
	r := newRig(t)
	r.waitingHere()
	r.pass(time.Second)
	r.step(core.Died{Session: "o"})
	r.says("o has died", "")
	r.step(&core.Ask{Command: core.Command{Op: core.Read}})
	r.answer("Read", r.onHost(0, "o"))
	r.expiresAfter(r.cfg.Margin)
	r.answer("Expire", core.Reply{})
	r.says("o has expired", "Acquire without the expired")
}

// A death costs the dead session's margin or this session's, whichever is longer.
func TestDeathCostsTheMarginOfTheDead(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(1))
	r.answer("Read", r.onHost(3*time.Second, "o"))
	r.step(core.Died{Session: "o"})
	r.expiresAfter(3 * time.Second)
}

// If an Expire was sent before a death, the Expire's answer does not change the time at which the dead session is
// expired.
func TestDeathDuringAnExpire(t *testing.T) {
	for name, reply := range map[string]core.Reply{"it had not lapsed": {Left: 9 * time.Second}, "no answer": {Lost: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.waitingHere()
			r.beat()
			r.pass(time.Second)
			if s := r.sent["Expire"]; s.ID == 0 || s.Died {
				t.Fatalf("sent %+v; want an ordinary Expire", s)
			}
			r.step(core.Died{Session: "o"})
			r.answer("Expire", reply)
			r.expiresAfter(r.cfg.Margin)
			r.answer("Expire", core.Reply{Lost: true})
			r.says("no answer", "")
			r.pass(r.cfg.Retry)
			r.says("again", "Expire of a dead process")
		})
	}
}

// If a Read of several sessions was sent before a death, the Read's answer does not change the time at which the dead
// session is expired.
func TestDeathDuringARead(t *testing.T) {
	for name, failed := range map[string]bool{"": false, "no answer": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.joining()
			r.answer("Acquire", r.behind(1, "p"))
			r.answer("Read", r.onHost(0, "o", "p"))
			r.says("read", "")
			r.beat()
			r.pass(time.Second)
			r.says("both may have lapsed", "Read")
			r.step(core.Died{Session: "o"})
			reply := r.onHost(0, "o", "p")
			if failed {
				reply = core.Reply{Lost: true}
			}
			r.answer("Read", reply)
			r.pass(r.cfg.Margin - aMoment)
			if strings.Contains(strings.Join(r.said, ", "), "Expire of") {
				t.Errorf("o was expired before the margin had passed: effects %q", r.said)
			}
			r.pass(aMoment)
			r.says("the margin is over", "Expire of a dead process")
		})
	}
}

// A try does not wait for a death to take effect, but a later try succeeds.
func TestTryAfterADeath(t *testing.T) {
	r := newRig(t)
	r.checking()
	r.answer("Read", r.onHost(0, "o"))
	r.says("read", "Deliver 1: "+(&driver.HeldError{Key: "k", Session: "o"}).Error())
	r.step(core.Died{Session: "o"})
	r.pass(r.cfg.Margin)
	r.acquire(2, tries)
	r.answer("Acquire", r.behind(0))
	r.says("a later try", "Expire of a dead process")
	r.answer("Expire", core.Reply{})
	r.says("o has expired", "Acquire without the expired")
}

// A death counts once, and only for a known session.
func TestDeathsThatMeanNothing(t *testing.T) {
	r := newRig(t)
	r.waitingHere()
	r.step(core.Died{Session: "unknown"})
	r.step(core.Died{Session: "o"})
	r.pass(r.cfg.Margin - aMoment)
	r.step(core.Died{Session: "o"})
	r.pass(aMoment)
	r.says("the margin is over", "Expire of a dead process")
	r.answer("Expire", core.Reply{})
	r.step(core.Died{Session: "o"})
	r.says("o has expired", "")
	if files := r.c.HostFiles(); len(files) != 0 {
		t.Errorf("HostFiles: %v; want none, because o has expired", files)
	}
}

// HostFiles lists the sessions that have a file and are not known to have expired.
func TestHostFiles(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", r.behind(1, "p", "q"))
	reply := r.onHost(0, "o", "p", "q")
	reply.Members[1].HostFile, reply.Members[1].Host = "", "elsewhere"
	r.answer("Read", reply)
	if files := r.c.HostFiles(); len(files) != 2 || files["o"] != "file" || files["q"] != "file" {
		t.Errorf("HostFiles: %v; want those of o and q", files)
	}
}
