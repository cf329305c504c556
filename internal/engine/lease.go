package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/rs/xid"
)

// A sessionLease is the session under one id, from the acknowledged registration until the
// session is lost or closed. It owns the heartbeat, the deadline and the listener.
type sessionLease struct {
	s    *Session
	id   string
	over chan struct{} // closed when the lease is lost or ended
	quit chan struct{} // closed by Close: no more heartbeats
	done chan struct{} // closed when the keeper has returned

	// Guarded by s.mu:
	cause        error   // why the lease is over; nil while it is not
	sent         instant // before the send of the last acknowledged heartbeat; the lease counts from it
	claims       uint64
	clock        time.Time // the store's clock, from the last reply that had it
	clockAt      instant   // when that reply arrived
	lastSent     instant   // before the send of the last acknowledged heartbeat, for ClockJump
	lastClock    time.Time
	lastAnswered instant
	heartbeatDue chan struct{}              // capacity 1: asks for a heartbeat now
	acknowledged chan struct{}              // closed and replaced at every acknowledged heartbeat
	revoked      map[driver.Revocation]bool // revocations that are recorded in the store

	recent   recentClaims
	discards []discard // those that come first first
	listener listener

	announced  int64 // the value of observed.change that the store last received
	announcing bool  // a goroutine is sending it, or has given up for good
}

// A registration is one attempt to register. Each has an id of its own: an attempt that was not
// answered may have registered its id, so that id is never used again.
type registration struct {
	done chan struct{}
	err  error
}

// registered returns the session's lease. If there is none it registers the session. The error
// is ctx's, ErrClosed, or the store's.
func (s *Session) registered(ctx context.Context) (*sessionLease, error) {
	for {
		s.mu.Lock()
		if s.ends() {
			s.mu.Unlock()
			return nil, ErrClosed
		}
		if sl := s.lease; sl != nil {
			if !sl.expired() {
				s.mu.Unlock()
				return sl, nil
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

// sessionID returns an id that no session has had. An xid alone is not enough: for two containers
// with process id 1 and the same machine id, only its 24-bit counter differs. So 65 random bits
// from crypto/rand follow it.
func sessionID() string { return xid.New().String() + "-" + rand.Text()[:13] }

func (s *Session) register(r *registration) {
	m := driver.Member{
		ID: sessionID(), TTL: s.opt.TTL,
		Name: s.opt.Name, Host: s.opt.Host, PID: os.Getpid(), App: s.opt.App, Meta: s.opt.Meta,
	}
	if s.opt.Anonymous {
		m.PID = 0
	}
	sl := &sessionLease{
		s: s, id: m.ID, sent: instantNow(),
		over: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{}),
		heartbeatDue: make(chan struct{}, 1), acknowledged: make(chan struct{}),
	}
	a := attempt(s, "Register", func(ctx context.Context) (time.Time, error) { return s.store.Register(ctx, m) })

	s.mu.Lock()
	s.registering = nil
	r.err = a.err
	if a.err == nil {
		s.lease = sl
		sl.lastSent, sl.lastClock, sl.lastAnswered = sl.sent, a.v, instantNow()
		sl.sawClock(a.v)
		if s.opt.AlwaysListen {
			sl.startListening(0)
		}
		s.workers.wg.Go(sl.keep)
		s.info("dsync: session started", "session", sl.id, "ttl", s.opt.TTL)
		s.each(func(h *Hooks) {
			if h.SessionStarted != nil {
				s.report(func() { h.SessionStarted(sl.id) })
			}
		})
	}
	close(r.done)
	s.mu.Unlock()
}

// duration returns how long the lease lasts by the local clock, counted from the send of a
// heartbeat.
func (sl *sessionLease) duration() time.Duration {
	return holdTime(sl.s.opt.TTL, sl.s.opt.Margin, sl.s.opt.Grace)
}

// left returns the time that is left of the lease. s.mu must be held.
func (sl *sessionLease) left() time.Duration { return sl.leftAt(time.Now()) }

// leftAt is left for a caller that has just read the clock.
func (sl *sessionLease) leftAt(now time.Time) time.Duration {
	if sl.cause != nil {
		return 0
	}
	return sl.duration() - sl.sent.until(now)
}

// sawClock records the store's clock from a reply that has just arrived. s.mu must be held.
func (sl *sessionLease) sawClock(now time.Time) { sl.clock, sl.clockAt = now, instantNow() }

// storeClock returns a time that the store's clock has surely reached: its time in the last reply
// plus the time since that reply arrived. s.mu must be held.
func (sl *sessionLease) storeClock() time.Time { return sl.clock.Add(sl.clockAt.elapsed()) }

// claimID returns a new claim id. s.mu must be held.
func (sl *sessionLease) claimID() string {
	sl.claims++
	return sl.id + "." + strconv.FormatUint(sl.claims, 10)
}

// heartbeatSoon makes the session send a heartbeat now, and returns a channel that is closed when
// a heartbeat is acknowledged.
func (sl *sessionLease) heartbeatSoon() <-chan struct{} {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	sl.heartbeatNow()
	return sl.acknowledged
}

// why returns why the session lease is over, or nil.
func (sl *sessionLease) why() error {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	return sl.cause
}

// expired ends the session lease if its time is over by the local clock. It reports whether the
// lease is over. s.mu must be held.
func (sl *sessionLease) expired() bool { return sl.expiredAt(time.Now()) }

// expiredAt is expired for a caller that has just read the clock.
func (sl *sessionLease) expiredAt(now time.Time) bool {
	if sl.leftAt(now) > 0 {
		return false
	}
	sl.lose(fmt.Errorf("no heartbeat was acknowledged within %v", sl.duration()))
	return true
}

// lose ends the session lease. Everything that lives with it is lost, and its waiters request
// again under the next lease. A lost session is not unregistered, because its holders' grace is
// running. Nothing is sent under its id again, except for fixed leases. s.mu must be held.
func (sl *sessionLease) lose(cause error) {
	s := sl.s
	if sl.cause != nil {
		return
	}
	sl.cause = cause
	if s.lease == sl {
		s.lease, s.renewed = nil, sl.sent
	}
	lost := 0
	for id, c := range s.claims {
		if c.lease != sl || c.outlives() {
			continue
		}
		if c.live() {
			lost++
		}
		c.lose(cause)
		delete(s.claims, id)
	}
	sl.listener.stop()
	close(sl.over)
	if errors.Is(cause, ErrClosed) {
		s.info("dsync: session closed", "session", sl.id)
		return
	}
	s.Warn("dsync: session lost", "session", sl.id, "holds", lost, "cause", cause)
	s.each(func(h *Hooks) {
		if h.SessionLost != nil {
			s.report(func() { h.SessionLost(sl.id, cause) })
		}
	})
}

// keep is the keeper. It sends heartbeats one at a time, and a timer ends the session lease when
// its time is over, even if a heartbeat hangs. Until Close, keep blocks only in its select.
func (sl *sessionLease) keep() {
	defer close(sl.done)
	s := sl.s
	s.mu.Lock()
	left := sl.left()
	s.mu.Unlock()
	heartbeat, deadline := time.NewTimer(sl.period()), time.NewTimer(left)
	sweeper := sweeper{session: sl.id, retention: s.opt.Retention}
	sweep := time.NewTimer(sweeper.first())
	defer heartbeat.Stop()
	defer deadline.Stop()
	defer sweep.Stop()
	if s.opt.Retention < 0 {
		sweep.Stop()
	}
	retry := s.backoff()
	var (
		sent    instant                              // before the send of the heartbeat under way
		removes []driver.Revocation                  // what that heartbeat removes from the store
		reply   <-chan answer[driver.HeartbeatReply] // to that heartbeat; nil: none is under way
		swept   <-chan answer[driver.SweepState]
		began   instant // before the send of the Sweep under way
		again   bool    // another heartbeat is due at once when this one is answered
	)
	for {
		select {
		case <-heartbeat.C:
			// If the process was frozen past the deadline, this timer may fire first.
			s.mu.Lock()
			over := sl.expired()
			removes = sl.revocationsDone()
			s.mu.Unlock()
			if over {
				return
			}
			sent = instantNow()
			reply = background(s, attempt, "Heartbeat", func(ctx context.Context) (driver.HeartbeatReply, error) {
				return s.store.Heartbeat(ctx, sl.id, removes)
			})

		case a := <-reply:
			reply = nil
			if errors.Is(a.err, driver.ErrSessionExpired) {
				s.mu.Lock()
				sl.lose(a.err)
				s.mu.Unlock()
				return
			}
			left := sl.heartbeatAnswered(sent, removes, a)
			if a.err != nil {
				heartbeat.Reset(retry.next())
			} else {
				retry.reset()
				heartbeat.Reset(max(0, sl.period()-sent.elapsed()))
				deadline.Reset(left)
				if again {
					again = false
					heartbeat.Reset(0)
				}
			}

		case <-sl.heartbeatDue:
			if again = reply != nil; !again {
				heartbeat.Reset(0)
			}

		case <-deadline.C:
			s.mu.Lock()
			over, left := sl.expired(), sl.left()
			s.mu.Unlock()
			if over {
				return
			}
			deadline.Reset(left)

		case <-sweep.C:
			began = instantNow()
			last := sweeper.last
			swept = background(s, command, "Sweep", func(ctx context.Context) (driver.SweepState, error) {
				return s.store.Sweep(ctx, sl.id, last, s.opt.Retention)
			})

		case a := <-swept:
			swept = nil
			sweep.Reset(sweeper.next(a, began.elapsed()))

		case <-sl.over:
			return

		case <-sl.quit:
			// Otherwise the heartbeat under way could arrive after Unregister.
			if reply != nil {
				<-reply
			}
			return
		}
	}
}

func (sl *sessionLease) period() time.Duration { return jitter(sl.s.opt.HeartbeatInterval, 0.1) }

// heartbeatAnswered records the answer to the heartbeat that was sent at sent and removed the
// revocations in removed. It returns what is left of the lease.
func (sl *sessionLease) heartbeatAnswered(sent instant, removed []driver.Revocation, a answer[driver.HeartbeatReply]) time.Duration {
	s := sl.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var jump time.Duration
	if a.err == nil && sl.left() > 0 {
		jump = sl.jump(sent, a.v.Now)
		sl.sent = sent
		sl.sawClock(a.v.Now)
		sl.lastSent, sl.lastClock, sl.lastAnswered = sent, a.v.Now, instantNow()
		close(sl.acknowledged)
		sl.acknowledged = make(chan struct{})
		sl.recent.tick()
		sl.tickListener()
		for _, r := range removed {
			delete(sl.revoked, r)
		}
		for _, r := range a.v.Revoked {
			sl.revoke(r)
		}
		s.others.forget(s.opt.TTL)
	}
	left := sl.left()
	took := sent.elapsed()
	s.each(func(h *Hooks) {
		if h.Heartbeat != nil {
			s.hooks.AddLatest(h, func() { h.Heartbeat(took, left, a.err) })
		}
	})
	if jump != 0 {
		s.Warn("dsync: the store's clock jumped by more than the margin", "by", jump, "margin", s.opt.Margin)
		s.each(func(h *Hooks) {
			if h.ClockJump != nil {
				s.report(func() { h.ClockJump(jump) })
			}
		})
	}
	return left
}

// jump returns by how much the store's clock jumped ahead or back between the last heartbeat and
// the one that was sent at sent, whose reply says now. It returns 0 unless the jump is certainly
// more than the margin. The store read its clock at some moment between a send and its answer,
// so the true interval between the two readings lies between lo and hi. s.mu must be held.
func (sl *sessionLease) jump(sent instant, now time.Time) time.Duration {
	const truncation = time.Millisecond
	d := now.Sub(sl.lastClock)
	lo := sl.lastAnswered.elapsed() - sent.elapsed() - truncation
	hi := sl.lastSent.elapsed() + truncation
	switch {
	case d > hi+sl.s.opt.Margin:
		return d - hi
	case d < lo-sl.s.opt.Margin:
		return d - lo
	}
	return 0
}

// An instant is a moment on a suspend-aware local clock. The time since an instant includes the
// time that the machine slept. Go's monotonic clock stops in suspend, but leases run on.
type instant struct {
	t     time.Time
	slept sleepMark
}

func instantNow() instant { return instant{t: time.Now(), slept: markSleep()} }

// elapsed returns the time since s.
func (s instant) elapsed() time.Duration { return s.until(time.Now()) }

// until returns the time from s to now, which the caller has just read. Finding out how long the
// machine slept takes system calls. So until does that only if the wall clock and the monotonic
// clock have moved differently since s. A difference below slewed is ignored: slewing of the wall
// clock can cause as much within a heartbeat interval, and the margin covers it.
func (s instant) until(now time.Time) time.Duration {
	const slewed = 10 * time.Millisecond
	d := now.Sub(s.t)
	if apart := now.Round(0).Sub(s.t.Round(0)) - d; -slewed < apart && apart < slewed {
		return d
	}
	return d + max(0, s.slept.since(s.t, now))
}
