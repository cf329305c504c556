package program

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/rules"
)

func (g *goroutine) lease(o Op, key string) {
	c := g.begin(key)
	d := g.tempo.lease(o)
	var l *dsync.Lease
	ask := func(f func(context.Context, string, time.Duration) (*dsync.Lease, error)) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			l, err = f(ctx, key, d)
			return err
		}
	}
	if !g.asks(c, o, ask(c.life.Session.Acquire), ask(c.life.Session.TryAcquire)) {
		return
	}
	h := &hold{Hold: rules.Hold{Token: l.Token()}, lost: l.Lost(), open: func() bool { return isOpen(l.Lost()) }, l: l, d: d}
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
		// In a bubble the store's clock is this one.
		if least := c.began.Add(h.d - time.Millisecond); g.bubble && until.Before(least) {
			g.fail("%s: Extend of %s by %v: until %v, want at least %v", g.name, key, h.d, g.at(until), g.at(least))
		}
		return
	}
}
