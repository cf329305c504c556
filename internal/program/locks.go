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
	TryLockContext(context.Context) error
	ForceLock(context.Context) error
	Unlock()
	UnlockContext(context.Context) error
	Lost() <-chan struct{}
	Token() int64
}

var (
	_ locker = (*dsync.Mutex)(nil)
	_ locker = (*dsync.RWMutex)(nil)
)

// isOpen reports whether a Lost is open.
func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func (g *goroutine) lock(o Op, key string) {
	c := g.begin(key)
	g.exclusive(c, o, c.life.Mutex(key))
}

func (g *goroutine) writeLock(o Op, key string) {
	c := g.begin(key)
	g.exclusive(c, o, c.life.RWMutex(key))
}

// requests runs a call that requests a hold, in one of three ways, and reports whether it was
// granted.
func (g *goroutine) requests(c *call, o Op, wait, try func(context.Context) error) bool {
	if !o.Verb.waits() {
		// A try is bounded by its session's attempts.
		cancel := c.context(g.long, o.Variant&1 == 0)
		defer cancel()
		err := try(c.ctx)
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

func (g *goroutine) exclusive(c *call, o Op, m locker) {
	wait := m.LockContext
	if o.Verb == ForceLock || o.Verb == ForceWriteLock {
		g.mu.Lock()
		p := g.page(c.key)
		g.breakBegins(p)
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			g.breakEnds(p)
			g.mu.Unlock()
		}()
		wait = m.ForceLock
	}
	if !g.requests(c, o, wait, m.TryLockContext) {
		return
	}
	h := &hold{Hold: rules.Hold{Token: m.Token()}, lost: m.Lost(), open: func() bool { return isOpen(m.Lost()) }}
	h.release = func(o Op) {
		if mu, ok := m.(*dsync.Mutex); ok && o.Verb == UnlockAfter {
			g.unlockAfter(h, mu, o)
			return
		}
		g.unlock(h, o, m.Unlock, m.UnlockContext)
	}
	g.took(c, h, o.Verb)
}

// unlock releases h in one of three ways.
func (g *goroutine) unlock(h *hold, o Op, plain func(), ctx func(context.Context) error) {
	c := g.beginRelease(h)
	wasLost, excused := g.end(h)
	if o.Variant == 1 {
		c.most = g.ttl / 3
		plain()
		c.returned(nil, 0)
		return
	}
	d := g.ttl
	if o.Variant == 2 {
		d = 0
	}
	cancel := c.context(d, true)
	defer cancel()
	g.checkRelease(c, h, ctx(c.ctx), wasLost, excused)
}

// beginRelease begins the call that releases h, by the session that it is of.
func (g *goroutine) beginRelease(h *hold) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.call(g.name, h.life, h.Key)
}

// checkRelease checks the error of a release: it must report a loss, and only a possible one.
func (g *goroutine) checkRelease(c *call, h *hold, err error, wasLost, excused bool) {
	c.returned(err, lost)
	g.mu.Lock()
	defer g.mu.Unlock()
	excused = excused || g.excused(h)
	switch reported := errors.Is(err, dsync.ErrLost); {
	case reported && !excused:
		g.fail("%s released %s (token %d), and the error reports a loss for no reason: %v", c.who, h.Key, h.Token, err)
	case wasLost && !reported && !h.pooled:
		g.fail("%s released %s (token %d), which was lost, and the error does not report it: %v", c.who, h.Key, h.Token, err)
	}
}

func (g *goroutine) unlockAfter(h *hold, m *dsync.Mutex, o Op) {
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
	err := m.UnlockAfter(c.ctx, d)
	g.checkRelease(c, h, err, wasLost, excused)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && !breaking {
		h.Keep, h.Released = d, g.now() // which makes it Freed
	}
}

func (g *goroutine) lease(o Op, key string) {
	c := g.begin(key)
	d := g.tempo.lease(o)
	var l *dsync.Lease
	request := func(f func(context.Context, string, time.Duration) (*dsync.Lease, error)) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			l, err = f(ctx, key, d)
			return err
		}
	}
	if !g.requests(c, o, request(c.life.Session.Lease), request(c.life.Session.TryLease)) {
		return
	}
	h := &hold{Hold: rules.Hold{Token: l.Token(), Lease: d}, lost: l.Lost(), open: func() bool { return isOpen(l.Lost()) }, l: l, d: d}
	h.release = func(o Op) { g.unlock(h, Op{Variant: o.Variant &^ 1}, nil, l.Release) }
	g.took(c, h, o.Verb)
}

// extend extends the oldest lease of key.
func (g *goroutine) extend(key string) {
	for _, h := range g.holds {
		if h.Key != key || h.l == nil {
			continue
		}
		c := g.beginRelease(h)
		g.mu.Lock()
		before := h.ext
		h.ext = g.since(c.began) // it may count from now on
		g.mu.Unlock()
		cancel := c.context(g.long, true)
		defer cancel()
		until, err := h.l.Extend(c.ctx)
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
		// In a bubble the store's clock is this one, but for its steps.
		if least := c.began.Add(h.d - time.Millisecond - g.w.Skew); g.bubble && until.Before(least) {
			g.fail("%s: Extend of %s by %v: until %v, want at least %v", g.name, key, h.d, g.at(until), g.at(least))
		}
		return
	}
}
