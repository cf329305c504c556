package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// lookIfDue looks for deadlocks if a wait is half a TTL old (at least 5 s and at most 15 s), and then each time that
// its age has doubled. Every heartbeat calls it, so a deadlock is named within a poll. The wait that closed it began
// last, so what others have to read for older waits need not be read often. s.mu must be held.
//
// A wait that began before a hold is not that of the hold's goroutine: processes that each run several singletons under
// Mutexes hold some and wait for the others, and are in no deadlock.
func (s *Session) lookIfDue() {
	due, long := false, s.longWait()
	waits := make(map[string]core.Instant) // when they were called
	s.core.Waits(func(a *core.Acquire, position, _ int) {
		if position > 0 && a.Kind != driver.KindElection && !a.First { // holders are asked to give up what is forced
			waits[a.Key] = holdOf(a).since
			age := s.now.Sub(waits[a.Key])
			due = due || age >= long && age >= 2*(age-s.now.Sub(s.looked))
		}
	})
	if !due || s.looking || s.finished {
		return
	}
	held := make(map[string]core.Instant) // when the holds began
	s.core.Claims(func(c core.Held) {
		if c.Users > 0 && c.Claim.Kind != driver.KindElection {
			held[c.Claim.Key] = max(held[c.Claim.Key], holdOf(c.Call).since)
		}
	})
	s.looking = true
	_, polls := s.core.Listening()
	id, keys := s.core.Session(), slices.Collect(maps.Keys(held))
	s.workers.do(func() {
		found, err := s.Look(id, keys, polls, func(of, key string) bool { return held[of] > 0 && waits[key] >= held[of] })
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.looking = false; err != nil {
			return // the next heartbeat looks again
		}
		for name, d := range found {
			if s.deadlocks[name] == nil {
				s.reportDeadlock(d)
			}
		}
		s.looked, s.deadlocks = s.now, found
	})
}

// longWait is how old a wait is when it is time to look whether it can end.
func (s *Session) longWait() time.Duration {
	return min(max(s.opt.TTL/2, 5*time.Second), 15*time.Second)
}

// reportDeadlock logs d and passes it to the hooks. s.mu must be held.
func (s *Session) reportDeadlock(d fmt.Stringer) {
	s.Warn("dsync: possible deadlock", "members", d.String())
	s.each(func(h *Hooks) {
		if h.Deadlock != nil {
			s.report(func() { h.Deadlock(d) })
		}
	})
}

// waitsForItselfLocked reports whether a call for w waits for what the work that makes the call holds, as ctx says. It ends
// only with ctx, because the work can't release before the call returns. A reader need not
// wait if its session's readers share a hold; if it does wait, it waits for a writer, and the writer waits for that hold.
func (s *Session) waitsForItselfLocked(ctx context.Context, w *Want) bool {
	held, shares := int64(0), false
	var inner []*Hold
	for o := scopeOf(ctx); o != nil; o = o.outer {
		least := int64(0) // the work has at least that of the key: it is not known which of several holds is its own
		for _, h := range o.holds {
			if r := &h.acquire; h.s == s && h.state == live && r.Key == w.Key && r.Kind == w.Kind {
				shares = shares || r.Shares
				if least == 0 || r.Weight < least {
					least = r.Weight
				}
			}
		}
		if !slices.Equal(o.holds, inner) { // or else it is a second context of the same
			held += least
		}
		inner = o.holds
	}
	return held > 0 && (shares && w.Shares || held > w.Limit-w.Weight)
}

// reportNested reports the deadlock of a call that waits for itself.
func (s *Session) reportNested(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.served() && s.core.Session() != "" {
		m := s.member()
		m.ID = s.core.Session()
		s.reportDeadlock(s.Nested(m, h.acquire.Key))
	}
}
