package program

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/rules"
)

// page returns the page of a key. r.mu must be held.
func (r *runner) page(key string) *page {
	p := r.pages[key]
	if p == nil {
		// Close asks the store to keep a key for the rest of the grace. The store counts whole milliseconds, so the
		// key may become free up to a millisecond before the grace is over.
		p = &page{leads: make(map[int64]string), named: make(map[int64]string), rules: rules.Key{Grace: r.grace() - time.Millisecond, Skew: r.w.Skew}, limit: semSize}
		p.unused, p.held = r.began, r.began
		r.pages[key] = p
	}
	return p
}

// whole is the weight of an exclusive hold: more than the size of any semaphore.
const whole = 1 << 10

// grant records a new hold, and checks that it is allowed.
func (r *runner) grant(h *hold) {
	h.over = make(chan struct{})
	r.mu.Lock()
	now := r.now()
	p := r.page(h.Key)
	r.grants++
	h.Process, h.ID, h.What = h.life.name, r.grants, h.verb.String()
	h.Granted, h.Live = now, now
	switch {
	case h.Shared:
		h.Weight, h.Limit = 1, whole
	case h.Weight > 0:
		h.Limit = p.limit
	default:
		h.Weight, h.Limit = whole, whole
	}
	if h.Token == 0 && !h.pooled && h.open() {
		r.fail("%s has %s without a token, though Lost is open", h.who, h.Key)
	}
	for _, o := range p.holds {
		o.check(now)
	}
	for _, v := range p.rules.Grant(&h.Hold) {
		r.fail("%s: %v", h.who, v)
	}
	p.holds = append(p.holds, h)
	// A session that gets no notices does not learn of waiters, so it keeps its keys for the whole Linger time.
	l := h.life
	p.late = p.late || h.d > 0 || l.set.Linger > 0 && l.set.Polling
	r.mu.Unlock()
	if h.lost != nil {
		r.watchers.Go(func() { r.watch(h) })
	}
}

// watch waits until h is released or lost. If h is lost, watch checks that there was a reason.
func (r *runner) watch(h *hold) {
	select {
	case <-h.over:
		return
	case <-h.lost:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Done == 0 {
		r.lost(h)
	}
}

// lost records that h ended before its holder was done. r.mu must be held.
func (r *runner) lost(h *hold) {
	if h.wasLost {
		return
	}
	h.wasLost, h.Live = true, r.now()
	if h.verb == Once { // the hold's context may just have ended
		return
	}
	r.note(h.who, "lost %s (token %d)", h.Key, h.Token)
	if !r.excused(h) {
		r.fail("%s lost %s (token %d) for no reason", h.who, h.Key, h.Token)
	}
}

// excused reports whether there is a reason why h may end before its holder is done. r.mu must be held.
func (r *runner) excused(h *hold) bool {
	return h.brief || h.life.closing || h.life.shaken || len(r.page(h.Key).rules.Breaks) > 0 ||
		h.d > 0 && r.now()-max(h.Requested, h.ext) >= r.holdTime(h.d)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// end records that h's holder is done. The result lost reports whether the hold was seen to be lost before that, and
// excused whether there was a reason for the loss.
func (r *runner) end(h *hold) (lost, excused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.Done = r.now()
	if h.open() {
		h.Live = h.Done
	} else {
		r.lost(h)
		lost = true
	}
	close(h.over)
	return lost, r.excused(h)
}

// ended records that the release of h has returned.
func (r *runner) ended(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.page(h.Key)
	p.holds = slices.DeleteFunc(p.holds, func(o *hold) bool { return o == h })
	p.touch()
}

// touch records that the key was in use until now.
func (p *page) touch() { p.held, p.unused = time.Now(), time.Now() }

// idle returns how long nobody has held the key. If line is true, it returns how long nobody has held the key or waited
// for it. If there was a fault in that time, idle returns the time since the fault. It returns 0 while a link is cut or
// noisy. r.mu must be held.
func (r *runner) idle(key string, line bool) time.Duration {
	p := r.page(key)
	if len(p.holds) > 0 || line && p.waits > 0 || r.cuts > 0 {
		return 0
	}
	since := p.held
	if line {
		since = p.unused
	}
	return time.Since(later(since, r.fault))
}

// fail records a failure. r.mu must be held.
func (r *runner) fail(format string, args ...any) {
	msg := fmt.Sprintf("%v: ", r.at(time.Now())) + fmt.Sprintf(format, args...)
	r.failures = append(r.failures, msg)
	r.trace = append(r.trace, "FAIL "+msg)
}

// note adds a line to the log of what happened. r.mu must be held.
func (r *runner) note(who, format string, args ...any) {
	if len(r.trace) < 2000 {
		r.trace = append(r.trace, fmt.Sprintf("%-12v %s %s", r.at(time.Now()), who, fmt.Sprintf(format, args...)))
	}
}

// now returns the time as package rules counts it. It is never 0, which in package rules means that something
// has not happened.
func (r *runner) now() time.Duration { return r.since(time.Now()) }

func (r *runner) since(t time.Time) time.Duration { return t.Sub(r.began) + 1 }

// at returns the time from the start to t, or -1 if t is zero.
func (r *runner) at(t time.Time) time.Duration {
	if t.IsZero() {
		return -1
	}
	return t.Sub(r.began)
}

// semSize is the initial size of semaphores.
const semSize = 3

// A page is what the runner knows about one key. The runner's mu guards it.
type page struct {
	holds    []*hold
	waits    int       // calls that wait for the key
	unused   time.Time // when the key last became unused: nobody holds it or waits for it
	held     time.Time // when somebody last held the key
	late     bool      // the store may still keep the key after its last holder is done: an abandoned lease, ReleaseAfter or Linger
	breaking int       // calls of Break and ForceHold that have not returned
	limit    int64     // the greatest size that the semaphore may have
	rules    rules.Key

	// For a Once:
	sealed []string // values of runs that certainly succeeded
	maybe  []string // values of runs that may have succeeded
	given  []string // values that DoValue returned to callers whose function did not run

	// For an election, by term:
	leads map[int64]string // the session that leads, or led
	named map[int64]string // the session that the term was transferred to
}

// breakBegins records a call of Break or ForceHold. r.mu must be held.
func (r *runner) breakBegins(p *page) {
	p.breaking++
	p.rules.Breaks = append(p.rules.Breaks, r.now())
}

// breakEnds records that a call of Break or ForceHold has returned. If the call's context ended first, the revocations
// that the call sent are still in the store. r.mu must be held.
func (r *runner) breakEnds(p *page) {
	p.breaking--
	p.rules.Breaks = append(p.rules.Breaks, r.now())
}

// A hold describes what a goroutine was granted, from the grant until the release has returned. The runner's mu guards
// the fields that change after the hold has been created.
type hold struct {
	rules.Hold
	verb    Verb // the verb that requested it
	who     string
	life    *life
	pooled  bool // held through a Semaphore or RWMutex that has several holds and can't tell whether one is lost
	brief   bool // the hold may have ended because its context did
	lost    <-chan struct{}
	open    func() bool // reports whether Lost is open or, for a pooled hold, whether nothing excuses a loss; r.mu must be held
	release func(Op)

	dh  *dsync.Hold   // for a lease
	d   time.Duration // duration of the lease
	ext time.Duration // the time just before the last Extend that succeeded

	wasLost bool          // Lost was seen closed before the holder was done
	over    chan struct{} // closed when the holder is done
}

// check sets h.Live to now, unless the hold is done or lost.
func (h *hold) check(now time.Duration) {
	switch {
	case h.Done > 0 || h.wasLost:
	case h.pooled && !h.open():
		h.Live = -time.Hour // part of the pool may be lost
	default:
		h.Live = now
	}
}
