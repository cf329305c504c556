package program

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/rules"
)

func (g *goroutine) readLock(o Op, key string) {
	c := g.begin(key)
	if o.Verb == TryReadLock {
		p := g.pool(c, false)
		if p.rw == nil {
			p.rw = c.life.RWMutex(key)
			p.h.Shared = true
		}
		if g.requests(c, o, nil, tries(p.rw.TryRLock)) {
			g.add(c, p, o, 1)
		}
		return
	}
	g.reads(c, o)
}

// reads requests a separate hold on c's key, for reading. It reports whether the hold was granted.
func (g *goroutine) reads(c *call, o Op) bool {
	m := c.life.RWMutex(c.key)
	dh := g.request(c, o, m.RHold, nil)
	if dh != nil {
		g.tookHold(c, rules.Hold{Shared: true}, dh, o)
	}
	return dh != nil
}

// readers holds key for reading, with many readers of this process that share the hold. It checks that
// each reader's context ends with its hold, and that the readers' goroutines end.
func (g *goroutine) readers(o Op, key string) {
	c := g.begin(key)
	if !g.reads(c, o) {
		return
	}
	const atOnce, each = 20, 50
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(context.Background(), g.ttl/5)
	defer cancel()
	crowd := c.life.RWMutex(key)
	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			for n := 0; n < each && ctx.Err() == nil; n++ {
				h, err := crowd.RHold(ctx)
				if err != nil {
					continue
				}
				work := h.Context(ctx)
				time.Sleep(time.Duration(1+(i+n)%3) * time.Millisecond)
				_ = h.Release(ctx)
				if work.Err() == nil {
					g.report("%s: the context of a reader's hold of %s has not ended after its release", g.name, key)
				}
			}
		})
	}
	all.Wait()
	// On a real server, other programs run in the same process.
	if n := runtime.NumGoroutine() - before; g.bubble && n > atOnce*each/4 {
		g.report("%s: %d more goroutines after %d readers than before", g.name, n, atOnce*each)
	}
}

func (g *goroutine) acquire(o Op, key string) {
	c := g.begin(key)
	n := min(o.n(), semSize)
	if o.Arg%2 == 1 {
		p := g.pool(c, true)
		if p.sem == nil {
			p.sem = c.life.Semaphore(key, semSize)
		}
		if g.requests(c, o, func(ctx context.Context) error { return p.sem.Acquire(ctx, n) }, tries(func() bool { return p.sem.TryAcquire(n) })) {
			g.add(c, p, o, n)
		}
		return
	}
	m := c.life.Semaphore(key, semSize)
	dh := g.request(c, o, func(ctx context.Context) (*dsync.Hold, error) { return m.Hold(ctx, n) },
		func(ctx context.Context) (*dsync.Hold, error) { return m.TryHold(ctx, n) })
	if dh != nil {
		g.tookHold(c, rules.Hold{Weight: n}, dh, o)
	}
}

// pool returns the goroutine's pool for c's key.
func (g *goroutine) pool(c *call, sem bool) *pool {
	k := poolKey{c.life, c.key, sem}
	if g.pools[k] == nil {
		g.pools[k] = &pool{h: &hold{}}
	}
	return g.pools[k]
}

// add adds n granted units of a semaphore, or one reader's hold, to a pool.
func (g *goroutine) add(c *call, p *pool, o Op, n int64) {
	h := &hold{Hold: rules.Hold{Key: c.key, Requested: g.since(c.began), Shared: p.h.Shared}}
	h.verb, h.who, h.life, h.pooled = o.Verb, g.name, c.life, true
	h.open = func() bool { return !g.excused(h) }
	if !h.Shared {
		h.Weight = n
	}
	g.grant(h) // checks the new hold alone; afterwards the pool's first hold represents all of them
	p.n += n
	if p.n == n {
		p.h = h
		return
	}
	g.mu.Lock()
	p.h.Weight += h.Weight
	h.Done = g.now()
	g.mu.Unlock()
	g.ended(h)
}

// releaseSome releases some holds of a pool.
func (g *goroutine) releaseSome(p *pool, o Op) {
	n := int64(1)
	if p.sem != nil {
		n = min(p.n, o.n())
	}
	c := g.beginRelease(p.h)
	h := p.h
	p.n -= n
	last := p.n == 0
	g.mu.Lock()
	if !h.Shared && !last { // the last hold keeps its weight until it has ended
		h.Weight -= n
	}
	g.mu.Unlock()
	if last {
		g.end(h)
	}
	c.most = g.ttl / 3
	if p.sem != nil {
		p.sem.Release(n)
	} else {
		p.rw.RUnlock()
	}
	c.returned(nil, 0)
	if last {
		g.ended(h)
		p.h = &hold{Hold: rules.Hold{Shared: h.Shared}}
	}
}

func (g *goroutine) resize(o Op, key string) {
	c := g.begin(key)
	g.mu.Lock()
	p := g.page(key)
	p.limit = max(p.limit, o.size())
	g.fault = time.Now() // calls that request more than the new size may have to wait longer
	g.mu.Unlock()
	cancel := c.context(g.long, true)
	defer cancel()
	err := c.life.Semaphore(key, semSize).Resize(c.ctx, o.size())
	if errors.Is(err, driver.ErrRefused) {
		err = nil // somebody waits for more than the new size
	}
	c.returned(err, store)
}
