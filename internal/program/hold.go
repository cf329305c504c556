package program

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/rules"
)

// A hold is what a goroutine was granted, from then until its release returned.
// Its fields are guarded by the runner's mu, but for those that are set when it is
// made.
type hold struct {
	rules.Hold
	verb    Verb // that asked for it
	who     string
	life    *life
	pooled  bool // of a value that has several holds
	lost    <-chan struct{}
	open    func() bool // looks whether Lost is open
	release func(Op)

	l   *dsync.Lease
	d   time.Duration // its lease
	ext time.Duration // before the last Extend that succeeded

	wasLost bool          // Lost was seen closed, before the holder was done
	over    chan struct{} // closed when the holder is done
}

// look brings h up to date. Until its loss is noted it counts as held.
func (h *hold) look(now time.Duration) {
	switch {
	case h.Done > 0 || h.wasLost:
	case h.pooled && !h.open():
		h.Live = -time.Hour // some of it is lost, it can't be told what
	default:
		h.Live = now
	}
}
