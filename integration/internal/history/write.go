package history

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// A write is one fenced write.
type write struct {
	key            string
	token          int64
	call, returned time.Duration // returned is 0 if the call has not returned
	err            string
}

// writes returns the fenced writes in the order of their calls.
func (h *History) writes() []*write {
	var all []*write
	open := make(map[who]*write)
	for _, e := range h.Events {
		switch e.Type {
		case Write:
			w := &write{key: e.Key, token: e.Token, call: e.At}
			open[who{e.Process, e.ID}] = w
			all = append(all, w)
		case Wrote:
			w := open[who{e.Process, e.ID}]
			w.returned, w.err = e.At, e.Err
		}
	}
	return all
}

// applied and refused report whether the answer proves that the write was applied, or that it
// was refused.
func (w *write) applied() bool { return w.returned > 0 && w.err == "" }
func (w *write) refused() bool { return w.returned > 0 && w.err == Fenced }

// fences checks that the tokens in a document's log never decrease, and that no write by the holder of a certain hold
// is refused. linear checks the other answers.
func (c *checker) fences(h *History, holds map[string][]*rules.Hold) {
	for _, e := range h.Events {
		if e.Type != Log {
			continue
		}
		for i := range e.Tokens[min(1, len(e.Tokens)):] {
			if a, b := e.Tokens[i], e.Tokens[i+1]; b < a {
				c.fail("fence", e.Key, e.At, "the document applied a write with token %d after one with %d", b, a)
			}
		}
	}
	holder := make(map[string]map[int64]*rules.Hold)
	for key, all := range holds {
		holder[key] = make(map[int64]*rules.Hold)
		for _, o := range all {
			holder[key][o.Token] = o
		}
	}
	for _, w := range h.writes() {
		if o := holder[w.key][w.token]; o != nil && w.refused() && o.Certain() > w.returned {
			c.fail("fence", w.key, w.call, "a write of %v was refused although it held the key", o)
		}
	}
}
