package core_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// untilSweep lets time pass until a Sweep is sent.
func (r *rig) untilSweep() {
	r.t.Helper()
	for i := 0; r.sent["Sweep"].ID == 0; i++ {
		r.alive(100 * time.Millisecond)
		if i > 10_000 {
			r.t.Fatalf("no Sweep is sent")
		}
	}
}

// A session that finds that the sweeper is late takes over at once. Otherwise it checks again much later.
func TestLateSweeperIsReplaced(t *testing.T) {
	for late, soon := range map[time.Duration]bool{time.Minute: false, 3 * time.Minute: true} {
		r := newRig(t)
		r.cfg.Retention = 4 * time.Hour
		r.held()
		r.untilSweep()
		first := r.sent["Sweep"].ID
		r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7, By: "o", At: r.clock().Add(-late), Now: r.clock(), LastRound: 100, Seen: 100}})
		r.pass(time.Second)
		if again := r.sent["Sweep"].ID != first; again != soon {
			t.Errorf("%v after the last slice, another Sweep was sent: %v, want %v", late, again, soon)
		}
	}
}

// A sweeper of a large store pauses for less than a minute. Its pace depends on the size that the last round found.
func TestLargeStoreIsSweptInTime(t *testing.T) {
	for size, soon := range map[int64]bool{100: false, 10_000: true} {
		r := newRig(t)
		r.cfg.Retention = 4 * time.Hour
		r.held()
		r.untilSweep()
		r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7, By: "s", At: r.clock(), Now: r.clock(), LastRound: size, Round: 100, Seen: 100}})
		delete(r.sent, "Sweep")
		began := r.now
		r.untilSweep()
		if took := r.now.Sub(began); took < 45*time.Second != soon {
			t.Errorf("with %d records, the next slice came after %v", size, took)
		}
	}
}

// A sweeper pauses for at least four times as long as the last slice took.
func TestSlowSlices(t *testing.T) {
	r := newRig(t)
	r.cfg.Retention = 4 * time.Hour
	r.held()
	r.untilSweep()
	r.pass(time.Second)
	r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7, By: "s", At: r.clock(), Now: r.clock(), After: "x", LastRound: 100, Seen: 100, Deleted: 50}})
	delete(r.sent, "Sweep")
	began := r.now
	r.untilSweep()
	if took := r.now.Sub(began); took < 4*time.Second {
		t.Errorf("after a slice of a second, the next one came after %v", took)
	}
}

// The answer to a Sweep of a lost session does not make the next session sweep.
func TestSweepOfALostSession(t *testing.T) {
	r := newRig(t)
	r.cfg.Retention = 4 * time.Hour
	r.held()
	r.untilSweep()
	r.deadline()
	r.pass(time.Second)
	r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7, By: "s", At: r.clock(), Now: r.clock()}})
	if got := r.c.Next(); got != core.Never {
		t.Errorf("a Tick is due at %v, now is %v", got, r.now)
	}
}

// A sweeper that finds a backlog hardly pauses.
func TestBacklogIsSweptQuickly(t *testing.T) {
	for deleted, soon := range map[int64]bool{0: false, 50: true} {
		r := newRig(t)
		r.cfg.Retention = 4 * time.Hour
		r.held()
		r.untilSweep()
		first := r.sent["Sweep"].ID
		r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7, By: "s", At: r.clock(), Now: r.clock(), After: "x", LastRound: 100, Seen: 100, Deleted: deleted}})
		r.pass(time.Second)
		if again := r.sent["Sweep"].ID != first; again != soon {
			t.Errorf("after a slice with %d deleted records, another Sweep was sent: %v, want %v", deleted, again, soon)
		}
	}
}

// A session that finds that another sweeps checks again later and later, but at least about every eighth of the
// retention.
func TestChecksOfTheSweeperAreBounded(t *testing.T) {
	r := newRig(t)
	r.cfg.Retention = 4 * time.Hour
	r.held()
	for turn := range int64(12) {
		delete(r.sent, "Sweep")
		began := r.now
		for r.sent["Sweep"].ID == 0 {
			r.alive(2 * time.Second)
		}
		if took := r.now.Sub(began); took > 46*time.Minute {
			t.Fatalf("check %d came after %v", turn, took)
		}
		r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7 + turn, By: "o", At: r.clock(), Now: r.clock(), LastRound: 100, Seen: 100}})
	}
}
