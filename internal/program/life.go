package program

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/trace"
)

// A slot is one of the program's sessions, which may be closed and opened again.
type slot struct {
	number int
	life   *life
	cut    bool // the link is cut or noisy, or leads to a former primary
	healed time.Time
}

// A life is one session of dsync. The runner's mu guards first, closing and shaken.
type life struct {
	*dsync.Session
	slot    *slot
	name    string // unique among sessions
	set     Setting
	first   time.Time // when the session was first used
	closing bool      // Close was called

	trace     bytes.Buffer // the session's trace, which ends when the session is closed
	stopTrace func()       // nil: the session is not traced
	shaken    bool         // the link was cut or noisy at some time or, on a server, the session was lost
	closed    chan struct{}
}

func (l *life) engine() *engine.Session { return engine.Of(l.Session) }

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
			l.shaken = true // the reason may be a slow server
		} else if !l.shaken {
			r.fail("s%d was lost for no reason: %v", i, cause)
		}
	}}
	l.Session = r.w.Open(i, set, opt)
	// Tests run thousands of programs; tracing every session would take most of their time.
	if !r.bubble || (r.p.hash()+uint64(i))%8 == 0 {
		l.stopTrace = engine.Of(l.Session).Record(&l.trace)
	}
	l.shaken = s.cut
	return l
}

// disturb cuts the link of a slot, makes it noisy, lets it stay at the former primary (with FailOver), or heals it.
func (r *runner) disturb(s *slot, v Verb) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.cut == (v != Heal) {
		return
	}
	s.cut = v != Heal
	r.fault = time.Now()
	r.w.links[s.number].set(v)
	if v == Heal {
		r.cuts--
		s.healed = time.Now()
		return
	}
	r.cuts++
	s.life.shaken = true
}

// replay delivers once more all requests that a slot has sent. A copy of a request may join the queue again,
// and the session must then release that claim without being asked.
func (r *runner) replay(s *slot) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond) // a former primary may not answer
	defer cancel()
	_ = r.w.links[s.number].Replay(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = time.Now()
}

// step makes the store's clock differ from the true time by d.
func (r *runner) step(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w.server.Skew(d - r.skew)
	r.skew = d
	r.fault = time.Now()
}

// failOver makes the store fail over, which may undo early releases.
func (r *runner) failOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w.server.failOver()
	r.fault = time.Now()
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
	// Close waits for holders, and then makes one attempt at each command that it still has to send.
	c.ctx, c.most = ctx, min(patience, r.grace())+r.ttl
	err := l.Session.Close(ctx)
	c.returned(err, store)
	close(l.closed)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = time.Now()
	if l.stopTrace != nil {
		l.stopTrace()
		if _, err := trace.Replay(&l.trace); err != nil {
			r.fail("%s: the session's trace: %v", who, err)
		}
	}
}
