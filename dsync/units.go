package dsync

import (
	"context"
	"sync"

	"github.com/leasehold-go/leasehold/internal/engine"
)

// heldUnits are the holds of a value that can have several holds at a time, an RWMutex's
// readers, a Semaphore or a Mutexes, with the number of units of each that are not released yet.
type heldUnits struct {
	mu   sync.Mutex
	list []units // in the order in which they were granted

	// ctx ends when one of the holds is lost, or all units are released. It is nil until
	// somebody needs it, and again once the lost units, or all, are released.
	ctx context.Context
	end context.CancelCauseFunc

	// watched are the holds in list, while ctx is not nil.
	watched map[*engine.Hold]*watch
}

// A watch ends a heldUnits' ctx when a hold is lost. There is one for each hold, not for each
// acquisition: readers that share a hold may come and go by the thousands while it lasts.
type watch struct {
	acquisitions int // of the hold, in the list
	stop         func() bool
}

// units are what remains of one acquisition.
type units struct {
	h         *engine.Hold
	remaining int64
}

func (p *heldUnits) add(h *engine.Hold, weight int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, units{h, weight})
	if p.ctx != nil {
		p.watchLocked(h)
	}
}

// take removes n units and returns the holds that have none left. It takes units of lost
// holds first, then all of an acquisition of exactly n, then the oldest. If there are fewer
// than n it changes nothing and returns false.
func (p *heldUnits) take(n int64) (done []*engine.Hold, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing := n // counted down: with lost units the sum can overflow an int64
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
			p.unwatchLocked(p.list[i].h)
			p.list = append(p.list[:i], p.list[i+1:]...)
		}
	}
	if p.ctx != nil && (len(p.list) == 0 || p.ctx.Err() != nil && p.firstEndedLocked() < 0) {
		p.end(context.Canceled) // no effect if it ended with a loss, whose units are now released
		for _, w := range p.watched {
			w.stop()
		}
		p.ctx, p.end, p.watched = nil, nil, nil
	}
	return done, true
}

// pickLocked returns the index of the units to release next when n are to be released.
func (p *heldUnits) pickLocked(n int64) int {
	if i := p.firstEndedLocked(); i >= 0 {
		return i
	}
	for i, u := range p.list {
		if u.remaining == n {
			return i
		}
	}
	return 0
}

// firstEndedLocked returns the index of the first hold that has ended, or -1.
func (p *heldUnits) firstEndedLocked() int {
	var last *engine.Hold // readers that share a hold are adjacent
	for i, u := range p.list {
		if u.h != last && !u.h.Live() {
			return i
		}
		last = u.h
	}
	return -1
}

// token returns the fencing token of the oldest hold, or 0 if there is none or one of them
// has ended.
func (p *heldUnits) token() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return 0
	}
	return p.list[max(0, p.firstEndedLocked())].h.Token()
}

// tokenOf returns the fencing token of the hold of key, or 0 if there is none or one of the holds has
// ended.
func (p *heldUnits) tokenOf(key string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.firstEndedLocked() >= 0 {
		return 0
	}
	for _, u := range p.list {
		if u.h.Key() == key {
			return u.h.Token()
		}
	}
	return 0
}

// lost returns a channel that is closed when one of the holds is lost, or all units are
// released. The release of some of them does not close it: the other holders go on. Without
// holds it is closed.
func (p *heldUnits) lost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ctxLocked().Done()
}

// context returns a context that ends with ctx, and when the channel of lost closes.
func (p *heldUnits) context(ctx context.Context) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	ended := p.ctxLocked()
	var holds []*engine.Hold
	for _, u := range p.list {
		if n := len(holds); n == 0 || holds[n-1] != u.h { // readers that share a hold are adjacent
			holds = append(holds, u.h)
		}
	}
	p.mu.Unlock()
	c, cancel := engine.Scoped(ctx, holds, ended, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.checkClockLocked(ended)
		return ended.Err() == nil
	})
	return c, func() { cancel(context.Canceled) }
}

// ctxLocked returns p.ctx, made if there is none, or an ended context without holds.
func (p *heldUnits) ctxLocked() context.Context {
	if len(p.list) == 0 {
		return engine.EndedContext(context.Background(), engine.ErrLost)
	}
	if p.ctx == nil {
		p.ctx, p.end = context.WithCancelCause(context.Background())
		p.watched = make(map[*engine.Hold]*watch)
		for _, u := range p.list {
			p.watchLocked(u.h)
		}
	}
	p.checkClockLocked(p.ctx)
	return p.ctx
}

// checkClockLocked ends ctx, if it is still p.ctx, when one of the holds is over by the
// clock. Without this, the first call after a freeze could see a hold whose timer has not
// fired yet.
func (p *heldUnits) checkClockLocked(ctx context.Context) {
	if p.ctx != ctx {
		return
	}
	if i := p.firstEndedLocked(); i >= 0 {
		p.end(p.list[i].h.Err())
	}
}

// watchLocked ends p.ctx when h, of which there is one more acquisition in the list, is lost.
func (p *heldUnits) watchLocked(h *engine.Hold) {
	w := p.watched[h]
	if w == nil {
		end := p.end
		w = &watch{stop: context.AfterFunc(h.Ended(), func() { end(h.Cause()) })} // stopped before a release
		p.watched[h] = w
	}
	w.acquisitions++
}

// unwatchLocked undoes a watchLocked of h, if there was one.
func (p *heldUnits) unwatchLocked(h *engine.Hold) {
	w := p.watched[h]
	if w == nil {
		return
	}
	if w.acquisitions--; w.acquisitions == 0 {
		w.stop()
		delete(p.watched, h)
	}
}
