package dsynchttp

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
)

// maxScan is the greatest number of keys that a request reads. The store can find keys by prefix. But to find keys by a
// substring, or to find the key that has been held longest, a request must read all keys.
const maxScan = 10_000

// maxUseScan is the greatest number of keys that a request reads to find keys in use. It is less than maxScan because
// by default keys in use come first, and so most requests search for them.
const maxUseScan = 1_000

// inUse reports whether somebody holds the key or waits for it.
func inUse(st admin.Status) bool { return len(st.Holders) > 0 || st.Waiting > 0 }

// A scan is the result of reading the keys that a query selects.
type scan struct {
	shown   []admin.Status // up to n keys
	read    int            // keys that were read
	matched int            // keys among those read that match the query
	used    int            // matching keys that are in use
	next    string         // the key after which the next page begins, or ""
	waits   waitGraph      // the waits for matching keys
}

// scan reads at most maxScan keys. If it sorts by key, it stops after n matching keys. If it sorts by use, it stops
// after n matching keys that are in use. If there is no substring to search for, it also stops after maxUseScan keys.
// On an error it returns what it has read so far.
func (h *Handler) scan(ctx context.Context, q query) (r scan, err error) {
	if q.key != "" {
		st, err := h.all.Status(ctx, q.key)
		if err != nil {
			return r, err
		}
		r.add(st)
		r.shown = append(r.shown, st)
		return r, nil
	}
	for st, err := range h.all.ListAfter(ctx, q.prefix, q.after) {
		if err != nil {
			r.cut(q)
			return r, err
		}
		r.read++
		if q.matches(st.Key) {
			r.add(st)
			r.shown = append(r.shown, st)
		}
		full := false
		switch q.sort {
		case byKey:
			full = len(r.shown) == q.n
		case byUse:
			full = r.used == q.n || q.contains == "" && r.read == maxUseScan
		}
		if full || r.read == maxScan {
			r.next = st.Key
			break
		}
		if len(r.shown) == 2*q.n { // keep only what is needed in memory
			r.cut(q)
		}
	}
	r.cut(q)
	return r, nil
}

// add counts a matching key, and adds its waits.
func (r *scan) add(st admin.Status) {
	r.matched++
	if inUse(st) {
		r.used++
	}
	r.waits.add(st)
}

// cut sorts the shown keys, and keeps the first n.
func (r *scan) cut(q query) {
	held := func(st admin.Status) time.Duration {
		if len(st.Holders) == 0 {
			return -1
		}
		return st.Now.Sub(st.Holders[0].Since)
	}
	idle := func(st admin.Status) int {
		if inUse(st) {
			return 0
		}
		return 1
	}
	switch q.sort {
	case byUse:
		slices.SortStableFunc(r.shown, func(a, b admin.Status) int { return idle(a) - idle(b) })
	case byAge:
		slices.SortStableFunc(r.shown, func(a, b admin.Status) int { return cmp.Compare(held(b), held(a)) })
	case byWaiters:
		slices.SortStableFunc(r.shown, func(a, b admin.Status) int { return cmp.Compare(b.Waiting, a.Waiting) })
	}
	r.shown = slices.Delete(r.shown, min(q.n, len(r.shown)), len(r.shown))
}
