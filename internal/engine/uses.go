package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A Use is a key that this process holds, or a call that waits for one: one of both is set.
type Use struct {
	Hold *LocalHold
	Wait *LocalWait
}

// A UsesQuery says which uses [Session.Uses] returns.
type UsesQuery struct {
	Match   func(key string) bool // nil: all keys
	Order   UsesOrder
	From, N int // N of them, from that position in the order on
}

// A UsesOrder is an order of uses.
type UsesOrder int

const (
	ByKey        UsesOrder = iota // and of one key, holds before waits
	OldestFirst                   // of holds and waits alike
	WaitingFirst                  // waits before holds, each with the oldest first
)

// Uses returns some of what [Session.Local] lists in full, and how many the query matches. It is
// for a page of a process that holds many keys: it keeps and describes only what it returns. It
// compares the clock, and the session can do nothing else meanwhile.
func (s *Session) Uses(q UsesQuery) (uses []Use, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.lease != nil {
		s.lease.expiredAt(now)
	}
	return s.uses(q, now)
}

// uses is Uses for a caller that has just read the clock and compared it with the lease. s.mu must
// be held.
func (s *Session) uses(q UsesQuery, now time.Time) (uses []Use, total int) {
	first := firstUses{order: q.Order, n: max(0, q.From) + max(0, q.N)}
	matches := func(key string) bool { return q.Match == nil || q.Match(key) }
	positions := make(map[*queue]int)
	for _, c := range s.claims {
		switch key := c.request.Key; {
		case !matches(key):
		case c.state == pending:
			positions[c.queue] = max(positions[c.queue], c.position) // a try has no position
		case c.lingers(), c.state == granted && c.hold.check(now):
			first.add(useRef{key: key, since: c.grant.start, token: c.token, c: c})
		}
	}
	for h := range s.overdue {
		if c := h.c; matches(c.request.Key) {
			first.add(useRef{key: c.request.Key, since: c.grant.start, token: h.token, overdue: h})
		}
	}
	for _, w := range s.queues {
		if !matches(w.key) {
			continue
		}
		for _, l := range w.local(positions[w]) {
			first.add(useRef{key: w.key, since: l.Since, wait: &l})
		}
	}
	for _, r := range first.sorted()[min(max(0, q.From), len(first.refs)):] {
		uses = append(uses, s.use(&r))
	}
	return uses, first.total
}

// A useRef is what it takes to sort a use, and to describe it then.
type useRef struct {
	key   string
	since time.Time
	token int64

	c       *claim // for a hold
	overdue *Hold  // for a lost hold whose holder is not done
	wait    *LocalWait
}

// firstUses are the first n of all uses that are added. It never keeps more than 2n, however
// many a process has.
type firstUses struct {
	order UsesOrder
	n     int
	refs  []useRef
	full  bool // refs[n-1] is the last of n or more that were sorted
	total int
}

func (f *firstUses) add(r useRef) {
	f.total++
	if f.n == 0 || f.full && f.order.compare(r, f.refs[f.n-1]) > 0 {
		return
	}
	if f.refs = append(f.refs, r); len(f.refs) == 2*f.n {
		f.sorted()
	}
}

func (f *firstUses) sorted() []useRef {
	slices.SortFunc(f.refs, f.order.compare)
	f.refs = f.refs[:min(f.n, len(f.refs))]
	f.full = len(f.refs) == f.n
	return f.refs
}

// use describes a use. s.mu must be held.
func (s *Session) use(r *useRef) Use {
	var h LocalHold
	switch c := r.c; {
	case r.wait != nil:
		return Use{Wait: r.wait}
	case r.overdue != nil:
		h = r.overdue.c.local(max(1, r.overdue.sharers))
		h.Lost, h.LostSince = r.overdue.cause, s.overdue[r.overdue]
	case c.lingers():
		h = c.local(0)
	default:
		h = c.local(max(1, c.hold.sharers))
	}
	return Use{Hold: &h}
}

// compare orders uses. Of what is equal otherwise, a queue's calls keep their order.
func (o UsesOrder) compare(a, b useRef) int {
	waits := func(r useRef) int {
		if r.wait != nil {
			return 1
		}
		return 0
	}
	ahead := func(r useRef) int {
		if r.wait != nil {
			return r.wait.Ahead
		}
		return 0
	}
	byKey := cmp.Or(strings.Compare(a.key, b.key), waits(a)-waits(b), cmp.Compare(a.token, b.token), ahead(a)-ahead(b))
	switch o {
	case OldestFirst:
		return cmp.Or(a.since.Compare(b.since), byKey)
	case WaitingFirst:
		return cmp.Or(waits(b)-waits(a), a.since.Compare(b.since), byKey)
	}
	return byKey
}
