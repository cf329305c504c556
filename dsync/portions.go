package dsync

import "sync"

// portions are the holds of a value that can be held several times at once, by
// readers or by the holders of a semaphore, with what of each was not given back
// yet.
type portions struct {
	mu   sync.Mutex
	list []portion // in the order in which they were granted
}

type portion struct {
	h    *hold
	left int64
}

func (p *portions) add(h *hold, weight int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, portion{h, weight})
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

// hold returns one that is over, else the oldest, or nil.
func (p *portions) hold() *hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return nil
	}
	return p.list[max(0, p.over())].h
}

// lost returns the channel of [portions.hold] that is closed when it ends.
func (p *portions) lost() <-chan struct{} {
	if h := p.hold(); h != nil {
		return h.lost()
	}
	return closedChan
}

// token returns the fencing token of [portions.hold], or 0.
func (p *portions) token() int64 {
	if h := p.hold(); h != nil {
		return h.fencing()
	}
	return 0
}
