package dsynctest

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// resize is the edit of Resize, with the settle after it. On an error it has
// changed nothing.
func (r *record) resize(key string, kind dsync.Kind, from, limit int64, now time.Time) (fx effect, err error) {
	if kind != r.kind && (len(r.holders)+len(r.line) > 0 || r.sealed) {
		return effect{}, r.mismatch(key, kind, limit)
	}
	for _, w := range r.line {
		if w.Weight > limit {
			return effect{}, fmt.Errorf("dsynctest: %w: claim %s waits for %d of key %q, which is more than limit %d",
				dsync.ErrRefused, w.Claim, w.Weight, key, limit)
		}
	}
	former := r.formerWith(kind, from, limit)
	if kind == r.kind && limit == r.limit && slices.Equal(former, r.former) {
		return effect{}, nil
	}
	stood := len(r.line)
	r.kind, r.limit, r.former, r.used = kind, limit, former, now
	fx.changed = true
	fx.granted = r.settle(now)
	fx.yielding = r.yielding(stood, fx.granted)
	return fx, nil
}

// formerWith returns the former limits of a key that becomes one of kind and
// limit, the latest last. Those of another kind say nothing about this one.
func (r *record) formerWith(kind dsync.Kind, from, limit int64) []int64 {
	var former []int64
	if kind == r.kind {
		former = without(r.former, func(n int64) bool { return n == limit })
	}
	know := func(n int64) {
		if n > 0 && n != limit && !slices.Contains(former, n) {
			former = append(former[:len(former):len(former)], n)
		}
	}
	if kind != r.kind || from != r.limit {
		know(from)
	}
	if kind == r.kind {
		know(r.limit)
	}
	return former[max(0, len(former)-maxFormer):]
}
