package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/rules"
)

// errRun is the error, or the panic value, of a failed run of a Once.
var errRun = errors.New("program: the run failed")

// A run is one call of a Once's function.
type run struct {
	value  string
	began  bool
	ends   string
	wasOff bool // the hold ended before the function returned
}

func (g *goroutine) once(o Op, key string) {
	c := g.begin(key)
	k := poolKey{life: c.life, key: key}
	v := g.onces[k]
	if v == nil || o.Arg&1 == 0 {
		v = c.life.Once(key)
		g.onces[k] = v
	}
	g.mu.Lock()
	g.runs++
	r := &run{value: fmt.Sprint("run ", g.runs), ends: onceEnds[o.Variant]}
	g.mu.Unlock()

	d := g.wait(o, key) + g.sleepTime(o)
	cancel := c.context(d, o.Arg&2 == 0)
	defer cancel()
	// Do may return after its context has ended, because the run ignores the context, and Do releases the hold only
	// after the run.
	c.ends = c.ends.Add(g.sleepTime(o) + g.ttl/3)
	over := c.waits()
	value, err, panicked := g.doOnce(c, v, o, r, over)
	if !r.began {
		over(err)
	}
	allow := lost
	if r.began && r.ends == "fail" && errors.Is(err, errRun) {
		g.mu.Lock()
		g.note(g.name, "… %v", err)
		g.mu.Unlock()
		err = nil
	} else if r.began && r.ends != "succeed" && !panicked {
		g.report("%s: the run should %s, but Do returned %v", g.name, r.ends, err)
	}
	if !r.began {
		allow = 0
	}
	c.returned(err, allow)
	g.judge(key, r, value, err)
}

// judge records the result of a call of Do.
func (g *goroutine) judge(key string, r *run, value []byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.page(key)
	switch {
	case !r.began:
		if err == nil {
			p.given = append(p.given, string(value))
		}
	case r.ends != "succeed":
	case err == nil:
		p.sealed = append(p.sealed, r.value)
		if string(value) != r.value {
			g.fail("%s: a run with result %q returned %q", g.name, r.value, value)
		}
		if r.wasOff {
			g.fail("%s: a run sealed %s although the run's hold ended before the run returned", g.name, key)
		}
	case r.wasOff:
		if !errors.Is(err, dsync.ErrLost) {
			g.fail("%s: the hold of a run of %s ended before the run returned, but the error is %v", g.name, key, err)
		}
	default:
		p.maybe = append(p.maybe, r.value) // the store may or may not have sealed the key
	}
}

// doOnce calls DoValue and recovers a panic of its function.
func (g *goroutine) doOnce(c *call, v *dsync.Once, o Op, r *run, over func(error)) (value []byte, err error, panicked bool) {
	var h *hold
	defer func() {
		if h != nil {
			g.ended(h)
		}
		if e := recover(); e != nil {
			if e != errRun {
				panic(e)
			}
			panicked = true
		}
	}()
	value, err = v.DoValue(c.ctx, func(ctx context.Context) ([]byte, error) {
		r.began = true
		over(nil)
		scope := dsync.HoldFrom(ctx)
		h = &hold{
			Hold: rules.Hold{Key: c.key, Requested: g.since(c.began), Token: scope.Token()},
			verb: Once, who: g.name, life: c.life, lost: ctx.Done(), open: func() bool { return scope.Token() != 0 },
		}
		g.grant(h)
		time.Sleep(g.sleepTime(o))
		r.wasOff, _ = g.end(h)
		switch r.ends {
		case "fail":
			return nil, errRun
		case "panic":
			panic(errRun)
		}
		return []byte(r.value), nil
	})
	return value, err, panicked
}

// checkOnce checks, at the end, that the key is sealed if and only if a run succeeded. If one did, the key must be
// sealed with that run's result, and every caller must have got the result.
func (r *runner) checkOnce(key string, value []byte, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.page(key)
	if len(p.sealed) > 1 {
		r.fail("%s: more than one run succeeded: %q", key, p.sealed)
	}
	want := append(append([]string(nil), p.sealed...), p.maybe...)
	switch {
	case !done && len(p.sealed) > 0:
		r.fail("%s: a run succeeded with %q, but the key is not sealed", key, p.sealed)
	case !done && len(p.given) > 0:
		r.fail("%s: Do has returned %q, but the key is not sealed", key, p.given)
	case !done:
		return
	case len(p.sealed) > 0 && string(value) != p.sealed[0]:
		r.fail("%s: sealed with %q, but the run that succeeded returned %q", key, value, p.sealed)
	case !slices.Contains(want, string(value)):
		r.fail("%s: sealed with %q, but the runs that may have succeeded returned %q", key, value, want)
	}
	for _, v := range p.given {
		if v != string(value) {
			r.fail("%s: sealed with %q, but Do returned %q", key, value, v)
		}
	}
}
