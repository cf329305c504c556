package model

import (
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// extend sets the end of a hold to a later time.
func (w *edit) extend(x driver.Extend) error {
	c := x.Claim
	i := w.holder(c.ID)
	if i < 0 || w.Holders[i].Token != c.Token || w.Holders[i].Ended(w.now) || c.Lease <= 0 {
		return notHeld(c)
	}
	if x.Seq > w.Holders[i].Extended {
		w.change(i, func(h *Holder) {
			if end := w.now.Add(ceilMilli(c.Lease)); end.After(h.Until) {
				h.Until = end
			}
			h.Extended = x.Seq
		})
		w.changed = true
	}
	w.extends = w.Holders[i].Holder
	return nil
}

// publish stores the value of a claim that holds the key.
func (w *edit) publish(p driver.Publish) error {
	i := w.holder(p.Claim.ID)
	if i < 0 || w.Holders[i].Ended(w.now) {
		return notHeld(p.Claim)
	}
	if p.Seq > w.Holders[i].Seq {
		w.change(i, func(h *Holder) { h.Value, h.Seq = append([]byte{}, p.Value...), p.Seq })
		w.changed = true
	}
	return nil
}

// resize sets the limit.
func (w *edit) resize(z driver.Resize) error {
	if z.Kind != w.Kind && (w.InUse() || w.Sealed > 0) {
		return w.mismatch(z.Key, z.Kind, z.Limit)
	}
	for _, o := range w.Queue {
		if o.Weight > z.Limit {
			return fmt.Errorf("%w: claim %s waits for %d of key %q, which is more than limit %d", driver.ErrRefused, o.Claim, o.Weight, z.Key, z.Limit)
		}
	}
	former := w.formerWith(z.Kind, z.From, z.Limit)
	w.changed = z.Kind != w.Kind || z.Limit != w.Limit || !slices.Equal(former, w.Former)
	w.Kind, w.Limit, w.Former = z.Kind, z.Limit, former
	w.settle()
	return nil
}

// formerWith returns the key's former limits as they will be after a Resize to kind and limit, the latest last. If the
// Resize changes the key's kind, the former limits of the old kind are dropped.
func (w *edit) formerWith(kind driver.Kind, from, limit int64) []int64 {
	var former []int64
	if kind == w.Kind {
		former = without(w.Former, func(n int64) bool { return n == limit })
	}
	know := func(n int64) {
		if n > 0 && n != limit && !slices.Contains(former, n) {
			former = append(slices.Clip(former), n)
		}
	}
	if kind != w.Kind || from != w.Limit {
		know(from)
	}
	if kind == w.Kind {
		know(w.Limit)
	}
	return former[max(0, len(former)-maxFormer):]
}

// forget removes ended holds. If the key is then unused and its token is f.Token, forget also removes everything else
// except the kind, the limit and the token.
func (w *edit) forget(f driver.Forget) {
	holders := without(w.Holders, func(h Holder) bool { return h.Ended(w.now) })
	w.changed = len(holders) != len(w.Holders)
	w.Holders = holders
	if w.found = !w.InUse() && w.Token == f.Token; w.found {
		w.changed = w.changed || w.Sealed > 0 || w.Term > 0 || len(w.Former) > 0
		w.Sealed, w.Result, w.Term, w.Former = 0, nil, 0, nil
	}
	if w.changed {
		w.settle()
	}
}

func notHeld(c driver.Claim) error {
	return fmt.Errorf("%w: claim %s of key %q", driver.ErrNotHeld, c.ID, c.Key)
}
