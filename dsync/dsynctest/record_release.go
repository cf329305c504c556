package dsynctest

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// release is the edit of Release, with the settle after it.
func (r *record) release(claim string, o dsync.Outcome, now time.Time) (fx effect, found bool) {
	stood := len(r.line)
	i := slices.IndexFunc(r.holders, func(h dsync.Holder) bool { return h.Claim == claim })
	switch {
	case i < 0:
		found = r.leave(claim)
		fx.changed = found
	case o.Keep > 0 && !o.Seal:
		found, fx.changed = true, r.keep(&r.holders[i], now.Add(ceilMilli(o.Keep)))
	default:
		h := r.holders[i]
		r.holders = slices.Delete(r.holders, i, i+1)
		found, fx.changed = true, true
		if o.Seal && !r.sealed && !ended(h, now) {
			fx.woken = r.seal(h, o.Result)
		}
	}
	if !fx.changed {
		return effect{}, found
	}
	r.used = now
	fx.granted = r.settle(now)
	if i >= 0 && o.Keep > 0 && !o.Seal && len(r.line) > 0 {
		fx.woken = []dsync.Waiter{r.line[0].Waiter}
	}
	fx.yielding = r.yielding(stood, fx.granted)
	return fx, found
}

// keep gives a hold an end and reports whether it had none, or a later one. Its
// session stays, to show whose it was.
func (r *record) keep(h *dsync.Holder, end time.Time) bool {
	if !h.Until.IsZero() && !end.Before(h.Until) {
		return false
	}
	h.Until = end
	return true
}

// seal seals the key with the result of h, and returns those in line who are
// told.
func (r *record) seal(h dsync.Holder, result []byte) (woken []dsync.Waiter) {
	for _, w := range r.line[:min(len(r.line), maxWoken)] {
		woken = append(woken, w.Waiter)
	}
	r.line = nil
	clear(r.inLine)
	r.sealed, r.result, r.token = true, slices.Clone(result), h.Token
	return woken
}

// publish stores the value of a claim and reports whether the claim holds.
func (r *record) publish(claim string, seq int64, value []byte, now time.Time) (held, changed bool) {
	for _, h := range r.holders {
		if h.Claim != claim || ended(h, now) {
			continue
		}
		if r.publisher == h.Token && seq <= r.published {
			return true, false
		}
		// Not nil, also if it is empty: that says that nothing was published.
		r.value, r.publisher, r.published, r.used = append([]byte{}, value...), h.Token, seq, now
		return true, true
	}
	return false, false
}
