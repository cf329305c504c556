package program

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/rules"
)

func (g *goroutine) readLock(o Op, key string) {
	c := g.begin(key)
	if o.Variant >= 2 {
		p := g.pool(c, false)
		if p.rw == nil {
			p.rw = c.life.RWMutex(key)
			p.h.Shared = true
			p.h.open = func() bool { return isOpen(p.rw.RLost()) }
		}
		if g.requests(c, o, p.rw.RLockContext, p.rw.TryRLockContext) {
			g.add(c, p, o, 1, p.rw.RToken)
		}
		return
	}
	m := c.life.RWMutex(key)
	if !g.requests(c, o, m.RLockContext, m.TryRLockContext) {
		return
	}
	h := &hold{Hold: rules.Hold{Shared: true, Token: m.RToken()}, lost: m.RLost(), open: func() bool { return isOpen(m.RLost()) }}
	h.release = func(o Op) { g.unlock(h, o, m.RUnlock, m.RUnlockContext) }
	g.took(c, h, o.Verb)
}

// readers holds key for reading, and meanwhile has many readers of this process use RDo, which share
// the hold. They leave nothing behind.
func (g *goroutine) readers(o Op, key string) {
	c := g.begin(key)
	m := c.life.RWMutex(key)
	if !g.requests(c, o, m.RLockContext, m.TryRLockContext) {
		return
	}
	h := &hold{Hold: rules.Hold{Shared: true, Token: m.RToken()}, lost: m.RLost(), open: func() bool { return isOpen(m.RLost()) }}
	h.release = func(o Op) { g.unlock(h, o, m.RUnlock, m.RUnlockContext) }
	g.took(c, h, o.Verb)

	const atOnce, each = 20, 50
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(context.Background(), g.ttl/5)
	defer cancel()
	crowd := c.life.RWMutex(key)
	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			for n := 0; n < each && ctx.Err() == nil; n++ {
				_ = crowd.RDo(ctx, func(context.Context) error {
					time.Sleep(time.Duration(1+(i+n)%3) * time.Millisecond)
					return nil
				})
			}
		})
	}
	all.Wait()
	if n := runtime.NumGoroutine() - before; n > atOnce*each/4 {
		g.report("%s: %d goroutines more after %d calls of RDo", g.name, n, atOnce*each)
	}
}

func (g *goroutine) acquire(o Op, key string) {
	c := g.begin(key)
	n := min(o.n(), semSize)
	if o.Arg%2 == 1 {
		p := g.pool(c, true)
		if p.sem == nil {
			p.sem = c.life.Semaphore(key, semSize)
			p.h.open = func() bool { return isOpen(p.sem.Lost()) }
		}
		if g.requests(c, o, func(ctx context.Context) error { return p.sem.Acquire(ctx, n) },
			func(ctx context.Context) error { return p.sem.TryAcquireContext(ctx, n) }) {
			g.add(c, p, o, n, p.sem.Token)
		}
		return
	}
	m := c.life.Semaphore(key, semSize)
	if !g.requests(c, o, func(ctx context.Context) error { return m.Acquire(ctx, n) },
		func(ctx context.Context) error { return m.TryAcquireContext(ctx, n) }) {
		return
	}
	h := &hold{Hold: rules.Hold{Weight: n, Token: m.Token()}, lost: m.Lost(), open: func() bool { return isOpen(m.Lost()) }}
	h.release = func(o Op) {
		g.unlock(h, o, func() { m.Release(n) }, func(ctx context.Context) error { return m.ReleaseContext(ctx, n) })
	}
	g.took(c, h, o.Verb)
}

// pool returns the value that the goroutine holds several times.
func (g *goroutine) pool(c *call, sem bool) *pool {
	k := poolKey{c.life, c.key, sem}
	if g.pools[k] == nil {
		g.pools[k] = &pool{h: &hold{}}
	}
	return g.pools[k]
}

// add adds what was granted to a pool.
func (g *goroutine) add(c *call, p *pool, o Op, n int64, token func() int64) {
	h := &hold{Hold: rules.Hold{Key: c.key, Requested: g.since(c.began), Shared: p.h.Shared}}
	h.verb, h.who, h.life, h.pooled, h.open = o.Verb, g.name, c.life, true, p.h.open
	if !h.Shared {
		h.Weight = n
	}
	if p.n == 0 {
		h.Token = token()
	}
	g.grant(h) // checked by itself; the first one stands for all
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

// releaseSome releases some of a pool.
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
	if !h.Shared && !last { // until it has ended it is a part of a semaphore
		h.Weight -= n
	}
	g.mu.Unlock()
	if last {
		g.end(h)
	}
	cancel := c.context(g.ttl, true)
	defer cancel()
	var err error
	if p.sem != nil {
		err = p.sem.ReleaseContext(c.ctx, n)
	} else {
		err = p.rw.RUnlockContext(c.ctx)
	}
	g.mu.Lock()
	excused := g.excused(h)
	g.mu.Unlock()
	g.checkRelease(c, h, err, false, excused)
	if last {
		g.ended(h)
		p.h = &hold{Hold: rules.Hold{Shared: h.Shared}, open: h.open}
	}
}

func (g *goroutine) resize(o Op, key string) {
	c := g.begin(key)
	g.mu.Lock()
	p := g.page(key)
	p.limit = max(p.limit, o.size())
	g.fault = time.Now() // waiters for more may have to go on waiting
	g.mu.Unlock()
	cancel := c.context(g.long, true)
	defer cancel()
	err := c.life.Semaphore(key, semSize).Resize(c.ctx, o.size())
	if errors.Is(err, driver.ErrRefused) {
		err = nil // somebody waits for more
	}
	c.returned(err, store)
}
