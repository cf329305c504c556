package rules

import (
	"fmt"
	"time"
)

// A Hold is one call that requested a hold, with its result.
type Hold struct {
	Process string
	ID      int
	Key     string
	What    string
	Weight  int64
	Limit   int64
	Shared  bool
	Lease   time.Duration // duration of its own lease; 0: it has none and depends on its session

	Requested time.Duration
	Ended     time.Duration // when the call returned; 0: never
	Granted   time.Duration // the same as Ended if the hold was granted
	Token     int64         // 0: the hold was over before its token could be read
	Term      int64

	Live     time.Duration // the last moment at which Lost was known to be open
	Done     time.Duration // when its release was called; 0: never
	Released time.Duration // when its release returned; 0: never
	Keep     time.Duration
	Err      string // error of the release

	Killed time.Duration // when its process was killed during the hold; 0: never
}

// Exclusive reports whether nobody else can hold the key at the same time.
func (h *Hold) Exclusive() bool { return h.Weight == h.Limit }

// Freed reports whether the release succeeded, so that the hold certainly lasted until the release was called.
func (h *Hold) Freed() bool { return h.Released > 0 && h.Err == "" }

// Certain returns the time until which the hold was certainly held.
func (h *Hold) Certain() time.Duration {
	if h.Freed() {
		return h.Done
	}
	return h.Live
}

// Free returns the earliest time at which the store may have granted the hold's part of the key to others: when the
// hold's grace was over, or when its release was called. The parameter grace is the grace of sessions; a lease's grace
// is at most a tenth of its duration.
func (h *Hold) Free(grace time.Duration) time.Duration {
	if h.Lease > 0 {
		grace = min(grace, h.Lease/10)
	}
	switch {
	case h.Freed():
		return h.Done
	case h.Done > 0:
		return min(h.Live+grace, h.Done)
	}
	return h.Live + grace
}

func (h *Hold) String() string {
	return fmt.Sprintf("%s#%d (%s, token %d, %v to %v)", h.Process, h.ID, h.What, h.Token, at(h.Granted), at(h.Certain()))
}
