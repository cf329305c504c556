package dsync

import (
	"sync"

	"github.com/leasehold-go/leasehold/internal/engine"
)

// heldUnits are the units that Acquire, TryAcquire, RLock and TryRLock acquired. Their callers release a number of
// units, without naming a hold.
type heldUnits struct {
	mu   sync.Mutex
	list []units // oldest first
}

// units are the units of one acquisition that are not released yet.
type units struct {
	h         *engine.Hold
	remaining int64
}

func (p *heldUnits) add(h *engine.Hold, weight int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, units{h, weight})
}

// take removes n units and returns the holds of the acquisitions that have no units left. It takes units of lost
// holds first. Then it prefers an acquisition that has exactly as many units as are still needed. If there is none,
// it takes units of the oldest. If fewer than n units are held, or n is less than 1, it changes nothing and returns
// false.
func (p *heldUnits) take(n int64) (done []*engine.Hold, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing := n // counted down, because the sum of all units can overflow an int64 if some are lost
	for i := 0; i < len(p.list) && missing > 0; i++ {
		missing -= p.list[i].remaining
	}
	if n < 1 || missing > 0 {
		return nil, false
	}
	for n > 0 {
		i := p.pickLocked(n)
		part := min(n, p.list[i].remaining)
		p.list[i].remaining -= part
		n -= part
		if p.list[i].remaining == 0 {
			done = append(done, p.list[i].h)
			p.list = append(p.list[:i], p.list[i+1:]...)
		}
	}
	return done, true
}

// pickLocked returns the index of the acquisition from which to take the next units, if n more units are needed.
func (p *heldUnits) pickLocked(n int64) int {
	var last *engine.Hold // don't check the same hold again: readers that share one are mostly adjacent
	for i, u := range p.list {
		if u.h != last && !u.h.Live() {
			return i
		}
		last = u.h
	}
	for i, u := range p.list {
		if u.remaining == n {
			return i
		}
	}
	return 0
}
