package program

import (
	"fmt"
	"slices"
	"time"
)

// page returns the book of a key. r.mu must be held.
func (r *runner) page(key string) *page {
	p := r.pages[key]
	if p == nil {
		p = &page{readers: make(map[int64]*life), weighed: make(map[int64]bool), limit: semSize}
		p.quiet, p.held = r.began, r.began
		r.pages[key] = p
	}
	return p
}

// grant enters a new hold, and checks that it may be.
func (r *runner) grant(h *hold) {
	h.done = make(chan struct{})
	r.mu.Lock()
	now := time.Now()
	p := r.page(h.key)
	r.exclusion(p, h, now)
	r.tokens(p, h)
	p.holds = append(p.holds, h)
	// Where nothing is pushed a key lingers for its time.
	l := h.life
	p.late = p.late || h.d > 0 || l.set.Linger > 0 && l.set.Polling
	r.mu.Unlock()
	if h.lost != nil {
		r.watchers.Go(func() { r.watch(h) })
	}
}

// exclusion checks that h goes together with what is held. r.mu must be held.
func (r *runner) exclusion(p *page, h *hold, now time.Time) {
	sum := h.weight
	for _, o := range p.holds {
		if !o.blocks(now, r.grace()) {
			continue
		}
		if h.excludes(o) {
			r.fail("%s has %s of %s (token %d), which %s still has (token %d, lost at %v)",
				h.who, h.what, h.key, h.token, o.who, o.token, r.at(o.lostAt))
		}
		sum += o.weight
	}
	if h.weight > 0 && sum > p.limit {
		r.fail("%s has %d of %s: together %d are held of %d", h.who, h.weight, h.key, sum, p.limit)
	}
	for _, k := range p.kept {
		if k.breaks == p.breaks && now.Before(k.until.Add(-2*time.Millisecond)) {
			r.fail("%s has %s, which %s has kept until %v", h.who, h.key, k.who, r.at(k.until))
		}
	}
}

// tokens checks h's token. r.mu must be held.
func (r *runner) tokens(p *page, h *hold) {
	if h.token == 0 {
		// The hold ended within the moment since its grant.
		if !h.pooled && h.live() {
			r.fail("%s has %s with Lost open and no token", h.who, h.key)
		}
		return
	}
	switch {
	case h.weight > 0:
		if p.weighed[h.token] || h.token <= p.lastTurn {
			r.fail("%s has a part of %s with token %d, which was given before", h.who, h.key, h.token)
		}
		p.weighed[h.token] = true
	case h.shared:
		if l := p.readers[h.token]; l != nil && l != h.life {
			r.fail("%s reads %s with token %d, which another session's readers have", h.who, h.key, h.token)
		}
		if h.token <= p.lastTurn {
			r.fail("%s reads %s with token %d, after a hold with %d", h.who, h.key, h.token, p.lastTurn)
		}
		p.readers[h.token] = h.life
		p.lastRead = max(p.lastRead, h.token)
	default:
		if h.token <= p.lastTurn || h.token <= p.lastRead {
			r.fail("%s has %s with token %d, after a hold with %d and readers with %d",
				h.who, h.key, h.token, p.lastTurn, p.lastRead)
		}
		p.lastTurn = h.token
	}
}

// watch waits for the end of h and checks that a loss has a reason.
func (r *runner) watch(h *hold) {
	select {
	case <-h.done:
		return
	case <-h.lost:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !h.ending {
		r.lost(h)
	}
}

// lost notes that h ended before its holder was done. r.mu must be held.
func (r *runner) lost(h *hold) {
	if !h.lostAt.IsZero() {
		return
	}
	h.lostAt = time.Now()
	if h.what != Once { // whose context may just have ended
		r.note(h.who, "lost %s (token %d)", h.key, h.token)
	}
	if h.what != Once && !r.excused(h) {
		r.fail("%s lost %s (token %d) for no reason", h.who, h.key, h.token)
	}
}

// excused reports whether h may end before its holder is done. r.mu must be held.
func (r *runner) excused(h *hold) bool {
	return h.life.closing || h.life.shaken || r.page(h.key).breaks > 0 ||
		h.d > 0 && time.Since(later(h.asked, h.ext)) >= r.holdTime(h.d)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// end notes that h's holder is done, and reports whether the hold was surely lost
// before, and whether it can have been.
func (r *runner) end(h *hold) (lost, excused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !h.live() {
		r.lost(h)
		lost = true
	}
	h.ending = true
	close(h.done)
	return lost, r.excused(h)
}

// ended notes that the release of h has returned.
func (r *runner) ended(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.page(h.key)
	p.holds = slices.DeleteFunc(p.holds, func(o *hold) bool { return o == h })
	p.touch()
}

// touch notes that the key was in use until now.
func (p *page) touch() { p.held, p.quiet = time.Now(), time.Now() }

// idle reports for how long nobody has held the key, with no fault since; and, if
// line, nobody waited. r.mu must be held.
func (r *runner) idle(key string, line bool) time.Duration {
	p := r.page(key)
	if len(p.holds) > 0 || line && p.waits > 0 || r.cuts > 0 {
		return 0
	}
	since := p.held
	if line {
		since = p.quiet
	}
	return time.Since(later(since, r.fault))
}

// fail notes a failure. r.mu must be held.
func (r *runner) fail(format string, args ...any) {
	msg := fmt.Sprintf("%v: ", r.at(time.Now())) + fmt.Sprintf(format, args...)
	r.failures = append(r.failures, msg)
	r.trace = append(r.trace, "FAIL "+msg)
}

// note adds a line to what happened. r.mu must be held.
func (r *runner) note(who, format string, args ...any) {
	if len(r.trace) < 2000 {
		r.trace = append(r.trace, fmt.Sprintf("%-12v %s %s", r.at(time.Now()), who, fmt.Sprintf(format, args...)))
	}
}

// at returns t as the time since the start.
func (r *runner) at(t time.Time) time.Duration {
	if t.IsZero() {
		return -1
	}
	return t.Sub(r.began)
}
