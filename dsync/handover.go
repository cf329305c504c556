package dsync

import "time"

// watchedTurn is for how long a claim is kept beyond its turn, where the watch
// would tell of others that wait: a missed event costs them no more.
const watchedTurn = 5 * time.Second

// Tokens that a grant leaves for hand-overs: see [Store].
const (
	tokenRoom = 1 << 10
	yieldRoom = 1 << 16
)

// watching reports whether the session would be told if others waited.
func (h *hold) watching() bool {
	w := &h.p.watch
	return h.watched != 0 && w.ready && h.watched == w.number
}

// keeps reports whether the claim may be kept, for d after its grant, or for
// longer where the session would be told if others waited, and was not.
func (h *hold) keeps(d time.Duration, now time.Time) bool {
	if h.yielded {
		return false
	}
	if h.watching() {
		d = max(d, watchedTurn)
	}
	return now.Sub(h.start) < d
}

// joinable reports whether another reader may share the hold. s.mu must be held.
func (h *hold) joinable() bool {
	now := time.Now()
	turn := h.s.opt.Turn
	return turn > 0 && h.state == held && h.p.leftAt(now) > 0 && h.keeps(turn, now)
}

// like reports whether w could have h, of which it is known that it goes on.
func (w want) like(h *hold) bool {
	c := &h.claim
	return w.exclusive() && w.kind == c.Kind && w.weight == c.Weight && w.limit == c.Limit &&
		w.lease == 0 && c.Lease == 0 && !w.auto && !h.auto
}

// exclusive reports whether w is for all of the key, for good: of a semaphore others
// may have a part by the time it is handed on, as its size can change, and with it
// a greater token; and who waits in the store's line came first.
func (w want) exclusive() bool { return w.weight == w.limit && w.kind != KindSemaphore }

// pass hands the hold on to the next in this process, or keeps it for a while if
// there is none, and reports whether it did: not if other processes must get
// their turn. s.mu must be held.
func (h *hold) pass(now time.Time) bool {
	s, q := h.s, h.q
	if h.token >= h.last || h.shares {
		return false
	}
	if place := q.waiting.Front(); place != nil {
		e := place.Value.(*entrant)
		turn := now.Sub(h.start) < s.opt.Turn && h.handed < s.opt.HandOvers
		if !e.like(h) || !turn && !(s.opt.Linger > 0 && h.keeps(s.opt.Turn, now)) {
			return false
		}
		q.waiting.Remove(place)
		e.ready <- h.handOver(e.want)
		return true
	}
	if !h.claim.Yield || !h.keeps(max(s.opt.Turn, s.opt.Linger), now) {
		return false
	}
	h.state = parked
	h.finish()
	q.parked, q.idle, q.holder = h, now, nil
	if q.linger == nil {
		q.linger = time.AfterFunc(s.opt.Linger, q.lapse)
	}
	return true
}

// handOver ends h for its holder, if it has one, and returns the claim's next
// hold, with the next token. s.mu must be held.
func (h *hold) handOver(w want) *hold {
	h.state = spent
	h.finish()
	h.handed++
	n := &hold{tenure: h.tenure, state: held, began: w.began, token: h.token + 1}
	h.s.holds[n.claim.ID] = n
	h.q.holder = n
	n.report(true)
	return n
}

// lapse is what the timer of a hold that lingers calls.
func (q *queue) lapse() {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	h := q.parked
	if h == nil {
		q.linger = nil
		return
	}
	if left := q.s.opt.Linger - time.Since(q.idle); left > 0 {
		q.linger.Reset(left)
		return
	}
	q.linger, q.parked = nil, nil
	h.dropParked()
}

// unpark takes h out of the queue if it lingers, and releases it. s.mu must be
// held.
func (h *hold) unpark() {
	if h.state == parked {
		h.q.parked = nil
		h.dropParked()
	}
}

// dropParked releases a hold that lingered, and passes its place on when that is
// done. s.mu must be held.
func (h *hold) dropParked() {
	h.state = spent
	h.leaves = true
	h.retireLocked(Outcome{})
}
