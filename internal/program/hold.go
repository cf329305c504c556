package program

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A hold is what a goroutine was granted, from then until its release returned.
// Its fields are guarded by the runner's mu, but for those that are set when it is
// made.
type hold struct {
	key    string
	what   Verb // that asked for it
	who    string
	life   *life
	asked  time.Time // before the call
	weight int64     // of a semaphore
	shared bool      // of a reader
	token  int64
	pooled bool // of a value that has several holds
	lost   <-chan struct{}
	live   func() bool // looks whether Lost is open
	free   func(Op)    // releases it

	l   *dsync.Lease
	d   time.Duration // its lease
	ext time.Time     // before the last Extend that succeeded

	lostAt time.Time     // when Lost was seen closed before the holder was done
	ending bool          // the holder has said that it is done, or is about to
	done   chan struct{} // closed when ending
}

// blocks reports whether nobody else may be granted what h has: its Lost is open, or
// its grace is running.
func (h *hold) blocks(now time.Time, grace time.Duration) bool {
	switch {
	case h.ending:
		return false
	case h.live():
		return true
	case h.pooled:
		return false // some of it is lost, it can't be told what
	}
	at := h.lostAt
	if at.IsZero() {
		at = now
	}
	// Close has the store keep the rest of a grace, by a clock in milliseconds.
	return now.Before(at.Add(grace - time.Millisecond))
}

// excludes reports whether h and o must not be held at the same time, each with
// its weight of limit.
func (h *hold) excludes(o *hold) bool {
	return !(h.shared && o.shared || h.weight > 0 && o.weight > 0)
}
