package dsync

import (
	"context"
	"errors"
	"time"
)

// keep is the keeper: it sends heartbeats one at a time and ends the presence
// when its time is over, by a timer, whether or not a heartbeat hangs. It never
// blocks on anything but its select.
func (p *presence) keep() {
	defer close(p.done)
	s := p.s
	s.mu.Lock()
	left := p.left()
	s.mu.Unlock()
	beat, deadline := time.NewTimer(p.period()), time.NewTimer(left)
	sweeper := sweeper{session: p.id, retention: s.opt.Retention}
	sweep := time.NewTimer(sweeper.first())
	defer beat.Stop()
	defer deadline.Stop()
	defer sweep.Stop()
	if s.opt.Retention < 0 {
		sweep.Stop()
	}
	retry := s.backoff()
	var (
		sent  stamp // of the heartbeat under way
		given []Revocation
		beats <-chan answer[Pulse]
		swept <-chan answer[SweepState]
		began stamp // before the send of the Sweep under way
		again bool  // there is reason for another heartbeat since the one under way was sent
	)
	for {
		select {
		case <-beat.C:
			// Frozen past the deadline, this timer may come before that one.
			s.mu.Lock()
			over := p.expired()
			given = p.given()
			s.mu.Unlock()
			if over {
				return
			}
			sent = stampNow()
			beats = send(s, "Heartbeat", func() {}, func(ctx context.Context) (Pulse, error) {
				return s.store.Heartbeat(ctx, p.id, given)
			})

		case a := <-beats:
			beats = nil
			if errors.Is(a.err, ErrSessionDead) {
				s.mu.Lock()
				p.lose(a.err)
				s.mu.Unlock()
				return
			}
			left := p.beaten(sent, given, a)
			if a.err != nil {
				beat.Reset(retry.next())
			} else {
				retry.reset()
				beat.Reset(max(0, p.period()-sent.elapsed()))
				deadline.Reset(left)
				if again {
					again = false
					beat.Reset(0)
				}
			}

		case <-p.hurry:
			if again = beats != nil; !again {
				beat.Reset(0)
			}

		case <-deadline.C:
			s.mu.Lock()
			over, left := p.expired(), p.left()
			s.mu.Unlock()
			if over {
				return
			}
			deadline.Reset(left)

		case <-sweep.C:
			began = stampNow()
			last := sweeper.last
			swept = call(s, "Sweep", func(ctx context.Context) (SweepState, error) {
				return s.store.Sweep(ctx, p.id, last, s.opt.Retention)
			})

		case a := <-swept:
			swept = nil
			sweep.Reset(sweeper.next(a, began.elapsed()))

		case <-p.over:
			return

		case <-p.quit:
			// A heartbeat under way would be one that arrives after Unregister.
			if beats != nil {
				<-beats
			}
			return
		}
	}
}

func (p *presence) period() time.Duration { return jitter(p.s.opt.Heartbeat, 0.1) }

// beaten takes in the answer of the heartbeat that was sent at sent and took the
// revocations in given off, and returns what is left of the lease.
func (p *presence) beaten(sent stamp, given []Revocation, a answer[Pulse]) time.Duration {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var jump time.Duration
	if a.err == nil && p.left() > 0 {
		jump = p.jump(sent, a.v.Now)
		p.sent = sent
		p.saw(a.v.Now)
		p.beatAt, p.beatNow, p.beatEnd = sent, a.v.Now, stampNow()
		close(p.beat)
		p.beat = make(chan struct{})
		p.watch.tick(s)
		p.tickListener()
		for _, r := range given {
			delete(p.revoked, r)
		}
		for _, r := range a.v.Revoked {
			p.revoke(r)
		}
		s.peers.forget(s.opt.TTL)
		p.forgetKept()
	}
	left := p.left()
	took := sent.elapsed()
	s.each(func(h *Hooks) {
		if h.Heartbeat != nil {
			s.hooks.AddLatest(func() { h.Heartbeat(took, left, a.err) })
		}
	})
	if jump != 0 {
		s.warn("dsync: the store's clock jumped by more than the margin", "by", jump, "margin", s.opt.Margin)
		s.each(func(h *Hooks) {
			if h.ClockJump != nil {
				s.report(func() { h.ClockJump(jump) })
			}
		})
	}
	return left
}

// jump returns by how much the store's clock went ahead or back between the last
// heartbeat and the one that was sent at sent and tells now, if that is certainly
// more than the margin, else 0. The store read its clock at some moment between
// the send and the answer, so the true interval lies between lo and hi. s.mu
// must be held.
func (p *presence) jump(sent stamp, now time.Time) time.Duration {
	const truncation = time.Millisecond
	d := now.Sub(p.beatNow)
	lo := p.beatEnd.elapsed() - sent.elapsed() - truncation
	hi := p.beatAt.elapsed() + truncation
	switch {
	case d > hi+p.s.opt.Margin:
		return d - hi
	case d < lo-p.s.opt.Margin:
		return d - lo
	}
	return 0
}
