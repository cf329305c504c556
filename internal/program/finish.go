package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// finish checks what must hold when all goroutines have released everything.
func (r *runner) finish() {
	const who = "end"
	r.mu.Lock()
	r.note(who, "all goroutines are done")
	r.mu.Unlock()
	for _, s := range r.slots {
		r.disturb(s, Heal)
	}
	r.clean(who)
	for _, s := range r.slots {
		for _, key := range keys() {
			r.turn(who, s.life, r.w.Prefix+key)
		}
	}
	for _, s := range r.slots {
		r.close(s.life, 0, who)
	}
	r.audit(who)
	// Break and ForceHold revoke claims, and a session discards a revoked claim that it has already released.
	if s := r.w.server; s != nil && r.p.Calm && !r.p.has(Break, ForceHold) && len(s.needless) > 0 {
		r.report("%s: no request of %v can arrive late, but the claims were discarded", who, s.needless)
	}
}

// clean waits until no living session has a claim, and no key is being kept. It records a failure if that takes longer
// than r.cleanBy.
func (r *runner) clean(who string) {
	began := time.Now()
	step := time.Second
	if !r.bubble {
		step = 200 * time.Millisecond
	}
	for {
		left := r.left()
		if left == "" {
			return
		}
		if time.Since(began) > r.cleanBy {
			r.report("%s: %v after everything was unlocked: %s", who, r.cleanBy, left)
			return
		}
		time.Sleep(step)
	}
}

// left describes a claim that a living session still has, or a key that somebody keeps. It returns "" if there is
// neither.
func (r *runner) left() string {
	alive := make(map[string]bool)
	var reader *life
	for _, s := range r.slots {
		if !s.life.closing {
			reader = s.life
			alive[s.life.ID()] = true
		}
	}
	if reader == nil {
		return ""
	}
	for _, key := range keys() {
		ctx, cancel := context.WithTimeout(context.Background(), r.ttl)
		st, err := reader.engine().Load(ctx, r.w.Prefix+key)
		cancel()
		if err != nil {
			return err.Error()
		}
		for _, h := range st.Holders {
			if h.Until.IsZero() && alive[h.Session] || st.Now.Before(h.Until) {
				return fmt.Sprintf("session %s holds %s with claim %s, token %d, until %v", h.Session, key, h.Claim, h.Token, h.Until)
			}
		}
		for _, w := range st.WaitersAhead {
			if alive[w.Session] {
				return fmt.Sprintf("session %s waits for %s with claim %s", w.Session, key, w.Claim)
			}
		}
	}
	return ""
}

// turn locks and unlocks a key that nobody else requests.
func (r *runner) turn(who string, l *life, key string) {
	if l.closing {
		return
	}
	r.mu.Lock()
	c := r.call(who, l, key)
	r.note(who, "%s by s%d", key, l.slot.number)
	r.mu.Unlock()
	cancel := c.context(r.cleanBy, true)
	defer cancel()
	err := r.lockAny(c.ctx, l, key)
	for errors.Is(err, driver.ErrMismatch) && c.ctx.Err() == nil {
		// This session has held the key as another kind, and the store may not have answered the release of
		// that hold yet.
		time.Sleep(r.ttl / 10)
		err = r.lockAny(c.ctx, l, key)
	}
	if err != nil {
		r.report("%s: s%d can't get %s, which nobody holds, within %v: %v", who, l.slot.number, key, r.cleanBy, err)
	}
}

// lockAny locks and unlocks key as the kind that it has in the store. It leaves a sealed key alone.
func (r *runner) lockAny(ctx context.Context, l *life, key string) error {
	st, err := l.engine().Load(ctx, key)
	if err != nil || st.Sealed > 0 {
		return err
	}
	release := func(release func(context.Context) error) error {
		end, cancel := context.WithTimeout(context.Background(), r.ttl)
		defer cancel()
		return release(end)
	}
	turn := func(h *dsync.Hold, err error) error {
		if err != nil {
			return err
		}
		return release(h.Release)
	}
	switch st.Kind {
	case driver.KindRWMutex:
		m := l.RWMutex(key)
		if err := turn(m.Hold(ctx)); err != nil {
			return err
		}
		return turn(m.RHold(ctx))
	case driver.KindSemaphore:
		m := l.Semaphore(key, st.Limit) // with its current size
		return turn(m.Hold(ctx, st.Limit))
	case driver.KindOnce:
		err := l.Once(key).Do(ctx, func(context.Context) error { return errRun })
		if !errors.Is(err, errRun) {
			return fmt.Errorf("calling Do with a function that fails: %w", err)
		}
		return nil
	}
	if st.Kind == driver.KindElection {
		e := newElection(l, key, 0)
		if _, err := e.Campaign(ctx); err != nil {
			return err
		}
		return release(e.Resign)
	}
	return turn(l.Mutex(key).Hold(ctx))
}

// audit opens one more session, and uses it to check that the other sessions have left nothing behind.
func (r *runner) audit(who string) {
	shaken := false
	for _, s := range r.slots {
		shaken = shaken || s.life.shaken
	}
	if r.bubble && (shaken || r.p.has(Cut, Noise)) {
		time.Sleep(2 * r.ttl) // until sessions that were cut off have lapsed
	}
	last := r.open(len(r.p.Sessions), &slot{number: len(r.p.Sessions)})
	ctx, cancel := context.WithTimeout(context.Background(), r.cleanBy)
	defer cancel()
	for _, name := range keys() {
		key := r.w.Prefix + name
		if value, done, err := last.Once(key).Value(ctx); err != nil {
			r.report("%s: value of %s: %v", who, key, err)
		} else {
			r.checkOnce(key, value, done)
			if done {
				continue
			}
		}
		if err := r.lockAny(ctx, last, key); err != nil {
			r.report("%s: %s can't be locked after all sessions were closed: %v", who, key, err)
		}
		st, err := admin.New(last.Session).Status(ctx, key)
		if err != nil {
			r.report("%s: status of %s: %v", who, key, err)
		} else if len(st.Holders) > 0 || st.Waiting > 0 {
			r.report("%s: after all sessions were closed and the audit's own hold was released:\n%v", who, st)
		}
	}
	r.close(last, 0, who)
}

func (r *runner) report(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(format, args...)
}
