// Package reading reads keys, together with the sessions that hold them or wait for them. It also searches for
// deadlocks in what it has read.
package reading

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Reader reads from a store. An engine.Session is a Reader; the comments of its methods name the errors.
type Reader interface {
	Load(ctx context.Context, key string) (driver.State, error)
	Keys(ctx context.Context, prefix, after string, n int) ([]driver.State, error)
	Members(ctx context.Context, ids ...string) (members []driver.Member, now time.Time, err error)
}

// A Reading is what the store knew at one moment about a key and the sessions that hold it or wait for it.
type Reading struct {
	driver.State
	Members map[string]driver.Member // by id; a zero Member means that the session's record was deleted; other readings may share this map
}

// End returns the time at which h's hold ends. If the hold has no fixed end, this is the time at which its session
// lapses, unless a heartbeat renews the session before that. The result lapsed reports whether the session has already
// lapsed; if so, the hold does not count.
func (r *Reading) End(h driver.Holder) (until time.Time, lapsed bool) {
	if !h.Until.IsZero() {
		return h.Until, false
	}
	m := r.Members[h.Session]
	until = m.LastHeartbeat.Add(m.TTL)
	return until, m.Expired || !r.Now.Before(until)
}

// Read returns what the store knows about key, with up to 1,000 waiters.
func Read(ctx context.Context, s Reader, key string) (r Reading, err error) {
	st, err := s.Load(ctx, key)
	if err != nil {
		return r, err
	}
	all, err := readings(ctx, s, []driver.State{st})
	if err != nil {
		return r, err
	}
	return all[0], nil
}

// All returns, in byte order, what the store knows about the keys that begin with prefix and are greater than
// after, with up to 8 waiters each. If ctx ends, the session closes, or the store fails, the last element is the error.
func All(ctx context.Context, s Reader, prefix, after string) iter.Seq2[Reading, error] {
	return func(yield func(Reading, error) bool) {
		for states, err := range pages(ctx, s, prefix, after) {
			var all []Reading
			if err == nil {
				all, err = readings(ctx, s, states)
			}
			if err != nil {
				yield(Reading{}, err)
				return
			}
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// pages returns, in byte order, the states of the keys that begin with prefix and are greater than after. The first
// page has up to a hundred keys, later pages up to a thousand. If an error occurs, it is the last element.
func pages(ctx context.Context, s Reader, prefix, after string) iter.Seq2[[]driver.State, error] {
	const first, most = 100, 1000
	return func(yield func([]driver.State, error) bool) {
		page := first
		for after := after; ; page = min(2*page, most) {
			states, err := s.Keys(ctx, prefix, after, page)
			n := len(states)
			if n > 0 {
				after = states[n-1].Key
			}
			if !yield(states, err) || err != nil || n < page {
				return
			}
		}
	}
}

// readings returns the states, each with the records of the sessions that hold its key or wait for it.
func readings(ctx context.Context, s Reader, states []driver.State) ([]Reading, error) {
	members := make(map[string]driver.Member)
	var ids []string
	need := func(id string) {
		if _, ok := members[id]; !ok {
			members[id] = driver.Member{}
			ids = append(ids, id)
		}
	}
	all := make([]Reading, 0, len(states))
	for _, st := range states {
		for _, h := range st.Holders {
			need(h.Session)
		}
		for _, w := range st.WaitersAhead {
			need(w.Session)
		}
		all = append(all, Reading{st, members})
	}
	if len(ids) > 0 { // without ids Members would return all sessions
		found, _, err := s.Members(ctx, ids...)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			members[m.ID] = m
		}
	}
	return all, nil
}

// Use describes how a holder uses a key, or how a waiter wants to use it: "reads" or "writes" for an RWMutex, "2 of 5"
// for a semaphore of size 5. For the other kinds, which have one holder at a time, Use returns "".
func Use(kind driver.Kind, weight, limit int64) string {
	switch {
	case kind == driver.KindSemaphore:
		return fmt.Sprintf("%d of %d", weight, limit)
	case kind != driver.KindRWMutex:
		return ""
	case weight == limit:
		return "writes"
	}
	return "reads"
}
