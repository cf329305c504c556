package core_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A session that finds that the sweeper is late takes over at once. Otherwise it checks again much later.
func TestLateSweeperIsReplaced(t *testing.T) {
	for late, soon := range map[time.Duration]bool{time.Minute: false, 3 * time.Minute: true} {
		r := newRig(t)
		r.cfg.Retention = 4 * time.Hour
		r.held()
		for i := 0; r.sent["Sweep"].ID == 0; i++ {
			if r.beat(); i > 100 {
				t.Fatal("no Sweep is sent")
			}
		}
		first := r.sent["Sweep"].ID
		r.answer("Sweep", core.Reply{Swept: driver.SweepState{Turn: 7, By: "o", At: r.clock().Add(-late), Now: r.clock(), LastRound: 100, Seen: 100}})
		r.pass(time.Second)
		if again := r.sent["Sweep"].ID != first; again != soon {
			t.Errorf("%v after the last slice, another Sweep was sent: %v, want %v", late, again, soon)
		}
	}
}
