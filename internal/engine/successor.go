package engine

import (
	"fmt"
	"time"
)

// ReleaseTo names the claim that the store is to grant the key to when it releases this hold, before
// all others in the queue. It does not end the hold. It reports whether the hold is live and no
// other claim was named before. Only a hold made by [Session.Hold] or [Session.TryHold] can have a
// successor: it is never handed off within this process.
func (h *Hold) ReleaseTo(claim string) bool {
	c := h.c
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !h.check(time.Now()) || c.successor != "" {
		return false
	}
	c.successor, c.succession = claim, ErrLost
	return true
}

// Succession returns nil if the claim that was named by ReleaseTo was granted the key in the write
// that released the hold. If that claim did not wait any more, so that the key went to the first in
// the queue, the error is driver.ErrNotWaiting. If the hold was lost before the store released it,
// the error is [ErrLost]. Call it when the channel that [Hold.Finished] returns is closed.
func (h *Hold) Succession() error {
	c := h.c
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.succession == ErrLost && c.lease.cause != nil {
		return fmt.Errorf("%w: %w", ErrLost, c.lease.cause)
	}
	return c.succession
}

// succeeds records what became of the successor: err is why it was not granted the key.
func (c *claim) succeeds(err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.succession = err
}
