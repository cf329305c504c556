package program

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// breakKey breaks key. After a Break that succeeded, it checks that all earlier holds have ended and that their graces
// are over.
func (g *goroutine) breakKey(o Op, key string) {
	c := g.begin(key)
	cancel := c.context(g.tempo.patience(o), o.Variant&1 == 0)
	defer cancel()
	g.mu.Lock()
	p := g.page(key)
	g.breakBegins(p)
	g.fault = time.Now()
	before := slices.Clone(p.holds)
	g.mu.Unlock()
	err := admin.New(c.life.Session).Break(c.ctx, key)
	c.returned(err, 0)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breakEnds(p)
	if err != nil {
		return
	}
	for _, h := range before {
		h.check(g.now())
		if !h.pooled && h.Free(p.rules.Grace) > g.now() {
			g.fail("%s: after Break, %s still has %s: %v", g.name, h.who, key, &h.Hold)
		}
	}
}

func (g *goroutine) status(key string) {
	c := g.begin(key)
	cancel := c.context(g.long, true)
	defer cancel()
	st, err := admin.New(c.life.Session).Status(c.ctx, key)
	c.returned(err, store)
	if err == nil {
		g.checkStatus(st)
	}
}

func (g *goroutine) list() {
	c := g.begin("")
	cancel := c.context(g.long, true)
	defer cancel()
	var last error
	after := ""
	for st, err := range admin.New(c.life.Session).List(c.ctx, g.w.Prefix) {
		if last = err; err != nil {
			break
		}
		if st.Key <= after {
			g.report("%s: List has %q after %q", g.name, st.Key, after)
		}
		after = st.Key
		g.checkStatus(st)
	}
	c.returned(last, store)
}

// checkStatus checks what must hold for every status.
func (g *goroutine) checkStatus(st admin.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var sum int64
	seen := make(map[string]bool)
	tokens := make(map[int64]bool)
	for _, h := range st.Holders {
		sum += h.Weight
		if seen[h.Claim] || tokens[h.Token] {
			g.fail("%s: status of %s has a claim or a token twice:\n%v", g.name, st.Key, st)
		}
		seen[h.Claim], tokens[h.Token] = true, true
	}
	for _, w := range st.Queue {
		if seen[w.Claim] {
			g.fail("%s: status of %s has a claim twice:\n%v", g.name, st.Key, st)
		}
		seen[w.Claim] = true
	}
	limit := st.Limit
	if st.Kind == driver.KindSemaphore {
		limit = max(limit, g.page(st.Key).limit)
	}
	if sum > limit {
		g.fail("%s: status of %s has %d held of %d:\n%v", g.name, st.Key, sum, limit, st)
	}
}
