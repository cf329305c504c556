package program

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A slot is one of the program's sessions, which may be closed and opened again.
type slot struct {
	number int
	life   *life
	cut    bool // or noisy
	healed time.Time
}

// A life is a session of dsync. Its fields but s are guarded by the runner's mu.
type life struct {
	*dsync.Session
	slot     *slot
	name     string // no other session has it
	set      Setting
	first    time.Time // when it was first used
	closing  bool      // Close was called
	shaken   bool      // its link was cut once, or the server lost it
	replayed bool      // its requests were delivered once more
	closed   chan struct{}
}

func (l *life) engine() *engine.Session { return (*engine.Session)(l.Session) }

// open opens the session of a slot.
func (r *runner) open(i int, s *slot) *life {
	l := &life{slot: s, closed: make(chan struct{})}
	r.mu.Lock()
	r.opened++
	l.name = fmt.Sprintf("s%d/%d", i, r.opened)
	r.mu.Unlock()
	var set Setting
	if i < len(r.p.Sessions) {
		set = r.p.Sessions[i]
	}
	l.set = set
	opt := set.Options(r.ttl)
	opt.Linger = min(opt.Linger, r.linger)
	if !r.bubble {
		opt.PollInterval = 30 * time.Millisecond
	}
	opt.Hooks = &dsync.Hooks{SessionLost: func(_ string, cause error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.note(fmt.Sprint("s", i), "session lost: %v", cause)
		if !r.bubble {
			l.shaken = true // a real server may be slow
		} else if !l.shaken {
			r.fail("s%d was lost for no reason: %v", i, cause)
		}
	}}
	l.Session = r.w.Open(i, set, opt)
	l.shaken = s.cut
	return l
}

// disturb has the link of a slot cut, noisy or healed.
func (r *runner) disturb(s *slot, v Verb) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.cut == (v != Heal) {
		return
	}
	s.cut = v != Heal
	r.fault = time.Now()
	link := r.w.Links[s.number]
	switch v {
	case Heal:
		r.cuts--
		s.healed = time.Now()
		link.Heal()
		return
	case Cut:
		link.Cut()
	case Noise:
		link.Noise()
	}
	r.cuts++
	s.life.shaken = true
}

// replay delivers all that a slot has sent once more. A copy of a request that was
// answered and has no release after it, as of a try that was refused, can join now, if it
// comes while it still counts. Nobody sends the notice of what that grants: the session sees
// it when it requests the key again, which hear makes it do.
func (r *runner) replay(s *slot) {
	_ = r.w.Links[s.number].Replay(context.Background())
	r.mu.Lock()
	r.fault = time.Now()
	l := s.life
	l.replayed = true
	r.mu.Unlock()
	r.hear(l, time.Millisecond)
}

// hear has a session request the keys that it has a claim on, for as long as patience each, so
// that it learns of claims that it does not know.
func (r *runner) hear(l *life, patience time.Duration) {
	for _, key := range keys() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		st, err := l.engine().Load(ctx, r.w.Prefix+key)
		if err == nil && concerns(st, l.ID()) {
			_ = r.lockAny(ctx, l, r.w.Prefix+key)
		}
		cancel()
	}
}

// concerns reports whether the session has a claim in st.
func concerns(st driver.State, session string) bool {
	return slices.ContainsFunc(st.Holders, func(h driver.Holder) bool { return h.Session == session }) ||
		slices.ContainsFunc(st.WaitersAhead, func(w driver.Waiter) bool { return w.Session == session })
}

// close closes the session of a life.
func (r *runner) close(l *life, patience time.Duration, who string) {
	r.mu.Lock()
	if l.closing {
		r.mu.Unlock()
		<-l.closed
		return
	}
	l.closing = true
	r.fault = time.Now()
	c := r.call(who, l, "")
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// The wait for holders, one attempt of each kind of what it still has to say.
	c.ctx, c.most = ctx, min(patience, r.grace())+r.ttl
	err := l.Session.Close(ctx)
	c.returned(err, store)
	close(l.closed)
	r.mu.Lock()
	r.fault = time.Now()
	r.mu.Unlock()
}
