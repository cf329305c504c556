package core_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// plainNames is a Namer under which every number is its own name.
type plainNames struct{}

func (plainNames) Number(_ byte, n uint64) uint64 { return n }
func (plainNames) Session(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// Cores that differ only in a doubt about a claim have different states.
func TestStateShowsADoubt(t *testing.T) {
	var states [2][]byte
	for i := range states {
		r := newRig(t)
		r.cfg.AlwaysListen = true
		r.held()
		r.listen()
		r.says("ready", "Heartbeat")
		if i > 0 {
			r.notHeld()
		} else {
			r.notice(driver.NoticeReady) // this also makes another heartbeat due
		}
		r.answer("Heartbeat", core.Reply{})
		states[i] = r.c.State(nil, r.now, plainNames{})
	}
	if bytes.Equal(states[0], states[1]) {
		t.Error("the state does not show the doubt")
	}
}

// Cores that differ only in when a session ahead has lapsed have different states while the waiter's stagger after that
// lapse is not over. The first session ahead sets the waiter's timer, but once it has died, the other's lapse counts.
func TestStateShowsALapse(t *testing.T) {
	var states [2][]byte
	for i := range states {
		r := newRig(t)
		r.joining()
		r.answer("Acquire", r.behind(3, "p")) // a stagger of 360 ms
		ahead := r.members(5*time.Second, "o", "p")
		ahead.Members[1].TTL += time.Duration(i) * 100 * time.Millisecond
		r.answer("Read", ahead)
		r.pass(5200 * time.Millisecond)
		states[i] = r.c.State(nil, r.now, plainNames{})
	}
	if bytes.Equal(states[0], states[1]) {
		t.Error("the state does not show when the session has lapsed")
	}
}

// Events of a Core do not change its clone.
func TestCloneIsNotAffected(t *testing.T) {
	for i := range tableCases {
		k := &tableCases[i]
		t.Run(k.name(), func(t *testing.T) {
			r := newRig(t)
			beginnings[k.from](r)
			clone, now := r.c.Clone(), r.now
			before := clone.State(nil, now, plainNames{})
			k.do(r)
			r.pass(10 * time.Second)
			if after := clone.State(nil, now, plainNames{}); !bytes.Equal(before, after) {
				t.Error("the clone has changed")
			}
		})
	}
}

// A clone decides as its Core has decided, whatever that has done since.
func TestCloneDecidesAlike(t *testing.T) {
	for i := range tableCases {
		k := &tableCases[i]
		t.Run(k.name(), func(t *testing.T) {
			r := newRig(t)
			beginnings[k.from](r)
			copied := *r
			copied.c, copied.calls, copied.sent = r.c.Clone(), maps.Clone(r.calls), maps.Clone(r.sent)
			var said [2]string
			for i := range said {
				k.do(r)
				said[i] = fmt.Sprint(r.said)
				r.pass(10 * time.Second)
				said[i] += fmt.Sprint(r.said)
				*r = copied
			}
			if said[0] != said[1] {
				t.Errorf("the Core says %s, its clone %s", said[0], said[1])
			}
		})
	}
}
