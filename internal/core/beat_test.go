package core_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// holding brings n claims, each of its own key, into the state held.
func (r *rig) holding(n int) {
	for i := 1; i <= n; i++ {
		key := fmt.Sprint(i)
		r.acquire(uint64(i), func(w *core.Want) { w.Key = key })
		if i == 1 {
			r.answer("Register", core.Reply{Session: "s"})
		}
		r.step(&core.Reply{Command: r.sent["Acquire"].ID, Now: r.clock(), State: r.state(key)})
	}
}

// state returns the state of a key that holding has made.
func (r *rig) state(key string) driver.State {
	return driver.State{Key: key, Now: r.clock(), Kind: driver.KindMutex, Limit: 1, Holders: []driver.Holder{{Claim: "s." + key, Session: "s", Weight: 1, Token: 1024}}}
}

// beats lets n heartbeats be answered, and the reads that follow.
func (r *rig) beats(n int) {
	for range n {
		r.beat()
		var states []driver.State
		for _, key := range r.sent["Keys"].Keys.Keys {
			states = append(states, r.state(key))
		}
		r.answer("Keys", core.Reply{States: states})
	}
}

// With each heartbeat, the Core examines the claims whose keys it reads, up to 500. If it examined all claims, it would
// also have to remember which of them come next.
func TestHeartbeatOfManyHolds(t *testing.T) {
	allocated := func(n int) uint64 {
		r := newRig(t)
		r.holding(n)
		r.beats(1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.beats(20)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := allocated(500), allocated(20_000); many > 2*few {
		t.Errorf("20 heartbeats of 20,000 holds allocate %d bytes, want at most twice as many as those of 500 holds, %d", many, few)
	}
}

// BenchmarkHeartbeat measures a heartbeat and the read that follows it.
func BenchmarkHeartbeat(b *testing.B) {
	for _, n := range []int{1, 500, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newRig(b)
			r.holding(n)
			for b.Loop() {
				r.beats(1)
			}
		})
	}
}
