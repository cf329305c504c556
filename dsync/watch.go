package dsync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// A watch is a presence's watch of the store: none until someone waits or
// observes, one however many do, none again when nobody has for a TTL. Its fields
// are guarded by the session's mu.
type watch struct {
	cancel      context.CancelFunc // nil: not running
	ready       bool
	unsupported bool
	waiters     int
	observers   map[string]map[chan struct{}]bool // by key
	idle        stamp                             // since when nobody waits or observes

	// Claims that ended well, with their tokens, of the last one to two periods
	// of heartbeats: grant events of theirs that come late mean nothing.
	recent, older map[string]int64
}

// join counts a waiter in, once, and starts the watch.
func (p *presence) join(h *hold) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
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
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if after == 0 || s.sleep(ctx, after) == nil {
			p.run(ctx)
		}
	}()
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

// part counts a waiter out.
func (p *presence) part(h *hold) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if h.waits {
		h.waits = false
		p.watch.waiters--
		p.watch.idle = stampNow()
	}
}

// tick is called with every heartbeat. s.mu must be held.
func (w *watch) tick(s *Session) {
	w.recent, w.older = nil, w.recent
	if w.waiters == 0 && len(w.observers) == 0 && w.cancel != nil && w.idle.elapsed() > s.opt.TTL {
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
	if w.cancel == nil {
		return
	}
	if w.recent == nil {
		w.recent = make(map[string]int64)
	}
	w.recent[claim] = token
}

// past reports whether a grant of the claim with the token is one that has ended
// well. s.mu must be held.
func (w *watch) past(claim string, token int64) bool {
	t := max(w.recent[claim], w.older[claim])
	return t >= token
}

// run watches until ctx ends. After a break it opens a new watch, from then on;
// the ready event makes every waiter ask again for what was missed.
func (p *presence) run(ctx context.Context) {
	s := p.s
	retry := s.backoff()
	for {
		s.mu.Lock()
		keys := slices.Collect(maps.Keys(p.watch.observers))
		s.mu.Unlock()
		err := s.store.Watch(ctx, p.id, keys, func(e Event) {
			if e.Type == EventReady {
				retry.reset()
			}
			p.event(ctx, e)
		})
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		p.watch.ready = false
		if errors.Is(err, errors.ErrUnsupported) {
			p.watch.unsupported = true
			p.watch.stop()
		}
		s.mu.Unlock()
		if errors.Is(err, errors.ErrUnsupported) {
			s.info("dsync: the store can't push; waiters poll", "why", err)
			return
		}
		s.storeError("Watch", err)
		if s.sleep(ctx, retry.next()) != nil {
			return
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
		for _, h := range s.holds {
			if h.p == p && h.state == asking {
				h.again = true
				h.notify()
			}
		}
		for key := range p.watch.observers {
			p.changed(key)
		}
	case EventChange:
		p.changed(e.Key)
	case EventGrant:
		h := s.holds[e.Claim]
		switch {
		case h == nil:
			if !p.watch.past(e.Claim, e.Token) {
				p.orphan(Claim{Key: e.Key, ID: e.Claim, Session: p.id})
			}
		case h.state == asking:
			h.event = e
			h.notify()
		}
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

// orphan releases a claim of this presence that nobody here knows, as a request
// that arrived twice can leave one. s.mu must be held.
func (p *presence) orphan(c Claim) {
	s := p.s
	h := &hold{s: s, p: p, claim: c, state: spent}
	s.holds[c.ID] = h
	s.warn("dsync: releasing a claim that nobody here knows", "claim", c.ID, "key", c.Key)
	h.retireLocked(Outcome{})
}
