package core

import (
	"errors"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A queue is this process's FIFO queue for one key. It admits as many callers as fit into the key; for a semaphore it
// admits all. To request the key from the store, a caller needs the turn, unless it is a try. One admitted caller at a
// time has the turn. A caller that shares a hold, or gets one by a hand-off, makes no request. A queue exists while
// anybody is admitted.
type queue struct {
	key           string
	kind          driver.Kind
	limit         int64        // as given by the first caller
	used          int64        // slots used by admitted callers and by claims: see share
	turn          *Call        // the caller that may request the key; nil: none
	calls         []*Call      // callers that wait in this process
	admitted      []*Call      // admitted callers without a claim, because the session is not registered
	claims        []uint64     // numbers of the claims that have a slot
	shared        uint64       // the claim whose hold further readers may share; 0: none
	lingering     uint64       // the claim that lingers; 0: none
	sealed        *SealedError // the answer to callers whose tick is over; nil: not known yet
	readersWaited bool         // readers had to wait because a shared hold had used up its time; no other process waited
}

// share returns how many slots a caller of the given weight uses. A semaphore's caller uses 1, because all callers are
// admitted and the sum of their weights could overflow.
func (q *queue) share(weight int64) int64 {
	if q.kind == driver.KindSemaphore {
		return 1
	}
	return weight
}

// over reports whether this process knows that the tick is over.
func (q *queue) over(tick int64) bool { return q.sealed != nil && tick <= q.sealed.Tick }

// forceWaits reports whether the first caller in the queue wants the key by force.
func (q *queue) forceWaits() bool { return len(q.calls) > 0 && q.calls[0].First }

// insert puts a caller into the queue. A caller with First goes to the front. The others follow in the order of their
// ticks, and callers with the same tick in the order in which they came, even if one of them has had the turn and is put
// back.
func (q *queue) insert(a *Call) {
	i := slices.IndexFunc(q.calls, func(o *Call) bool {
		return a.First || !o.First && (o.Tick > a.Tick || o.Tick == a.Tick && o.Call > a.Call)
	})
	if i < 0 {
		i = len(q.calls)
	}
	q.calls = slices.Insert(q.calls, i, a)
}

// acquire handles a caller's request for a key.
func (c *Core) acquire(a *Call) {
	if c.closing != nil {
		c.deny(a, ErrClosed)
		return
	}
	if a.Weight == 0 {
		c.breakKey(a)
		return
	}
	q := c.queues[a.Key]
	switch {
	case q == nil:
		q = &queue{key: a.Key, kind: a.Kind, limit: a.Limit}
		c.queues[a.Key] = q
	case q.kind != a.Kind:
		c.deny(a, &driver.MismatchError{Key: a.Key, Kind: q.kind, WantKind: a.Kind, Limit: q.limit, WantLimit: a.Limit})
		return
	}
	lingered := q.lingering
	switch {
	case (len(q.calls) == 0 || a.First) && c.admit(q, a):
	case a.Try && lingered != 0 && q.lingering == 0:
		q.calls = slices.Insert(q.calls, 0, a) // wait until the unused claim that blocks the caller is released
	case a.Try:
		c.deny(a, c.heldHere(q))
	default:
		q.insert(a)
		if a.First {
			c.windDownAll(q)
		}
	}
	c.work()
}

// admit admits a caller if possible. The caller shares a hold of this process, takes over a lingering claim, or gets
// the turn to request the key. A try doesn't need the turn.
func (c *Core) admit(q *queue, a *Call) bool {
	if cl := c.claims[q.shared]; cl != nil && a.Shares {
		if c.joinable(cl) {
			cl.users++
			c.give(Deliver{To: a, Hold: cl.call, Claim: cl.number, Request: &cl.request, Token: cl.token, Local: true})
			return true
		}
		q.readersWaited = q.readersWaited || cl.state == held && cl.ender == byNobody
	}
	if cl := c.claims[q.lingering]; cl != nil {
		c.args = args{call: a}
		c.move(cl, wanted, &c.args)
		return cl.state == held
	}
	if c.full(q, a) || !a.Try && q.turn != nil {
		return false
	}
	q.used += q.share(a.Weight)
	if !a.Try {
		q.turn = a
	}
	c.request(q, a)
	return true
}

// full reports whether the caller must wait until a hold of this process is over. For a semaphore it returns false, for
// two reasons. The size can change, so only the store knows how much is free. And in the store's queue, the caller has
// a position among the callers of other processes. full also returns false if the caller's tick is later than the ticks
// of all holds.
func (c *Core) full(q *queue, a *Call) bool {
	return a.Kind != driver.KindSemaphore && a.Weight > a.Limit-q.used && q.used > 0 &&
		(a.Kind != driver.KindPeriodic || len(q.admitted) > 0 || !c.later(q, a))
}

// later reports whether all claims of this process are holds for ticks that are earlier than the caller's. For a try it
// returns false.
func (c *Core) later(q *queue, a *Call) bool {
	return !a.Try && !slices.ContainsFunc(q.claims, func(n uint64) bool {
		cl := c.claims[n]
		return cl.users == 0 || cl.state != held || a.Tick <= cl.request.Tick
	})
}

// request requests a claim for an admitted caller. If the session is not registered, the caller waits in q.admitted
// until the session is registered; request begins the registration if needed.
func (c *Core) request(q *queue, a *Call) {
	switch {
	case q.over(a.Tick):
		c.deny(a, q.sealed)
		c.dismiss(q, a)
	case q.forceWaits() && !a.First && !a.Try:
		// The forced claim must be first in the store's queue, and this process has only one claim there at a time.
		q.insert(a)
		c.dismiss(q, a)
	case c.session.id != "" && a.Tick > c.storeClock().Add(driver.MaxDuration).UnixMilli():
		c.deny(a, farTick(a.Tick, c.storeClock()))
		c.dismiss(q, a)
	case a.Kind == driver.KindPeriodic && !a.Try && !c.later(q, a):
		q.insert(a)
		c.dismiss(q, a)
	case c.session.id != "":
		c.move(c.newClaim(q, a), requested, nil)
	default:
		q.admitted = append(q.admitted, a)
		if a.Try || c.session.registerAt == never {
			c.register()
		}
	}
}

// dismiss takes the slot and the turn from an admitted caller that has no claim. Then the next callers are admitted.
func (c *Core) dismiss(q *queue, a *Call) {
	if q.turn == a {
		q.turn = nil
	}
	q.used -= q.share(a.Weight)
	c.admitLater(q)
}

// admitLater admits the queue's next callers after the transition under way. A queue that is no longer used is deleted
// then. It is not inlined, for the reason that then has.
//
//go:noinline
func (c *Core) admitLater(q *queue) {
	if len(q.calls) > 0 || q.used == 0 {
		c.tasks = append(c.tasks, task{queue: q})
	}
}

// beginAdmitted requests claims for callers that were admitted while the session was not registered. If it still isn't
// registered, they keep waiting, and request begins a registration if needed.
func (c *Core) beginAdmitted() {
	for _, key := range sortedKeys(c.queues) {
		q := c.queues[key]
		admitted := q.admitted
		q.admitted = nil
		for _, a := range admitted {
			c.request(q, a)
			c.work()
		}
	}
	if len(c.listener.keys) > 0 || len(c.breaksWaiting()) > 0 {
		c.needSession()
	}
}

// notRegistered handles a failed registration. Tries get the registration's error; if the store refuses permanently,
// all callers get it. Registration is retried only if somebody still needs the session.
func (c *Core) notRegistered(r *Reply) {
	needed := len(c.listener.keys) > 0
	for _, key := range sortedKeys(c.queues) {
		q := c.queues[key]
		q.admitted = slices.DeleteFunc(q.admitted, func(a *Call) bool {
			if !a.Try && !errors.Is(r.Err, driver.ErrRefused) {
				return false
			}
			c.deny(a, r.Err)
			c.dismiss(q, a)
			return true
		})
		c.work()
		needed = needed || len(q.admitted) > 0 // including callers that have just been admitted
	}
	for _, cl := range c.breaksWaiting() {
		if errors.Is(r.Err, driver.ErrRefused) {
			c.fire(cl, refused, args{cause: r.Err})
		} else {
			needed = true
		}
	}
	if !needed {
		c.session.registerAt = never
	}
}

// next admits callers from the front of the queue while that is possible.
func (c *Core) next(q *queue) {
	for len(q.calls) > 0 {
		calls := q.calls
		a := calls[0]
		q.calls = calls[1:]
		if c.admit(q, a) {
			continue
		}
		if !a.Try || slices.ContainsFunc(q.claims, func(n uint64) bool { return c.claims[n].state == leaving }) {
			q.calls = calls
			break
		}
		c.deny(a, c.heldHere(q))
	}
	if q.used == 0 && len(q.calls) == 0 && c.queues[q.key] == q {
		delete(c.queues, q.key)
	}
}

// refuseTries refuses tries that wait for the release of a claim, because the release got no answer.
func (c *Core) refuseTries(cl *claim) {
	q := cl.queue
	for q != nil && len(q.calls) > 0 && q.calls[0].Try {
		a := q.calls[0]
		q.calls = q.calls[1:]
		c.deny(a, c.heldHere(q))
	}
}

// giveUp ends a caller's wait.
func (c *Core) giveUp(a *Call) {
	q := c.queues[a.Key]
	switch {
	case a.Weight == 0:
		for _, cl := range c.those(func(cl *claim) bool { return cl.call == a }) {
			c.fire(cl, refused, args{cause: ErrGivenUp})
		}
		return
	case q == nil:
		return
	}
	is := func(o *Call) bool { return o == a }
	if slices.ContainsFunc(q.calls, is) {
		q.calls = slices.DeleteFunc(q.calls, is)
		c.deny(a, ErrGivenUp)
		c.admitLater(q)
		return
	}
	if slices.ContainsFunc(q.admitted, is) {
		q.admitted = slices.DeleteFunc(q.admitted, is)
		c.deny(a, ErrGivenUp)
		c.dismiss(q, a)
		return
	}
	for _, n := range q.claims {
		if cl := c.claims[n]; cl.call == a && cl.state.in(ungiven) {
			c.fire(cl, refused, args{cause: ErrGivenUp})
			return
		}
	}
}

// takeSlot takes the slot from the claim. The queue still counts the slot as used.
func (c *Core) takeSlot(cl *claim) {
	q := cl.queue
	q.claims = slices.DeleteFunc(q.claims, func(n uint64) bool { return n == cl.number })
	if q.shared == cl.number {
		q.shared = 0
	}
	cl.queue = nil
}

// freeSlot frees the claim's slot for the next caller.
func (c *Core) freeSlot(cl *claim) {
	if q := cl.queue; q != nil {
		c.takeSlot(cl)
		q.used -= q.share(cl.request.Weight)
		c.admitLater(q)
	}
}

// windDownAll ends this process's holds of the key, and puts callers that are requesting the key back into the queue.
func (c *Core) windDownAll(q *queue) {
	for _, n := range q.claims {
		switch cl := c.claims[n]; {
		case cl.state.in(ungiven) && !cl.request.First && !cl.call.Try && (cl.command == 0 || cl.command == inLine):
			c.then(cl, revoke, args{}) // if a request is under way, begin and notGranted handle its answer
		case cl.state == held:
			c.then(cl, revoke, args{cause: ErrRevoked})
		}
	}
}

// heldHere returns the error for a try when this process holds the key or waits for it.
func (c *Core) heldHere(q *queue) *driver.HeldError {
	e := &driver.HeldError{Key: q.key, Here: true}
	for _, n := range q.claims {
		if cl := c.claims[n]; cl.users > 0 {
			e.Session, e.Since, e.Until = cl.request.Session, cl.since, cl.until
		}
	}
	return e
}

// waitsForHolder reports whether the slot becomes free only when the holder is done. With Auto, Freed is sent when the
// claim has been released.
func (c *Core) waitsForHolder(cl *claim, _ *args) bool { return !cl.call.Auto }
