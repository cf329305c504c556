package program

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/rules"
)

// A locker is a Mutex, or an RWMutex for writing.
type locker interface {
	LockContext(context.Context) error
	TryLock() bool
	Unlock()
	Hold(context.Context) (*dsync.Hold, error)
}

var (
	_ locker = (*dsync.Mutex)(nil)
	_ locker = (*dsync.RWMutex)(nil)
)

// isOpen reports whether a Lost channel is open.
func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// requests calls the function wait if the op's verb waits, otherwise the function try, and checks the result. It
// reports whether a hold was granted.
func (g *goroutine) requests(c *call, o Op, wait, try func(context.Context) error) bool {
	if !o.Verb.waits() {
		// A try waits only for the store's answers, not for the key.
		cancel := c.context(g.long, o.Variant&1 == 0)
		defer cancel()
		err := try(c.ctx)
		if err == errTry {
			c.returned(nil, 0)
			return false
		}
		c.returned(err, held|store)
		c.tried(err)
		return err == nil
	}
	cancel := c.context(g.wait(o, c.key), o.Variant&1 == 0)
	defer cancel()
	over := c.waits()
	err := wait(c.ctx)
	over(err)
	c.returned(err, 0)
	return err == nil
}

// A granter is a call that requests a hold.
type granter = func(context.Context) (*dsync.Hold, error)

// request is like requests, for calls that return a hold. It returns nil if no hold was granted.
func (g *goroutine) request(c *call, o Op, wait, try granter) (h *dsync.Hold) {
	by := func(f granter) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			h, err = f(ctx)
			return err
		}
	}
	g.requests(c, o, by(wait), by(try))
	return h
}

// errTry stands for the result false of a try that reports failure by a bool instead of an error.
var errTry = errors.New("program: a try failed")

// tries adapts a try that takes no context, for use with requests.
func tries(try func() bool) func(context.Context) error {
	return func(context.Context) error {
		if !try() {
			return errTry
		}
		return nil
	}
}

// exclusive locks m, either through its own methods or as a Hold.
func (g *goroutine) exclusive(c *call, o Op, m locker) {
	var try granter // an RWMutex has no try that returns a Hold
	if mu, ok := m.(*dsync.Mutex); ok {
		try = mu.TryHold
	}
	if o.Variant >= 2 && o.Verb != ForceHold || try == nil && !o.Verb.waits() {
		g.plain(c, o, m)
		return
	}
	wait := m.Hold
	if o.Verb == ForceHold {
		g.mu.Lock()
		p := g.page(c.key)
		g.breakBegins(p)
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			g.breakEnds(p)
			g.mu.Unlock()
		}()
		wait = m.(*dsync.Mutex).ForceHold
	}
	if dh := g.request(c, o, wait, try); dh != nil {
		h := g.tookHold(c, rules.Hold{}, dh, o)
		release := h.release
		h.release = func(o Op) {
			if o.Verb == ReleaseAfter {
				g.releaseAfter(h, dh, o)
				return
			}
			release(o)
		}
	}
}

// tookHold records a Hold that was granted to a call.
func (g *goroutine) tookHold(c *call, r rules.Hold, dh *dsync.Hold, o Op) *hold {
	r.Token = dh.Token()
	h := &hold{Hold: r, lost: dh.Lost(), open: func() bool { return isOpen(dh.Lost()) }, d: r.Lease}
	if r.Lease > 0 {
		h.dh = dh
	}
	h.release = func(o Op) { g.unlock(h, o, dh.Release) }
	g.took(c, h, o.Verb)
	return h
}

// plain locks m through its own methods. An RWMutex can't report whether it is lost.
func (g *goroutine) plain(c *call, o Op, m locker) {
	if !g.requests(c, o, m.LockContext, tries(m.TryLock)) {
		return
	}
	h := &hold{}
	if m, ok := m.(*dsync.Mutex); ok {
		h.Token, h.lost, h.open = m.Token(), m.Lost(), func() bool { return isOpen(m.Lost()) }
	} else {
		h.pooled, h.open = true, func() bool { return !g.excused(h) }
	}
	h.release = func(Op) {
		c := g.beginRelease(h)
		g.end(h)
		c.most = g.ttl / 3
		m.Unlock()
		c.returned(nil, 0)
	}
	g.took(c, h, o.Verb)
}

// unlock releases h, with or without waiting for the answer.
func (g *goroutine) unlock(h *hold, o Op, release func(context.Context) error) {
	c := g.beginRelease(h)
	wasLost, excused := g.end(h)
	d := g.ttl
	if o.Variant == 2 {
		d = 0
	}
	cancel := c.context(d, true)
	defer cancel()
	g.checkRelease(c, h, release(c.ctx), wasLost, excused)
}

// beginRelease begins a call about h, such as its release, on the session that has h.
func (g *goroutine) beginRelease(h *hold) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.call(g.name, h.life, h.Key)
}

// checkRelease checks the error of a release. The error must report every loss, and each loss that it reports must have
// a reason.
func (g *goroutine) checkRelease(c *call, h *hold, err error, wasLost, excused bool) {
	c.returned(err, lost)
	g.mu.Lock()
	defer g.mu.Unlock()
	excused = excused || g.excused(h)
	switch reported := errors.Is(err, dsync.ErrLost); {
	case reported && !excused:
		g.fail("%s released %s (token %d), and the error reports a loss without a reason: %v", c.who, h.Key, h.Token, err)
	case wasLost && !reported && !h.pooled:
		g.fail("%s released %s (token %d), which was lost, but the error does not say so: %v", c.who, h.Key, h.Token, err)
	}
}

func (g *goroutine) releaseAfter(h *hold, dh *dsync.Hold, o Op) {
	c := g.beginRelease(h)
	d := g.keep(o)
	g.mu.Lock()
	p := g.page(h.Key)
	breaking := p.breaking > 0
	p.late = true
	g.mu.Unlock()
	wasLost, excused := g.end(h)
	cancel := c.context(g.ttl, true)
	defer cancel()
	err := dh.ReleaseAfter(c.ctx, d)
	g.checkRelease(c, h, err, wasLost, excused)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && !breaking {
		h.Keep, h.Released = d, g.now() // then rules.Hold.Freed returns true
	}
}

func (g *goroutine) lease(o Op, key string) {
	c := g.begin(key)
	d := g.tempo.lease(o)
	m := c.life.Mutex(key)
	dh := g.request(c, o, func(ctx context.Context) (*dsync.Hold, error) { return m.Lease(ctx, d) },
		func(ctx context.Context) (*dsync.Hold, error) { return m.TryLease(ctx, d) })
	if dh != nil {
		g.tookHold(c, rules.Hold{Lease: d}, dh, o)
	}
}

// extend extends the oldest lease of key.
func (g *goroutine) extend(key string) {
	for _, h := range g.holds {
		if h.Key != key || h.dh == nil {
			continue
		}
		c := g.beginRelease(h)
		g.mu.Lock()
		before := h.ext
		h.ext = g.since(c.began) // the lease may be extended at any moment from now on
		g.mu.Unlock()
		cancel := c.context(g.long, true)
		defer cancel()
		until, err := h.dh.Extend(c.ctx)
		c.returned(err, lost|store)
		g.mu.Lock()
		defer g.mu.Unlock()
		if err != nil {
			h.ext = before
			if errors.Is(err, dsync.ErrLost) && !g.excused(h) {
				g.fail("%s: Extend of %s (token %d): lost for no reason: %v", g.name, key, h.Token, err)
			}
			return
		}
		// In a bubble the store uses the bubble's clock, apart from its steps.
		if least := c.began.Add(h.d - time.Millisecond - g.w.Skew); g.bubble && until.Before(least) {
			g.fail("%s: Extend of %s by %v: until %v, want at least %v", g.name, key, h.d, g.at(until), g.at(least))
		}
		return
	}
}
