package dsync

import (
	"context"
	"errors"
	"time"
)

// A hold is one holder's of a claim, from the first request for it until its holder
// is done: the shared mechanism of everything that can be locked.
//
//	asking ──► held ──► spent     released by its holder, or handed on
//	  │          ├────► gone      lost: nothing may be sent for it any more
//	  │          ├────► told ──► spent   asked to stop; in its grace
//	  │          └────► parked ─► spent  nobody's: kept for whoever comes next here
//	  └──► spent                  given up before it was granted
//
// Its fields are guarded by the session's mu.
type hold struct {
	*tenure
	state    holdState
	began    time.Time       // when the caller asked; then when it was granted, zero if no hook wants to know
	token    int64           // once it was granted
	ctx      context.Context // ends with the hold; its Done is Lost. Made when somebody asks for it
	end      context.CancelCauseFunc
	cause    error         // why it was lost
	sharers  int           // who has it, of a hold that is shared
	freed    chan struct{} // closed when the holder said that it is done; made when somebody asks for it
	done     bool          // the holder is done
	draining bool          // it is to be released when the grace is over
	kept     bool          // its holder is done, and left it behind with an end
}

// A tenure is a claim from the first request for it until the store has forgotten
// it: what the holds that are handed on, one to the next, have in common. What is
// not said to be set when it is made is guarded by the session's mu.
type tenure struct {
	s       *Session
	p       *presence
	q       *queue // nil: it never was anybody's
	claim   Claim
	auto    bool            // it gives its place in the queue back by itself: see Hold
	shares  bool            // readers of this process may share it
	pressed map[string]bool // claims whose sessions were asked to give the key up; nil: none is to be
	wake    chan struct{}   // room for one: there may be something new
	passed  chan struct{}   // closed when it was released and its place given back; nil unless auto, or a try waits for that

	// While it is asked for:
	asks     int                   // attempts sent
	joined   bool                  // it stands in the store's line or holds, by its last answer or an event
	place    int                   // in that line, by its last answer; 0: not in it
	ahead    []string              // the sessions that stand in the way, by the same
	named    []string              // those that the last attempt named dead
	waits    bool                  // counted by the watch
	again    bool                  // there is reason to ask again since the last attempt was sent
	revoked  bool                  // it was revoked before its grant was learnt, or while it was released
	lone     bool                  // only one attempt was not answered, and is inflight
	void     time.Time             // no unanswered attempt joins once the store's clock is past it; zero: all were answered
	inflight <-chan answer[*State] // an attempt that its caller did not wait for

	// Once it was granted:
	*granted
	refused error // why the store refuses to release it, for now
	handed  int   // how often it was handed on
	last    int64 // the greatest token there is for that
	watched int   // the watch, by number, that would tell of others that wait; 0: none
	yielded bool  // others wait
	left    bool  // its place in the queue was given back
	leaves  bool  // its place is given back when it is released

	timer *time.Timer // of a fixed lease
}

type holdState int

const (
	asking holdState = iota
	held
	told
	gone
	parked
	spent
)

// A want is what a caller wants to hold.
type want struct {
	key           string
	kind          Kind
	weight, limit int64
	lease         time.Duration
	auto          bool // the hold gives its place back by itself: see Hold
	shares        bool // it can be shared
	first         bool // before all others, and holders are asked to give the key up
	back          bool // it had its turn to ask, and gave it up for one that is first
	began         time.Time
}

// all is all of key, as kind.
func all(key string, kind Kind) want {
	return want{key: key, kind: kind, weight: 1, limit: 1}
}

// newHold returns a hold with a claim that was never used. Its caller must call
// settled in the end.
func (p *presence) newHold(w *want) (*hold, error) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends() {
		return nil, ErrClosed
	}
	s.asking.Add(1)
	lingers := s.opt.Linger > 0 && w.exclusive() && w.lease == 0 && !w.auto
	h := &hold{began: w.began, tenure: &tenure{
		s: s, p: p, q: s.queues[w.key], auto: w.auto, shares: w.shares,
		claim: Claim{
			Key: w.key, ID: p.claimID(), Session: p.id,
			Kind: w.kind, Weight: w.weight, Limit: w.limit, Lease: w.lease,
			Yield: lingers || w.shares, First: w.first,
		},
		wake: make(chan struct{}, 1),
	}}
	if w.first {
		h.pressed = make(map[string]bool)
	}
	if w.auto {
		h.passed = make(chan struct{})
	}
	s.holds[h.claim.ID] = h
	if lingers || w.shares && h.q.keen {
		p.join(h)
	}
	return h, nil
}

// settled ends the asking: the hold was granted, or, with an error, is given up.
func (h *hold) settled(err error) {
	if err != nil {
		h.abandon()
	} else if !h.claim.Yield {
		h.s.mu.Lock()
		h.part()
		h.s.mu.Unlock()
	}
	h.s.asking.Done()
}

// leased reports whether the hold is one that ends by itself and not with its
// session. s.mu must be held.
func (h *hold) leased() bool { return h.claim.Lease > 0 && h.state != asking }

// grant begins the hold. The lease of its presence, and of a fixed lease its
// own, must not be over: a grant that is learnt too late is none, as is one of a
// claim that was revoked.
func (h *hold) grant(g *granted) error {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.granted = g
	switch {
	case h.state != asking:
		return ErrClosed
	case h.revoked, h.p.expired(), h.claim.Lease > 0 && h.leaseLeft() <= 0:
		return errOver
	}
	h.state, h.token = held, g.token
	h.ahead = nil
	h.start = time.Now()
	h.last = g.token + tokenRoom - 1
	if h.claim.Yield {
		h.last = g.token + yieldRoom - 1
	}
	if h.claim.Lease > 0 {
		h.timer = time.AfterFunc(h.leaseLeft(), h.lapse)
	}
	h.q.holder = h
	if h.shares {
		h.sharers, h.q.shared = 1, h
	}
	h.report(false)
	h.p.listenLater()
	if h.q.forced() {
		h.drain(ErrRevoked) // it asked before that one came
	}
	return nil
}

// report tells of the grant. s.mu must be held.
func (h *hold) report(local bool) {
	var now time.Time // not read for nothing: where keys linger that is a good part of a Lock
	h.s.each(func(l *Hooks) {
		if now.IsZero() && l.ofHolds() {
			now = time.Now()
		}
		if l.Granted != nil {
			grant := Grant{Key: h.claim.Key, Kind: h.claim.Kind, Token: h.token, Wait: now.Sub(h.began), Local: local}
			h.s.report(func() { l.Granted(grant) })
		}
	})
	h.began = now
}

// scope returns a context that ends with the hold. s.mu must be held.
func (h *hold) scope() context.Context {
	if h.ctx == nil {
		h.ctx, h.end = context.WithCancelCause(context.Background())
		if h.state != held {
			h.finish()
		} else {
			h.s.glanceLater()
		}
	}
	return h.ctx
}

// finish ends the hold's context, if there is one. s.mu must be held.
func (h *hold) finish() {
	if h.end == nil {
		return
	}
	cause := h.cause
	if cause == nil {
		cause = context.Canceled
	}
	h.end(cause)
}

// lost returns the channel that is closed when the hold ends.
func (h *hold) lost() <-chan struct{} {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.look(time.Now())
	return h.scope().Done()
}

// fencing returns the token, or 0 if the hold is over.
func (h *hold) fencing() int64 {
	if !h.live() {
		return 0
	}
	return h.token
}

// notify has the one who asks ask again, or find that it is over. s.mu must be held.
func (h *hold) notify() {
	h.again = true
	h.rouse()
}

// rouse has the one who asks look whether there is reason to ask again.
func (h *hold) rouse() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// errOver: the claim can't be granted any more, since its session was lost, its
// lease lapsed before it was dated, or it was revoked. Ask again with a new one.
var errOver = errors.New("dsync: the claim was lost while asking")

// errAside: somebody in this process wants the key by force. Its claim is to be first
// in the store's line, where this process has one claim at a time.
var errAside = errors.New("dsync: stepped aside")
