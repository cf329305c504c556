package dsync

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"
)

// A watch is a presence's watch of the store: none until someone waits or
// observes, one however many do, none again when nobody has for a TTL. Its fields
// are guarded by the session's mu.
type watch struct {
	cancel      context.CancelFunc // nil: not running
	ready       bool
	number      int // of the watch that is ready, or was last
	unsupported bool
	waiters     int
	observers   map[string]map[chan struct{}]bool // by key
	idle        stamp                             // since when nobody waits or observes

	// Claims that ended well in the last one to two periods of heartbeats: grant
	// events, and replies, that come late and have them mean nothing.
	recent, older map[string]ending
	asks          int    // requests to join under way
	moment        uint64 // counts sends of requests to join, and ends: what came first
}

// An ending is that of a claim that ended well.
type ending struct {
	token  int64
	moment uint64
}

// join counts a hold in that is to be told of events, once, and starts the watch.
// s.mu must be held.
func (p *presence) join(h *hold) {
	w := &p.watch
	if !h.waits {
		h.waits = true
		w.waiters++
	}
	p.startWatch(0)
}

// startWatch starts the watch after a while, if it is not running. s.mu must be
// held.
func (p *presence) startWatch(after time.Duration) {
	s, w := p.s, &p.watch
	if w.cancel != nil || w.unsupported || p.cause != nil || s.finished {
		return
	}
	ctx, cancel := context.WithCancel(s.base)
	w.cancel = cancel
	s.workers.wg.Go(func() {
		if after == 0 || s.sleep(ctx, after) == nil {
			p.run(ctx)
		}
	})
}

// observe returns a channel that gets a value when key may have changed. The
// watch is opened anew with the key, unless it has it already.
func (p *presence) observe(key string) (changed chan struct{}) {
	const gather = 5 * time.Millisecond // of keys that are observed one after the other
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	changed = make(chan struct{}, 1)
	w := &p.watch
	if w.observers == nil {
		w.observers = make(map[string]map[chan struct{}]bool)
	}
	if w.observers[key] == nil {
		w.observers[key] = make(map[chan struct{}]bool)
		w.stop()
	}
	w.observers[key][changed] = true
	p.startWatch(gather)
	return changed
}

// unobserve ends what observe began.
func (p *presence) unobserve(key string, changed chan struct{}) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	w := &p.watch
	delete(w.observers[key], changed)
	if len(w.observers[key]) == 0 {
		delete(w.observers, key) // the stream keeps the key until it is opened anew
	}
	w.idle = stampNow()
}

// part counts a hold out that is to be told no more. s.mu must be held.
func (h *hold) part() {
	if h.waits {
		h.waits = false
		h.p.watch.waiters--
		h.p.watch.idle = stampNow()
	}
}

// tick is called with every heartbeat. s.mu must be held.
func (w *watch) tick(s *Session) {
	w.recent, w.older = nil, w.recent
	if w.waiters == 0 && len(w.observers) == 0 && !s.opt.Watch && w.cancel != nil && w.idle.elapsed() > s.opt.TTL {
		w.stop()
	}
}

// stop ends the watch. s.mu must be held.
func (w *watch) stop() {
	if w.cancel != nil {
		w.cancel()
		w.cancel, w.ready = nil, false
	}
}

// ended notes that a claim has ended well. s.mu must be held.
func (w *watch) ended(claim string, token int64) {
	if w.cancel == nil && w.asks == 0 {
		return
	}
	if w.recent == nil {
		w.recent = make(map[string]ending)
	}
	w.moment++
	w.recent[claim] = ending{token, w.moment}
}

// past reports whether a grant of the claim with the token is one that has ended
// well. s.mu must be held.
func (w *watch) past(claim string, token int64) bool {
	t := max(w.recent[claim].token, w.older[claim].token)
	return t >= token
}

// since reports whether the claim has ended well since moment.
func (w *watch) since(moment uint64, claim string) bool {
	return max(w.recent[claim].moment, w.older[claim].moment) > moment
}

// A keeping is a claim that was left in the store with an end, for d from since.
type keeping struct {
	since stamp
	d     time.Duration
}

// noteKept notes that the claim was left in the store for d more. An event of its grant may
// come at any time until then, when nothing else is known of it here, and must not
// have it released. s.mu must be held.
func (p *presence) noteKept(claim string, d time.Duration) {
	if p.kept == nil {
		p.kept = make(map[string]keeping)
	}
	p.kept[claim] = keeping{stampNow(), d + d/1000 + p.s.opt.Margin}
}

// wasKept reports whether the claim was left in the store on purpose. s.mu must be held.
func (p *presence) wasKept(claim string) bool {
	_, ok := p.kept[claim]
	return ok
}

// forgetKept forgets what was kept until now. s.mu must be held.
func (p *presence) forgetKept() {
	maps.DeleteFunc(p.kept, func(_ string, k keeping) bool { return k.since.elapsed() > k.d })
}

// run watches until ctx ends. After a break it opens a new watch, from then on;
// the ready event makes every waiter ask again for what was missed.
func (p *presence) run(ctx context.Context) {
	s := p.s
	err := s.reopen(ctx, "Watch", func() error {
		s.mu.Lock()
		keys := slices.Collect(maps.Keys(p.watch.observers))
		s.mu.Unlock()
		err := s.store.Watch(ctx, p.id, keys, func(e Event) {
			p.event(ctx, e)
			runtime.Gosched() // to who was woken, who need not wait until this goroutine has asked for more
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() == nil {
			p.watch.ready = false
		}
		return err
	})
	if err != nil {
		s.mu.Lock()
		p.watch.unsupported = true
		p.watch.stop()
		s.mu.Unlock()
		s.info("dsync: the store can't push; waiters poll", "why", err)
	}
}

// reopen calls open, which blocks for as long as the store pushes, until ctx ends, and
// anew after each break. An error is that the store can't push: ErrUnsupported.
func (s *Session) reopen(ctx context.Context, op string, open func() error) error {
	retry := s.backoff()
	for {
		opened := stampNow()
		err := open()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errors.ErrUnsupported):
			return err
		}
		s.storeError(op, err)
		if opened.elapsed() > retry.cap {
			// Only one that has lived: each that opens has every waiter ask again, or a
			// heartbeat sent.
			retry.reset()
		}
		if s.sleep(ctx, retry.next()) != nil {
			return nil
		}
	}
}

// event takes in an event of the watch that runs under ctx.
func (p *presence) event(ctx context.Context, e Event) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || p.cause != nil {
		return
	}
	switch e.Type {
	case EventReady:
		p.watch.ready = true
		p.watch.number++
		for _, h := range s.holds {
			if h.p == p && (h.state == held || h.state == parked) {
				p.inquire()
			}
			switch {
			case h.p != p:
			case h.state == asking:
				h.notify()
			case h.state == parked:
				h.unpark() // others may have come before
			case h.state == held && h.claim.Yield && !h.shares:
				h.yielded = true // likewise
			}
		}
		for key := range p.watch.observers {
			p.changed(key)
		}
	case EventChange:
		p.changed(e.Key)
	case EventRevoke:
		p.revoke(Revocation{e.Key, e.Claim})
	case EventYield:
		if h := s.holds[e.Claim]; h != nil {
			h.yielded = true
			h.unpark()
		}
	case EventWake:
		if h := s.holds[e.Claim]; h != nil && h.state == asking {
			h.notify()
		}
	case EventGrant:
		h := s.holds[e.Claim]
		switch {
		case h == nil:
			if !p.watch.past(e.Claim, e.Token) && !p.wasKept(e.Claim) {
				p.orphan(Claim{Key: e.Key, ID: e.Claim, Session: p.id})
			}
		case h.state == asking:
			h.granted, h.joined = &granted{token: e.Token, term: e.Term}, true
			h.notify()
		}
	}
}

// inquire has a heartbeat sent now, which tells of revocations that came before the
// watch was ready. s.mu must be held.
func (p *presence) inquire() {
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// changed wakes who observes key. s.mu must be held.
func (p *presence) changed(key string) {
	for c := range p.watch.observers[key] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// releaseUnknown releases a claim that a request of moment was told of, if it is this presence's
// and nobody here knows it, or knew it then. s.mu must be held.
func (p *presence) releaseUnknown(key, session, claim string, moment uint64) {
	if session == p.id && p.s.holds[claim] == nil && !p.watch.since(moment, claim) {
		p.orphan(Claim{Key: key, ID: claim, Session: session})
	}
}

// orphan releases a claim of this presence that nobody here knows, as a request
// that arrived twice can leave one. s.mu must be held.
func (p *presence) orphan(c Claim) {
	s := p.s
	h := &hold{tenure: &tenure{s: s, p: p, claim: c}, state: spent}
	s.holds[c.ID] = h
	s.warn("dsync: releasing a claim that nobody here knows", "claim", c.ID, "key", c.Key)
	h.retireLocked(Outcome{})
}
