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
	"github.com/leasehold-go/leasehold/internal/reading"
)

// lookIfDue searches for deadlocks once a wait is half a TTL old (at least 5 s and at most 15 s), and again each time
// the wait's age has doubled. Every heartbeat calls it, so a search is late by at most one heartbeat interval. The
// youngest wait of a deadlock is the wait that completed the cycle, so searching less often for older waits delays no
// report. s.mu must be held.
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
				s.report.Deadlock(d.members, d.keys)
			}
		}
		s.looked, s.deadlocks = s.now, found
	})
}

const maxLinger = time.Hour

// named describes a deadlock as a [Reporter] gets it.
type named struct{ members, keys []string }

// look returns the deadlocks that the session with the given id is in, each under a unique name. It reads all keys only
// if somebody waits for a key that the session holds; otherwise the session is in no deadlock.
//
// polls means that the store can't notify. Then another session may keep an unused key until its Linger is over, which
// is hardly ever longer than maxLinger. So look ignores a hold that may be lingering until the hold is older than
// maxLinger.
func (s *Session) look(id string, held []string, polls bool, nested func(held, waits string) bool) (map[string]named, error) {
	ctx, found := context.Background(), make(map[string]named)
	var failed error
	if !slices.ContainsFunc(held, func(key string) bool {
		st, err := s.Load(ctx, key)
		failed = err
		return err != nil || st.Waiting > 0
	}) || failed != nil {
		return nil, failed
	}
	all, members, err := reading.Deadlocks(ctx, s, "", func(h deadlock.Claim, now time.Time) bool {
		return polls && h.Yields && h.Session != id && now.Sub(h.Since) < maxLinger
	})
	for _, d := range all {
		name, own, info := "", false, named{keys: d.Keys}
		for i, m := range d.Members {
			name += m.ID + " "
			own = own || m.Session == id && nested(d.Keys[i], d.Next(i))
			info.members = append(info.members, nameOf(m.Session, members[m.Session]))
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

// longWait is the age at which a wait may first count as part of a deadlock.
func (s *Session) longWait() time.Duration {
	return min(max(s.config.TTL/2, 5*time.Second), 15*time.Second)
}

// waitsForItselfLocked reports whether a call for w waits for a hold of the work that makes the call. That hold belongs
// to inner, which is the scope of the work, or to a scope around inner. Such a call ends only with its ctx, because the
// work can't release before the call returns. If a reader can share the session's hold, the reader waits only if a
// writer is waiting, and that writer waits for the shared hold.
func (s *Session) waitsForItselfLocked(inner *scope, w *Want) bool {
	held, shares := int64(0), false
	var before []*Hold
	for o := inner; o != nil; o = o.outer {
		least := int64(0) // the smallest weight of o's holds of the key; the work may belong to any of them
		for _, h := range o.holds {
			if r := &h.acquire; h.s == s && h.state == live && r.Key == w.Key && r.Kind == w.Kind {
				shares = shares || r.Shares
				if least == 0 || r.Weight < least {
					least = r.Weight
				}
			}
		}
		if !slices.Equal(o.holds, before) { // otherwise the two contexts were made from the same holds
			held += least
		}
		before = o.holds
	}
	return held > 0 && (shares && w.Shares || held > w.Limit-w.Weight)
}

// reportNested reports a call that waits for itself as a deadlock.
func (s *Session) reportNested(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.served() && s.core.Session() != "" {
		s.report.Deadlock([]string{nameOf(s.core.Session(), s.process)}, []string{h.acquire.Key})
	}
}
