package dsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/rs/xid"
)

// A presence is the session under one id: from the registration that the store
// acknowledged until the loss, or the end of the session. It owns the
// heartbeat, the deadline and the watch.
type presence struct {
	s    *Session
	id   string
	over chan struct{} // closed when it is lost or ended
	quit chan struct{} // closed by Close: no more heartbeats
	done chan struct{} // closed when the keeper has returned

	// Guarded by s.mu:
	cause   error // why it is over; nil while it is not
	sent    stamp // before the send of the heartbeat that the lease counts from
	claims  uint64
	now     time.Time // the store's clock in the last answer that told it
	nowAt   stamp     // when that answer arrived
	beatAt  stamp     // before the send of the last heartbeat that was answered, for ClockJump
	beatNow time.Time
	beatEnd stamp
	hurry   chan struct{}       // room for one: the next heartbeat is due now
	beat    chan struct{}       // closed and replaced with every heartbeat that was acknowledged
	revoked map[Revocation]bool // revocations that stand in the store
	kept    map[string]keeping  // claims that were left in the store with an end, by id
	watch   watch

	listener listener

	announced  int64 // the change of the session's observed that the store was told last
	announcing bool  // somebody tells it, or gave up for good
}

// A registration is one attempt to register, under an id of its own: one that
// was not answered may stand in the store, so its id is never used again.
type registration struct {
	done chan struct{}
	err  error
}

// present returns the session's presence; without one it registers. An error is
// ctx's, ErrClosed, or the store's.
func (s *Session) present(ctx context.Context) (*presence, error) {
	for {
		s.mu.Lock()
		if s.ends() {
			s.mu.Unlock()
			return nil, ErrClosed
		}
		if p := s.presence; p != nil {
			if !p.expired() {
				s.mu.Unlock()
				return p, nil
			}
		}
		r := s.registering
		if r == nil {
			r = &registration{done: make(chan struct{})}
			s.registering = r
			s.workers.wg.Go(func() { s.register(r) })
		}
		s.mu.Unlock()

		select {
		case <-r.done:
			if r.err != nil {
				return nil, r.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing:
			return nil, ErrClosed
		}
	}
}

// sessionID returns an id that no session has had. An xid alone is not enough: what
// tells two containers with process 1 and the same machine id apart in it is a counter
// of 24 bits. The 65 random bits behind it are from crypto/rand.
func sessionID() string { return xid.New().String() + "-" + rand.Text()[:13] }

func (s *Session) register(r *registration) {
	m := Member{
		ID: sessionID(), TTL: s.opt.TTL,
		Name: s.opt.Name, Host: s.opt.Host, PID: os.Getpid(), App: s.opt.App, Meta: s.opt.Meta,
	}
	if s.opt.Anonymous {
		m.PID = 0
	}
	p := &presence{
		s: s, id: m.ID, sent: stampNow(),
		over: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{}),
		hurry: make(chan struct{}, 1), beat: make(chan struct{}),
	}
	a := attempt(s, "Register", func(ctx context.Context) (time.Time, error) { return s.store.Register(ctx, m) })

	s.mu.Lock()
	s.registering = nil
	r.err = a.err
	if a.err == nil {
		s.presence = p
		p.beatAt, p.beatNow, p.beatEnd = p.sent, a.v, stampNow()
		p.saw(a.v)
		if s.opt.Watch {
			p.startWatch(0)
		}
		s.workers.wg.Go(p.keep)
		s.info("dsync: session started", "session", p.id, "ttl", s.opt.TTL)
		s.each(func(h *Hooks) {
			if h.SessionStarted != nil {
				s.report(func() { h.SessionStarted(p.id) })
			}
		})
	}
	close(r.done)
	s.mu.Unlock()
}

// lease is how long after the send of a heartbeat the local clock believes in it.
func (p *presence) lease() time.Duration {
	return holdTime(p.s.opt.TTL, p.s.opt.Margin, p.s.opt.Grace)
}

// left returns what is left of the lease. s.mu must be held.
func (p *presence) left() time.Duration { return p.leftAt(time.Now()) }

// leftAt is left for a clock that was read a moment ago.
func (p *presence) leftAt(now time.Time) time.Duration {
	if p.cause != nil {
		return 0
	}
	return p.lease() - p.sent.until(now)
}

// saw notes the store's clock as of an answer that has just arrived. s.mu must
// be held.
func (p *presence) saw(now time.Time) { p.now, p.nowAt = now, stampNow() }

// reached returns a time that the store's clock has surely reached: the last it
// told and the time since that answer arrived. s.mu must be held.
func (p *presence) reached() time.Time { return p.now.Add(p.nowAt.elapsed()) }

// claimID returns an id that was never used. s.mu must be held.
func (p *presence) claimID() string {
	p.claims++
	return p.id + "." + strconv.FormatUint(p.claims, 10)
}

// beatSoon has a heartbeat sent now, and returns a channel that is closed when one is
// acknowledged.
func (p *presence) beatSoon() <-chan struct{} {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.inquire()
	return p.beat
}

// why returns why the presence is over, or nil.
func (p *presence) why() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.cause
}

// expired ends the presence if its time is over by the local clock, and reports
// whether it is over. s.mu must be held.
func (p *presence) expired() bool { return p.expiredAt(time.Now()) }

// expiredAt is expired for a clock that was read a moment ago.
func (p *presence) expiredAt(now time.Time) bool {
	if p.leftAt(now) > 0 {
		return false
	}
	p.lose(fmt.Errorf("no heartbeat was acknowledged within %v", p.lease()))
	return true
}

// lose ends the presence: everything held under it is lost, and everything that
// waits under it asks again under the next one. It is never unregistered by a
// loss: its holders' grace is running. Nothing is ever sent under its id again.
// s.mu must be held.
func (p *presence) lose(cause error) {
	s := p.s
	if p.cause != nil {
		return
	}
	p.cause = cause
	if s.presence == p {
		s.presence, s.renewed = nil, p.sent
	}
	lost := 0
	for id, h := range s.holds {
		// A fixed lease that was granted ends by itself.
		if h.p != p || h.leased() {
			continue
		}
		if h.state == held {
			lost++
		}
		h.lose(cause)
		delete(s.holds, id)
	}
	p.watch.stop()
	p.stopListening()
	close(p.over)
	if errors.Is(cause, ErrClosed) {
		s.info("dsync: session closed", "session", p.id)
		return
	}
	s.warn("dsync: session lost", "session", p.id, "holds", lost, "cause", cause)
	s.each(func(h *Hooks) {
		if h.SessionLost != nil {
			s.report(func() { h.SessionLost(p.id, cause) })
		}
	})
}
