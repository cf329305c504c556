package program

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A call is one checked call of dsync.
type call struct {
	r     *runner
	who   string
	life  *life
	key   string // "" if the call is about no key
	began time.Time
	ctx   context.Context // nil: the call has none
	ends  time.Time       // when ctx ends
	most  time.Duration   // how long the call may take; 0: until ctx ends
	shaky bool            // the link was cut or noisy when the call began, or less than a TTL before
}

// allowed is a set of errors that a call may return. Some other errors are always allowed: see call.returned.
type allowed int

const (
	held  allowed = 1 << iota // ErrHeld
	lost                      // ErrLost
	store                     // errors of an unreachable store
)

// call begins a call. r.mu must be held.
func (r *runner) call(who string, l *life, key string) *call {
	s := l.slot
	if l.first.IsZero() {
		l.first = time.Now()
	}
	return &call{
		r: r, who: who, life: l, key: key, began: time.Now(),
		// A command that was sent before the link was healed may never be answered.
		shaky: s.cut || !s.healed.IsZero() && time.Since(s.healed) < r.ttl,
	}
}

// context sets a context that ends after d, either by its deadline or by cancellation.
func (c *call) context(d time.Duration, deadline bool) (cancel func()) {
	c.ends = c.began.Add(d)
	if deadline {
		ctx, cancel := context.WithDeadline(context.Background(), c.ends)
		c.ctx = ctx
		return cancel
	}
	ctx, stop := context.WithCancelCause(context.Background())
	c.ctx = ctx
	if d == 0 {
		stop(errEnough)
		return func() {}
	}
	t := time.AfterFunc(d, func() { stop(errEnough) })
	return func() { t.Stop(); stop(nil) }
}

// errEnough is the cause of contexts that the program cancels.
var errEnough = errors.New("program: waited enough")

// returned checks the result of the call.
func (c *call) returned(err error, allow allowed) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	took := now.Sub(c.began)
	r.note(c.who, "… after %v: %v", took, err)
	until := c.ends
	if c.most > 0 {
		until = c.began.Add(c.most)
	}
	if !until.IsZero() && now.After(until.Add(r.slack)) {
		r.fail("%s: a call returned %v after it began, later than the %v allowed", c.who, took, until.Sub(c.began))
	}
	if err == nil {
		return
	}
	switch {
	case errors.Is(err, dsync.ErrClosed) && c.life.closing:
	case errors.Is(err, dsync.ErrHeld):
		if allow&held == 0 {
			r.fail("%s: ErrHeld from a call that is not a try: %v", c.who, err)
		}
	case errors.Is(err, dsync.ErrLost) && allow&lost != 0:
	case errors.Is(err, driver.ErrMismatch) && (c.key == r.w.Prefix+mixed || r.resized(c.key)):
	case c.ctx != nil && c.ctx.Err() != nil && errors.Is(err, c.ctx.Err()):
		if cause := context.Cause(c.ctx); !errors.Is(err, cause) && allow&(store|lost) == 0 {
			r.fail("%s: the error does not match the context's cause %q: %v", c.who, cause, err)
		}
	case allow&store != 0 && (c.shaky || c.life.slot.cut || !c.life.slot.healed.Before(c.began) || !r.bubble):
	case strings.Contains(err.Error(), "it must be from 1 to its size") && r.resized(c.key):
	default:
		r.fail("%s: the documentation does not allow this error: %v", c.who, err)
	}
}

// resized reports whether key is a semaphore that may have another size than the caller assumes.
func (r *runner) resized(key string) bool {
	return strings.HasPrefix(strings.TrimPrefix(key, r.w.Prefix), "sem") && r.p.has(Resize)
}

// waits records that a call waits for its key. When the call has returned, the caller of waits must call the function
// over with the call's error. That function checks that the call did not wait for a key that was free.
func (c *call) waits() (over func(err error)) {
	r := c.r
	r.mu.Lock()
	r.page(c.key).waits++
	r.mu.Unlock()
	return func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		p := r.page(c.key)
		p.waits--
		p.unused = time.Now()
		if ctx := c.ctx.Err(); err == nil || ctx != nil && errors.Is(err, ctx) {
			c.prompt(p)
		}
		if took := time.Since(c.began); err != nil && c.ctx.Err() != nil && took >= r.tempo.idle {
			if free := r.idle(c.key, false); free >= r.tempo.idle {
				r.fail("%s waited %v for %s, which has been free for %v", c.who, took, c.key, free)
			}
		}
	}
}

// prompt checks that a call waited at most a second for a key that was free. It checks nothing unless the program is
// calm, every session is notified of every change, and nothing can have kept the key. r.mu must be held.
func (c *call) prompt(p *page) {
	r := c.r
	if !r.bubble || !r.p.Calm || r.p.polling() || p.late || len(p.rules.Breaks) > 0 || len(p.holds) > 0 {
		return
	}
	if free := time.Since(later(p.held, c.began)); free > time.Second {
		r.fail("%s waited %v for %s, which was free", c.who, free, c.key)
	}
}

// tried checks that a failed try had a reason.
func (c *call) tried(err error) {
	if !errors.Is(err, dsync.ErrHeld) {
		return
	}
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if free := r.idle(c.key, true); free >= r.tempo.idle {
		r.fail("%s: %s has been free for %v: %v", c.who, c.key, free, err)
	}
}
