package core

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Clone returns a copy of c. A change of either does not affect the other.
func (c *Core) Clone() *Core {
	n := *c
	n.queues = make(map[string]*queue, len(c.queues))
	for k, q := range c.queues {
		copied := *q
		copied.calls, copied.admitted, copied.claims = slices.Clone(q.calls), slices.Clone(q.admitted), slices.Clone(q.claims)
		n.queues[k] = &copied
	}
	n.claims = make(map[uint64]*claim, len(c.claims))
	for k, cl := range c.claims {
		copied := *cl
		if cl.wait != nil {
			w := *cl.wait // a shallow copy will do: slices and maps in a wait are replaced, never changed
			copied.wait = &w
		}
		if cl.leave != nil {
			l := *cl.leave
			copied.leave = &l
		}
		if cl.queue != nil {
			copied.queue = n.queues[cl.request.Key]
		}
		n.claims[k] = &copied
	}
	n.messages = make(map[uint64]*message, len(c.messages))
	for k, m := range c.messages {
		copied := *m
		n.messages[k] = &copied
	}
	if c.closing != nil {
		copied := *c.closing
		copied.notReleased = slices.Clone(copied.notReleased)
		n.closing = &copied
	}
	n.past = slices.Clone(c.past)
	n.others, n.sent, n.topics = maps.Clone(c.others), maps.Clone(c.sent), maps.Clone(c.topics)
	n.listener.keys, n.session.revoked = maps.Clone(c.listener.keys), maps.Clone(c.session.revoked)
	n.timers, n.looks.turns, n.doubted = slices.Clone(c.timers), slices.Clone(c.looks.turns), slices.Clone(c.doubted)
	n.lanes.line, n.lanes.pollLine = slices.Clone(c.lanes.line), slices.Clone(c.lanes.pollLine)
	n.tasks, n.out, n.delivers, n.freeds = nil, nil, nil, nil
	return &n
}

// A Namer maps ids, and numbers of claims, calls and commands, to names. The same id or number always gets the same
// name.
type Namer interface {
	Session(id string) uint64
	Number(kind byte, n uint64) uint64
}

// State appends to b everything that the Core's behaviour depends on. States that behave alike append the same: times
// are relative to now, and ids and numbers are replaced by the names that name gives them.
func (c *Core) State(b []byte, now Instant, name Namer) []byte {
	w := writer{b, now, name}
	s := &c.session
	w.flags(c.closing != nil, c.unregistering(), s.id != "", s.due == never)
	if cg := c.closing; cg != nil {
		w.put(uint64(cg.phase))
		w.at(cg.due)
		w.put(uint64(min(cg.failed, 8)))
		w.at(max(cg.retryAt, now)) // all past times have the same effect as now
		w.flags(cg.listed != nil)
		for _, u := range cg.notReleased {
			w.b = append(append(w.b, u.key...), byte(u.end))
		}
	}
	if s.id != "" {
		w.put(name.Session(s.id))
		w.at(s.sent)
		w.at(s.due)
		w.put(uint64(min(s.failed, 8)))
		w.put(uint64(c.clockAt(now).UnixNano() - int64(now)))
		w.num('c', s.heartbeat)
		for _, v := range sortedRevocations(s.revoked) {
			w.claim(c, v.Claim)
		}
	}
	w.num('c', s.registering)
	if c.mayBeListed() != nil {
		w.at(s.tried)
	}
	w.at(s.registerAt)
	l := &c.listener
	w.put(uint64(l.state))
	w.at(l.at)
	w.put(uint64(min(l.failed, 8)))
	if l.running() {
		w.put(uint64(min(now.Sub(l.idle), c.cfg.TTL+1)))
		w.put(uint64(min(now.Sub(l.opened), c.cfg.Backoff+1)))
	}
	needed := make(map[string]bool)
	for _, cl := range c.those(func(*claim) bool { return true }) {
		c.claimState(&w, cl, needed)
	}
	for _, key := range sortedKeys(c.queues) {
		q := c.queues[key]
		w.b = append(w.b, key...)
		w.put(uint64(q.used))
		w.call(q.turn)
		for _, a := range q.calls {
			w.call(a)
		}
		w.put(0)
		for _, a := range q.admitted {
			w.call(a)
		}
		w.put(0)
		for _, n := range q.claims {
			w.num('n', n)
		}
		w.num('n', q.shared)
		w.num('n', q.lingering)
		w.flags(q.readersWaited)
		if q.sealed != nil {
			w.put(uint64(q.sealed.Tick))
		}
		w.put(0)
	}
	for _, id := range sortedKeys(c.others) {
		if o := c.others[id]; needed[id] {
			w.put(name.Session(id))
			w.at(max(o.lapses, now.Add(-c.cfg.TTL/10))) // as long as a waiter's stagger after it may run: see claimState
			w.flags(o.underWay)
			w.put(uint64(o.standing)<<4 | uint64(min(o.failed, 8)))
		}
	}
	for _, m := range c.inOrder() {
		w.num('c', m.command)
		w.at(m.due)
		w.put(uint64(min(m.failed, 8)))
		w.flags(m.changed, m.began == never)
	}
	for _, p := range c.past {
		w.num('n', p.number)
		w.b = append(w.b, p.key...)
		w.put(min(3, 1+s.acks-p.acks))
		w.flags(p.joinsUntil == 0, p.joinsUntil == discarding, c.mayDiscard(&p))
		if p.joinsUntil > 0 {
			w.put(uint64(max(time.Unix(0, p.joinsUntil).Sub(c.clockAt(now)), -2*c.cfg.Margin)))
		}
		w.put(uint64(p.applied.Term))
		w.put(p.applied.Time)
	}
	w.put(uint64(min(c.looks.failed, 8)))
	if w.flags(c.looks.keys != nil); c.looks.keys != nil {
		w.at(c.looks.at)
		for _, cl := range c.inDoubt() {
			w.flags(c.looks.acked >= cl.doubted)
		}
	}
	w.at(c.discards.due)
	w.put(uint64(min(c.discards.failed, 8)))
	w.put(uint64(c.lanes.busy)<<16 | uint64(c.lanes.polls))
	for _, d := range append(slices.Clone(c.lanes.pollLine), c.lanes.line...) {
		w.num('n', d.number)
		switch {
		case d.cmd != nil:
			w.put(uint64(d.cmd.Op))
		case d.ask != nil:
			w.put(uint64(d.ask.Op))
			w.num('n', d.ask.Claim)
		}
	}
	return w.b
}

// claimState appends a claim's state, and adds to needed the sessions that matter to the claim.
func (c *Core) claimState(w *writer, cl *claim, needed map[string]bool) {
	w.num('n', cl.number)
	w.b = append(append(w.b, cl.request.Key...), byte(cl.state.index()))
	w.num('c', cl.command)
	w.call(cl.call)
	w.put(uint64(cl.users))
	w.flags(cl.queue != nil)
	w.at(cl.due)
	w.put(uint64(min(cl.failed, 8)))
	w.put(uint64(cl.ender)<<2 | uint64(cl.stored))
	w.put(uint64(min(cl.extends, 8)))
	w.flags(cl.requests > 0, cl.requests > 1, cl.request.NoneWaiting, cl.refused != nil, c.wouldKnow(cl))
	if !cl.joinsUntil.IsZero() {
		w.put(uint64(max(cl.joinsUntil.Sub(c.clockAt(w.now)), -2*c.cfg.Margin)))
		w.flags(c.noneJoins(cl.joinsUntil.UnixNano()))
	}
	if cl.token > 0 {
		w.put(uint64(cl.token - cl.request.Token))
		w.put(uint64(min(w.now.Sub(cl.granted), max(c.cfg.HandOff, c.cfg.Linger, notifiedTurn))))
	}
	if cl.doubted > 0 {
		w.flags(true, c.session.acked >= cl.doubted, c.session.heartbeat >= cl.doubted, c.session.registering >= cl.doubted)
	}
	if l := cl.leave; l != nil {
		w.put(uint64(l.Keep))
		w.put(uint64(l.Seal))
		w.flags(l.Early, l.Successor != "", l.notAsSaid == nil)
		w.claim(c, l.Successor)
	}
	if wt := cl.wait; wt != nil {
		if cl.state == waiting {
			w.at(wt.poll)
			w.put(uint64(wt.stagger))
		}
		w.put(uint64(min(w.now.Sub(wt.since), c.cfg.TTL/10))) // no waiter of a small world has a longer stagger
		w.flags(wt.refusal != nil, wt.woken, wt.revokes != nil, cl.request.Session == c.session.id)
		for _, id := range wt.ahead {
			w.put(w.name.Session(id))
			w.flags(slices.Contains(wt.named, id))
			needed[id] = true
		}
		for _, id := range sortedKeys(wt.revokes) {
			w.claim(c, id)
			w.flags(wt.revokes[id].due)
			w.put(uint64(min(wt.revokes[id].failed, 8)))
		}
	}
	w.put(0)
}

func sortedRevocations(m map[driver.Revocation]bool) []driver.Revocation {
	return slices.SortedFunc(maps.Keys(m), func(a, b driver.Revocation) int { return strings.Compare(a.Claim, b.Claim) })
}

// A writer appends numbers to a byte slice.
type writer struct {
	b    []byte
	now  Instant
	name Namer
}

func (w *writer) put(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *writer) num(kind byte, n uint64) {
	switch n {
	case 0:
		w.put(0)
	case inLine:
		w.put(1 << 62)
	default:
		w.put(w.name.Number(kind, n))
	}
}

func (w *writer) call(a *Call) {
	if a == nil {
		w.put(0)
	} else {
		w.num('w', a.Call)
	}
}

func (w *writer) claim(c *Core, id string) {
	n, session := numberOf(id)
	w.put(w.name.Session(session))
	w.num('n', n)
}

func (w *writer) at(i Instant) {
	if i == never {
		w.put(1 << 63)
		return
	}
	w.put(uint64(i.Sub(w.now)))
}

func (w *writer) flags(flags ...bool) {
	var f byte
	for i, set := range flags {
		if set {
			f |= 1 << i
		}
	}
	w.b = append(w.b, f)
}
