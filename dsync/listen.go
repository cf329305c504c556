package dsync

import (
	"context"
	"errors"
	"time"
)

// listenAfter is how long a session holds something before it listens: most holds are
// over by then, and cost no more for it.
const listenAfter = time.Second

// A listener has a presence called when somebody wants something of it: without one, a
// session that only holds hears of [Session.Break] with its next heartbeat. It runs while
// the session holds something and has no watch, which tells the same. Its fields are
// guarded by the session's mu.
type listener struct {
	timer       *time.Timer        // starts it; nil: not armed
	cancel      context.CancelFunc // nil: not running
	unsupported bool
	idle        stamp // when a heartbeat last found something to listen for
}

// listenLater starts the listener if what is held now is held for longer. s.mu must be
// held.
func (p *presence) listenLater() {
	l := &p.listener
	if l.timer == nil && l.cancel == nil && !l.unsupported && p.cause == nil && !p.s.finished {
		l.timer = time.AfterFunc(listenAfter, p.listenNow)
	}
}

func (p *presence) listenNow() {
	s, l := p.s, &p.listener
	s.mu.Lock()
	defer s.mu.Unlock()
	l.timer = nil
	if l.cancel != nil || p.cause != nil || s.finished || !p.listens() {
		return
	}
	l.idle = stampNow()
	ctx, cancel := context.WithCancel(s.base)
	l.cancel = cancel
	s.workers.wg.Go(func() { p.listen(ctx) })
}

// listens reports whether there is reason to. s.mu must be held.
func (p *presence) listens() bool {
	if p.watch.ready {
		return false
	}
	for _, h := range p.s.holds {
		if h.p == p && (h.state == held || h.state == told) {
			return true
		}
	}
	return false
}

// tickListener is called with every heartbeat: it ends a listener that nobody needed for
// a TTL, and starts one where a watch has ended meanwhile. s.mu must be held.
func (p *presence) tickListener() {
	l := &p.listener
	switch {
	case p.listens():
		l.idle = stampNow()
		p.listenLater()
	case l.cancel != nil && l.idle.elapsed() > p.s.opt.TTL:
		p.stopListening()
	}
}

// stopListening ends the listener. s.mu must be held.
func (p *presence) stopListening() {
	l := &p.listener
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
}

// listen listens until ctx ends, anew after a break. Whenever it is called it has a
// heartbeat sent, whose answer tells what is wanted: so a call may be lost, late or
// repeated, and be for nothing.
func (p *presence) listen(ctx context.Context) {
	s := p.s
	err := s.reopen(ctx, "Listen", func() error {
		return s.store.Listen(ctx, p.id, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if ctx.Err() == nil {
				p.inquire()
			}
		})
	})
	if err != nil {
		s.mu.Lock()
		p.listener.unsupported = true
		p.stopListening()
		s.mu.Unlock()
		s.info("dsync: the store can't notify; who breaks a lock of this session waits for its next heartbeat", "why", err)
	}
}

// notify has the listener of another session called, in the background: what it is to
// hear of stands in the store already, and is found with its next heartbeat at the latest.
func (s *Session) notify(session string) {
	call(s, "Notify", func(ctx context.Context) (struct{}, error) {
		err := s.store.Notify(ctx, session)
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrRefused) {
			err = nil // the listener's side says so
		}
		return struct{}{}, err
	})
}
