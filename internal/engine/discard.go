package engine

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A request that was never answered, or a copy of one that was, may reach the store after its claim
// was released. Until the request's notAfter the claim would then join again: it would hold its key,
// and nobody would own it, for as long as the session lives. So when no request can join any more,
// the session discards the claim. One command discards all that are due, of all keys, so this costs
// a session at most one command in the time of two attempts.

// A discard is a claim that was released or given up.
type discard struct {
	key, claim string
	due        time.Time // by the store's clock: from then on none of its requests can join
}

// maxDiscards is the most claims that one command discards.
const maxDiscards = 1000

// discardLater makes the session discard the claim, which is gone, unless none of its requests can
// join any more. If the session is lost, the claim ends with it. s.mu must be held.
func (sl *sessionLease) discardLater(c *claim) {
	s := sl.s
	if c.requestsVoid.IsZero() || sl.cause != nil || s.finished {
		return
	}
	sl.discards = append(sl.discards, discard{c.request.Key, c.request.ID, c.requestsVoid.Add(s.opt.Margin)})
	if len(sl.discards) == 1 {
		s.workers.do(sl.discard)
	}
}

// requestsAreVoid forgets the claim's requests if none of them can join any more. The store's clock
// may have gone back by up to the margin. s.mu must be held.
func (c *claim) requestsAreVoid() {
	if c.lease.storeClock().After(c.requestsVoid.Add(c.s.opt.Margin)) {
		c.requestsVoid = time.Time{}
	}
}

// discard discards claims when they are due, until there are none or the session ends. It waits for
// one attempt's time longer than the first needs, so that later ones share the command.
func (sl *sessionLease) discard() {
	s := sl.s
	retry := s.backoff()
	pause := func() time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		return sl.discards[0].due.Sub(sl.storeClock()) + s.attemptTime()
	}
	for wait := pause(); s.waitFor(s.base, nil, sl.over, wait) == nil; {
		due := sl.dueDiscards()
		if len(due) == 0 { // the store's clock went back
			wait = pause()
			continue
		}
		a := command(s, "Discard", func(ctx context.Context) (struct{}, error) {
			notices, err := s.store.Discard(ctx, due)
			s.notify(notices)
			return struct{}{}, err
		})
		if a.err != nil && !isAnswer(a.err) {
			wait = retry.next()
			continue
		}
		retry.reset()
		if sl.discarded(len(due)) {
			return
		}
		wait = pause()
	}
}

// dueDiscards returns the claims that are due, or as many of them as one command discards. They come
// first in sl.discards: a claim that is gone later may be due a little earlier, and then waits for
// those before it.
func (sl *sessionLease) dueDiscards() (due []driver.Claim) {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	now := sl.storeClock()
	for _, d := range sl.discards {
		if d.due.After(now) || len(due) == maxDiscards {
			break
		}
		due = append(due, driver.Claim{Key: d.key, ID: d.claim, Session: sl.id})
	}
	return due
}

// discarded removes the first n of sl.discards and reports whether none are left.
func (sl *sessionLease) discarded(n int) (done bool) {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	if sl.discards = sl.discards[n:]; len(sl.discards) == 0 {
		sl.discards = nil
		return true
	}
	return false
}
