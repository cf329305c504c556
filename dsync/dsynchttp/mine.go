package dsynchttp

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// A use is a key that this process holds, or a call of this process that waits for a key. Exactly one of hold and wait
// is set.
type use struct {
	key      string
	since    time.Time
	position int64 // for sorting the holds or the waits of a key: a hold's token, or the number of calls ahead
	hold     *engine.LocalHold
	wait     *engine.LocalWait
}

// waits returns 1 if the use is a waiting call, otherwise 0.
func (u use) waits() int {
	if u.wait != nil {
		return 1
	}
	return 0
}

// uses returns the matching uses of this process, in the order of the query.
func (q query) uses(l engine.Local) (all []use) {
	for i := range l.Holds {
		if h := &l.Holds[i]; q.matches(h.Key) {
			all = append(all, use{h.Key, h.Since, h.Token, h, nil})
		}
	}
	for i := range l.Waits {
		if w := &l.Waits[i]; q.matches(w.Key) {
			all = append(all, use{w.Key, w.Since, int64(w.Ahead), nil, w})
		}
	}
	slices.SortFunc(all, func(a, b use) int {
		byWait, order := a.waits()-b.waits(), 0
		switch q.sort {
		case byAge:
			order = a.since.Compare(b.since)
		case byWaiters:
			order = cmp.Or(-byWait, a.since.Compare(b.since))
		}
		if order != 0 {
			return order
		}
		return cmp.Or(strings.Compare(a.key, b.key), byWait, cmp.Compare(a.position, b.position))
	})
	return all
}

// newMineView returns the view of a use at the given time.
func newMineView(u use, now time.Time, a anchor) mineView {
	if w := u.wait; w != nil {
		return mineView{
			Key: w.Key, Kind: w.Kind, State: "waits", Since: statusjson.Time{Time: w.Since}, For: statusjson.Milliseconds(now.Sub(w.Since)),
			Weight: w.Weight, Position: w.Position, WaitersAhead: w.Ahead, Age: age(a.host.Sub(w.Since)),
		}
	}
	h := u.hold
	m := mineView{
		Key: h.Key, Kind: h.Kind, State: "holds", Since: statusjson.Time{Time: h.Since}, For: statusjson.Milliseconds(now.Sub(h.Since)),
		Token: h.Token, Weight: h.Weight, Holders: h.Holders, HandOffs: h.HandOffs, Age: age(a.host.Sub(h.Since)),
	}
	switch {
	case h.Lost != nil:
		m.State, m.Lost, m.LostFor = "lost", h.Lost.Error(), statusjson.Milliseconds(now.Sub(h.LostSince))
		m.LostAge = age(a.host.Sub(h.LostSince))
	case h.Holders == 0:
		m.State = "lingers"
	}
	return m
}
