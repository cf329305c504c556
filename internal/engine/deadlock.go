package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/deadlock"
	"github.com/leasehold-go/leasehold/internal/process"
)

// lookIfDue searches for deadlocks once a wait is half a TTL old (at least 5 s and at most 15 s), and again each time
// the wait's age has doubled. Every heartbeat calls it, so a search is late by at most one heartbeat interval. The
// youngest wait of a deadlock is the one that closed it, so searching less often for older waits delays no report. s.mu
// must be held.
//
// A goroutine cannot acquire anything while it waits, so a hold that began during a wait belongs to a different
// goroutine. Such a hold and wait do not make their process part of a deadlock.
func (s *Session) lookIfDue() {
	due, long := false, s.longWait()
	waits := make(map[string]core.Instant) // by key: when the wait began
	s.core.Waits(func(a *core.Call, position, _ int) {
		if position > 0 && a.Kind != driver.KindElection && !a.First { // a forced request asks the holders to give up the key
			waits[a.Key] = holdOf(a).since
			age := s.now.Sub(waits[a.Key])
			due = due || age >= long && age >= 2*(age-s.now.Sub(s.looked))
		}
	})
	if !due || s.looking || s.finished {
		return
	}
	held := make(map[string]core.Instant) // by key: when the last hold began
	s.core.Claims(func(c core.Held) {
		if c.Users > 0 && c.Claim.Kind != driver.KindElection {
			held[c.Claim.Key] = max(held[c.Claim.Key], holdOf(c.Call).since)
		}
	})
	s.looking = true
	_, polls := s.core.Listening()
	id, keys := s.core.Session(), slices.Collect(maps.Keys(held))
	s.workers.do(func() {
		found, err := s.look(id, keys, polls, func(of, key string) bool { return held[of] > 0 && waits[key] >= held[of] })
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.looking = false; err != nil {
			return // the next heartbeat starts another search
		}
		for name, d := range found {
			if _, known := s.deadlocks[name]; !known {
				s.reportDeadlock(d)
			}
		}
		s.looked, s.deadlocks = s.now, found
	})
}

const maxLinger = time.Hour

// look returns the deadlocks that the session with the given id is in, each under a unique name. It reads all keys only
// if somebody waits for a key that the session holds; otherwise the session is in no deadlock.
//
// polls means that the store can't notify. Then another session may keep an unused key until its Linger is over, which
// is hardly ever longer than maxLinger. So look ignores a hold that may be lingering until the hold is older than
// maxLinger.
func (s *Session) look(id string, held []string, polls bool, nested func(held, waits string) bool) (map[string]DeadlockInfo, error) {
	ctx, found := context.Background(), make(map[string]DeadlockInfo)
	var failed error
	if !slices.ContainsFunc(held, func(key string) bool {
		st, err := s.Load(ctx, key)
		failed = err
		return err != nil || st.Waiting > 0
	}) || failed != nil {
		return nil, failed
	}
	all, members, err := s.findDeadlocks(ctx, "", func(h deadlock.Claim, now time.Time) bool {
		return polls && h.Yields && h.Session != id && now.Sub(h.Since) < maxLinger
	})
	for _, d := range all {
		name, own, info := "", false, DeadlockInfo{Keys: d.Keys}
		for i, m := range d.Members {
			name += m.ID + " "
			own = own || m.Session == id && nested(d.Keys[i], d.Next(i))
			info.Members = append(info.Members, nameOf(m.Session, members[m.Session]))
		}
		if own {
			found[name] = info
		}
	}
	return found, err
}

// nameOf returns a name for the process of the session, for display.
func nameOf(session string, m driver.Member) string {
	return process.Describe(m.Name, m.Host, m.PID, session)
}

// Deadlocks returns the deadlocks among the first 20,000 keys that begin with prefix, and the records of the
// sessions in them. The error is ctx's, [ErrClosed] or the store's.
func (s *Session) Deadlocks(ctx context.Context, prefix string) ([]deadlock.Cycle, map[string]driver.Member, error) {
	return s.findDeadlocks(ctx, prefix, nil)
}

// findDeadlocks searches for deadlocks. If it finds any, it reads the keys again and searches both readings: see
// [deadlock.Find].
func (s *Session) findDeadlocks(ctx context.Context, prefix string, ends func(h deadlock.Claim, now time.Time) bool) ([]deadlock.Cycle, map[string]driver.Member, error) {
	first, _, err := s.contended(ctx, prefix)
	if err != nil || len(deadlock.Find(first, first, ends)) == 0 {
		return nil, nil, err
	}
	again, members, err := s.contended(ctx, prefix)
	return deadlock.Find(first, again, ends), members, err
}

// contended returns the keys for which somebody waits, with all their waiters, and the records of the sessions
// involved.
func (s *Session) contended(ctx context.Context, prefix string) (some []deadlock.Key, members map[string]driver.Member, err error) {
	const most = 20_000
	members = make(map[string]driver.Member)
	n := 0
	for states, err := range s.pages(ctx, prefix, "") {
		var page []Reading
		if err == nil {
			states = states[:min(len(states), most-n)]
			n += len(states)
			page, err = s.readings(ctx, slices.DeleteFunc(states, func(st driver.State) bool { return st.Waiting == 0 }))
		}
		if len(page) > 0 {
			maps.Copy(members, page[0].Members) // the Members of all readings of a page are the same map
		}
		for _, r := range page {
			if r.Waiting > len(r.WaitersAhead) {
				if r, err = s.Read(ctx, r.Key); err != nil {
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

// forDeadlocks returns the parts of r that a search for deadlocks needs.
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

// longWait is the age at which a wait may first count as part of a deadlock.
func (s *Session) longWait() time.Duration {
	return min(max(s.opt.TTL/2, 5*time.Second), 15*time.Second)
}

// reportDeadlock logs d and passes it to the hooks. s.mu must be held.
func (s *Session) reportDeadlock(d DeadlockInfo) {
	s.Warn("dsync: possible deadlock", "members", d.String())
	s.each(func(h *Hooks) {
		if h.Deadlock != nil {
			s.report(func() { h.Deadlock(d) })
		}
	})
}

// waitsForItselfLocked reports whether a call for w waits for a hold that, according to ctx, belongs to the work that
// makes the call. Such a call ends only with ctx, because the work can't release before the call returns. A reader that
// can share the session's hold waits only if a writer is waiting, and that writer waits for the shared hold.
func (s *Session) waitsForItselfLocked(ctx context.Context, w *Want) bool {
	held, shares := int64(0), false
	var inner []*Hold
	for o := scopeOf(ctx); o != nil; o = o.outer {
		least := int64(0) // the smallest weight of o's holds of the key; the work may belong to any of them
		for _, h := range o.holds {
			if r := &h.acquire; h.s == s && h.state == live && r.Key == w.Key && r.Kind == w.Kind {
				shares = shares || r.Shares
				if least == 0 || r.Weight < least {
					least = r.Weight
				}
			}
		}
		if !slices.Equal(o.holds, inner) { // otherwise the two contexts were made from the same holds
			held += least
		}
		inner = o.holds
	}
	return held > 0 && (shares && w.Shares || held > w.Limit-w.Weight)
}

// reportNested reports a call that waits for itself as a deadlock.
func (s *Session) reportNested(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.served() && s.core.Session() != "" {
		s.reportDeadlock(DeadlockInfo{Members: []string{nameOf(s.core.Session(), s.member())}, Keys: []string{h.acquire.Key}})
	}
}
