package dsync

import (
	"context"
	"sync"
)

// portions are the holds of a value that can be held several times at once, by
// readers or by the holders of a semaphore, with what of each was not given back
// yet.
type portions struct {
	mu   sync.Mutex
	list []portion // in the order in which they were granted

	// ctx ends when one of the holds is lost, or nothing is left of them. nil: nobody
	// asked for it since there was nothing left of what was lost, or of all.
	ctx context.Context
	end context.CancelCauseFunc
}

type portion struct {
	h    *hold
	left int64
}

func (p *portions) add(h *hold, weight int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, portion{h, weight})
	if p.ctx != nil {
		p.follow(h)
	}
}

// take gives n back and returns the holds of which nothing is left: it pays off
// what was lost first, then a hold of just n, then the oldest. If there is less
// than n it changes nothing, and ok is false.
func (p *portions) take(n int64) (done []*hold, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	short := n // not a sum: with what was lost that may be more than an int64 holds
	for i := 0; i < len(p.list) && short > 0; i++ {
		short -= p.list[i].left
	}
	if n < 1 || short > 0 {
		return nil, false
	}
	for n > 0 {
		i := p.pick(n)
		part := min(n, p.list[i].left)
		p.list[i].left -= part
		n -= part
		if p.list[i].left == 0 {
			done = append(done, p.list[i].h)
			p.list = append(p.list[:i], p.list[i+1:]...)
		}
	}
	if p.ctx != nil && (len(p.list) == 0 || p.ctx.Err() != nil && p.over() < 0) {
		p.end(context.Canceled) // or it has ended with what was lost, which was given back
		p.ctx, p.end = nil, nil
	}
	return done, true
}

// pick returns the index of what to give n back of.
func (p *portions) pick(n int64) int {
	if i := p.over(); i >= 0 {
		return i
	}
	for i, o := range p.list {
		if o.left == n {
			return i
		}
	}
	return 0
}

// over returns the index of the first hold that is over, or -1.
func (p *portions) over() int {
	var last *hold // readers who share one stand together
	for i, o := range p.list {
		if o.h != last && !o.h.live() {
			return i
		}
		last = o.h
	}
	return -1
}

// token returns the fencing token of the first hold that is over, which is 0, else that
// of the oldest, or 0.
func (p *portions) token() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return 0
	}
	return p.list[max(0, p.over())].h.fencing()
}

// lost returns the channel that is closed when one of the holds is lost, or all were
// given back: one holder's giving back of its own is no news to the others. Without
// holds it is closed.
func (p *portions) lost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.scope().Done()
}

// context returns a context that ends with ctx, and when lost tells.
func (p *portions) context(ctx context.Context) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	over := p.scope()
	p.mu.Unlock()
	c, cancel := scoped(ctx, over, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.look(over)
		return over.Err() == nil
	})
	return c, func() { cancel(context.Canceled) }
}

// scope returns the context that ends when lost tells. p.mu must be held.
func (p *portions) scope() context.Context {
	if len(p.list) == 0 {
		return endedContext(context.Background())
	}
	if p.ctx == nil {
		p.ctx, p.end = context.WithCancelCause(context.Background())
		for _, o := range p.list {
			p.follow(o.h)
		}
	}
	p.look(p.ctx)
	return p.ctx
}

// look ends the context over, if it is that of the present holds, when one of them is
// over by a look at the clock. p.mu must be held.
func (p *portions) look(over context.Context) {
	if p.ctx != over {
		return
	}
	if i := p.over(); i >= 0 {
		p.end(p.list[i].h.why())
	}
}

// follow has the context end when the hold is lost. p.mu must be held.
func (p *portions) follow(h *hold) {
	end := p.end
	context.AfterFunc(h.over(), func() {
		if cause := h.loss(); cause != nil {
			end(cause)
		}
	})
}
