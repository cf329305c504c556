package explore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// The checks of how long things may take. They use formulas of their own, not those of package core.

// A failure is a series of commands for one purpose that have failed one after the other.
type failure struct {
	op core.Op
	id string       // of the claim or, if the command has none, of the session
	n  int          // how many have failed
	or int          // how many failures before them may count, too
	at core.Instant // when the last failed; 0: the next may be sent at any time
}

func purpose(c *core.Command) (op core.Op, id string) {
	switch id = claimOf(c).ID; {
	case id != "":
	case c.Op != core.Register:
		id = c.Session
	}
	return c.Op, id
}

func (n *node) failure(op core.Op, id string) (i int) {
	return slices.IndexFunc(n.failures, func(f failure) bool { return f.op == op && f.id == id })
}

// counts counts the failures before the next command for the same purpose: see pausesRight.
func (n *node) counts(now core.Instant, c *core.Command, r *core.Reply) {
	fails := func(op core.Op, id string) {
		i := n.failure(op, id)
		if i < 0 {
			i = len(n.failures)
			n.failures = append(n.failures, failure{op: op, id: id})
		}
		n.failures[i].n++
		n.failures[i].at = now
	}
	failed := r.Err != nil
	switch c.Op {
	case core.Load, core.Read, core.Expire:
		if failed {
			n.unread++ // a request that is made after this may also count it
		}
		return
	case core.Acquire:
		if v := c.Edit.Release; v != nil && !(r.Err == nil && r.Found) {
			fails(core.Release, v.Claim.ID)
		}
		if errors.Is(r.Err, driver.ErrMismatch) { // a reading follows, and if that fails, a pause before the next request
			n.mayRepeat(purpose(c))
			return
		}
		failed = r.Lost || r.Err == nil && !shows(&r.State, c.Edit.Acquire.Claim.ID)
		if failed && !r.Lost && !c.Edit.Acquire.Wait { // a try that is refused, which has not failed, or that came too late
			fails(purpose(c))
			n.failures[n.failure(purpose(c))].pardon()
			return
		}
	case core.Release:
		if errors.Is(r.Err, driver.ErrNotWaiting) || r.Err == nil && !r.Found { // another release may follow
			n.mayRepeat(purpose(c))
			return
		}
		if i := n.failure(purpose(c)); i >= 0 && !failed && c.Edit.Release.Keep > 0 { // they count only if another release follows at once
			n.failures[i].pardon()
			return
		}
	case core.Unregister, core.Announce:
		failed = r.Lost
	case core.Register, core.Heartbeat, core.Extend, core.Discard:
	default:
		return
	}
	if op, id := purpose(c); failed {
		fails(op, id)
	} else if i := n.failure(op, id); i >= 0 {
		n.failures = slices.Delete(n.failures, i, i+1)
	}
}

// pardon makes the failures so far count or not.
func (f *failure) pardon() {
	f.or += f.n
	f.n, f.at = 0, 0
}

// mayRepeat records that the next command for the purpose may be sent at any time.
func (n *node) mayRepeat(op core.Op, id string) {
	if i := n.failure(op, id); i >= 0 {
		n.failures[i].at = 0
	}
}

// pausesRight checks, for a command that a timer has caused, that the pause since the last failed command for the same
// purpose has the right length: it doubles with each failure, and starts again after a success. Between half and all of
// it may pass.
func (n *node) pausesRight(now core.Instant, e core.Event, c *core.Command) error {
	i := n.failure(purpose(c))
	_, ticks := e.(core.Tick)
	if i < 0 || n.failures[i].at == 0 || n.hurried || !ticks && c.Op != core.Heartbeat || c.Op == core.Discard && n.orphans { // an orphan need not be discarded any more
		return nil
	}
	f := &n.failures[i]
	least, most := f.n-1, f.n-1+f.or
	switch {
	case c.Op == core.Unregister: // its first pause is longer already
		least, most = f.n, f.n
	case c.Op == core.Acquire:
		most += n.unread
	}
	pause := func(failed int) time.Duration { return min(n.cfg.Retry<<min(failed, 20), n.cfg.Backoff) }
	if took := now.Sub(f.at); took > pause(most) || took < pause(least)/2 && c.Op != core.Heartbeat {
		return fmt.Errorf("%v %s is sent %v after failure %d, want between %v and %v", c.Op, f.id, took, f.n, pause(least)/2, pause(most))
	}
	return nil
}

// lasts returns how long a hold may last, counted from before its request, if the store grants it for d.
func lasts(c *core.Config, d time.Duration) time.Duration {
	return d - d/1000 - marginOf(c, d) - graceOf(c, d)
}

func marginOf(c *core.Config, d time.Duration) time.Duration {
	return tenth(d, c.LeastMargin, c.Margin)
}

func graceOf(c *core.Config, d time.Duration) time.Duration { return tenth(d, c.LeastGrace, c.Grace) }

func tenth(d, least, most time.Duration) time.Duration { return min(max(d/10, least), most) }

// graceEnds returns when the grace of a hold that has ended is over.
func (w *world) graceEnds(h *hold) core.Instant {
	end := h.ended.Add(w.cfg.Grace)
	if h.over != 0 {
		end = min(end, h.over.Add(graceOf(w.cfg, h.call.Lease)))
	}
	return end
}

// inTime checks, before time passes until next, that nothing takes longer than it may.
func (w *world) inTime(next core.Instant) error {
	return errors.Join(w.freedByDeaths(next), w.overlooked(next), w.served(next), w.notified(next), w.broke(next), w.shared(next))
}

// pollTime returns the longest time between two requests of a waiter.
func (w *world) pollTime() time.Duration {
	d := w.cfg.Poll
	switch {
	case d == 0 && w.deaf:
		d = 250 * time.Millisecond
	case d == 0:
		return min(max(w.cfg.TTL, 5*time.Second), 30*time.Second) * 6 / 5
	}
	return 4 * d * 6 / 5
}

// served checks, without faults, that a waiter whose claim was granted learns that at once by a notice, or by its next
// poll if the store can't notify or the process that should have notified it has crashed. The store's clock may step by
// the margin.
func (w *world) served(next core.Instant) error {
	if !w.prompt || w.deleted {
		return nil
	}
	poll, crashed := w.pollTime(), false
	for i := range w.nodes {
		crashed = crashed || w.nodes[i].dead
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.dead || n.closing {
			continue
		}
		most := w.cfg.Margin + w.cfg.Retry // a lease whose request is under way when it is granted is extended after a pause
		if w.deaf || crashed {
			most += poll
		}
		for _, r := range n.requests {
			k := w.store.keys[r.key]
			if h, holds := k.Holder(r.id); holds && !r.delivered && !r.answered && sessionOf(r.id) == n.core.Session() && next > w.instant(h.Since).Add(most) {
				return fmt.Errorf("%s has not learned within %v that claim %s was granted: %s", name(i), most, r.id, w)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.store.keys)) {
		if err := w.firstServed(key, next); err != nil {
			return err
		}
	}
	return nil
}

// firstServed checks, without faults, that the first waiter of a key is granted it once all sessions ahead have lapsed,
// or by its next poll after the leases and kept holds ahead have ended.
func (w *world) firstServed(key string, next core.Instant) error {
	k, over, callers := w.store.keys[key], core.Instant(0), 0
	for i := range w.nodes {
		callers += len(w.nodes[i].callers)
	}
	most := max(w.cfg.Margin, w.store.longer) + time.Duration(callers)*w.cfg.TTL/50 // a later waiter lets the first look first
	if !w.fifo {
		most += w.pollTime() // until it learns of a waiter that went ahead
	}
	lapsed := func(session string) bool {
		if s, known := w.store.sessions[session]; known { // it has expired then, or is to expire
			over = max(over, w.instant(s.at.Add(s.ttl)))
		}
		return w.owner(session).dead
	}
	for _, h := range k.Holders {
		switch {
		case !h.Until.IsZero():
			over = max(over, w.instant(h.Until).Add(w.pollTime()))
		case !lapsed(h.Session):
			return nil
		}
		over = max(over, w.instant(h.Since))
	}
	for _, q := range k.Queue {
		n := w.owner(q.Session)
		switch {
		case n.dead:
			lapsed(q.Session)
			continue
		case n.closing || n.core.Session() != q.Session:
		case next > max(over, n.request(q.Claim).since).Add(most):
			return fmt.Errorf("claim %s still waits %v after all that is ahead of it was over: %s", q.Claim, next.Sub(over), w)
		}
		return nil
	}
	return nil
}

// broke checks, without faults, that a call of Break reads the key at once, and returns when a notice says that the claims
// for which it waits have left the store, or with its next poll if there is no such notice.
func (w *world) broke(next core.Instant) error {
	if !w.prompt || w.deleted {
		return nil
	}
	most := w.cfg.Margin
	if w.deaf || !w.store.observed || slices.ContainsFunc(w.nodes, func(n node) bool { return n.dead || n.closing }) {
		most += w.pollTime()
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		for c := range n.callers {
			o := &n.callers[c]
			if o.call == nil || o.want.Weight > 0 || n.dead || n.closing {
				continue
			}
			holders := w.store.keys[o.want.Key].Holders
			waits := o.ahead == nil && len(holders) > 0 // for the holders at its first reading, which is still to come
			for _, h := range holders {
				waits = waits || slices.Contains(o.ahead, h.Claim)
			}
			switch {
			case waits:
				o.free = 0
			case o.free == 0:
				o.free = w.now
			}
			if !waits && next > o.free.Add(most) {
				return fmt.Errorf("the Break of %s still waits %v after what it waits for was over: %s", name(i), next.Sub(o.free), w)
			}
		}
	}
	return nil
}

// shared checks, without faults and other processes, that no reader at the head of its process's queue waits while it could
// share a hold of another reader.
func (w *world) shared(next core.Instant) error {
	if !w.prompt || w.deleted || !w.keeps || len(w.nodes) > 1 {
		return nil
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		for c := range n.callers {
			a := n.callers[c].call
			if a == nil || !a.Shares || a.Try || n.dead || n.closing || len(w.store.keys[a.Key].Queue) > 0 {
				continue
			}
			first := !slices.ContainsFunc(n.callers, func(o caller) bool { return o.call != nil && o.call.Call < a.Call && o.call.Key == a.Key })
			h := slices.IndexFunc(n.holds, func(h hold) bool {
				return h.call.Shares && h.call.Key == a.Key && h.users > 0 && h.ended == 0 && w.now.Sub(h.since) < w.cfg.HandOff
			})
			if first && h >= 0 && next > w.now {
				return fmt.Errorf("call %d of %s waits although it could share the hold of call %d", a.Call, name(i), n.holds[h].call.Call)
			}
		}
	}
	return nil
}

// instant returns when the store's clock shows t.
func (w *world) instant(t time.Time) core.Instant { return w.now.Add(t.Sub(w.store.now(w.now))) }

// notified checks, without faults, that a holder learns of a revocation with the next heartbeat after it was recorded.
func (w *world) notified(next core.Instant) error {
	for i := range w.nodes {
		for _, h := range w.nodes[i].holds {
			if n := &w.nodes[i]; w.prompt && !n.dead && h.wanted != 0 && h.ended == 0 && h.users > 0 && h.watchedBy(n.core.Session()) && next.Sub(h.wanted) > w.cfg.Heartbeat*11/10 {
				return fmt.Errorf("%s has not ended the hold of call %d, although the store has had its revocation since %v: %+v", name(i), h.call.Call, h.wanted, h)
			}
		}
	}
	return nil
}
