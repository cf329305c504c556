package reading

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/deadlock"
)

// Deadlocks returns the deadlocks among the first 20,000 keys that begin with prefix, and the records of the sessions
// in them. If the first reading seems to show any, Deadlocks reads the keys again and searches both readings.
// [deadlock.Find] explains why; the parameter called ends is documented there, too.
func Deadlocks(ctx context.Context, s Reader, prefix string, ends func(h deadlock.Claim, now time.Time) bool) ([]deadlock.Cycle, map[string]driver.Member, error) {
	first, _, err := contended(ctx, s, prefix)
	if err != nil || len(deadlock.Find(first, first, ends)) == 0 {
		return nil, nil, err
	}
	again, members, err := contended(ctx, s, prefix)
	return deadlock.Find(first, again, ends), members, err
}

// contended reads the first 20,000 keys that begin with prefix. It returns the keys for which somebody waits, each with
// as many waiters as Read shows, and the records of the sessions involved.
func contended(ctx context.Context, s Reader, prefix string) (some []deadlock.Key, members map[string]driver.Member, err error) {
	const most = 20_000
	members = make(map[string]driver.Member)
	n := 0
	for states, err := range pages(ctx, s, prefix, "") {
		var page []Reading
		if err == nil {
			states = states[:min(len(states), most-n)]
			n += len(states)
			page, err = readings(ctx, s, slices.DeleteFunc(states, func(st driver.State) bool { return st.Waiting == 0 }))
		}
		if len(page) > 0 {
			maps.Copy(members, page[0].Members) // the Members of all readings of a page are the same map
		}
		for _, r := range page {
			if r.Waiting > len(r.WaitersAhead) {
				if r, err = Read(ctx, s, r.Key); err != nil {
					break
				}
				maps.Copy(members, r.Members)
			}
			if r.Waiting > 0 {
				some = append(some, r.forDeadlocks())
			}
		}
		if err != nil || n == most {
			return some, members, err
		}
	}
	return some, members, nil
}

// forDeadlocks returns those parts of r that are needed to search for deadlocks.
func (r *Reading) forDeadlocks() deadlock.Key {
	k := deadlock.Key{Name: r.Key, Kind: r.Kind, Limit: r.Limit, Now: r.Now}
	for _, h := range r.Holders {
		_, lapsed := r.End(h)
		k.Holders = append(k.Holders, deadlock.Claim{
			ID: h.Claim, Session: h.Session, Weight: h.Weight,
			Since: h.Since, Renewed: h.Until.IsZero(), Lapsed: lapsed, Yields: h.Yield,
		})
	}
	for _, w := range r.WaitersAhead {
		k.Queue = append(k.Queue, deadlock.Claim{ID: w.Claim, Session: w.Session, Weight: w.Weight})
	}
	return k
}
