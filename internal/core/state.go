package core

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Clone returns a copy that shares nothing with c that either changes.
func (c *Core) Clone() *Core {
	n := *c
	n.claims = make(map[uint64]*claim, len(c.claims))
	for k, cl := range c.claims {
		copied := *cl // ahead and expired are replaced, never changed
		n.claims[k] = &copied
	}
	n.queues = make(map[string]*queue, len(c.queues))
	for k, q := range c.queues {
		n.queues[k] = &queue{slices.Clone(q.calls), q.using}
	}
	n.calls, n.holds = maps.Clone(c.calls), maps.Clone(c.holds)
	n.others, n.sent = maps.Clone(c.others), maps.Clone(c.sent)
	n.out = nil
	return &n
}

// Session returns the id under which the session is registered, or "".
func (c *Core) Session() string { return c.session.id }

// Deadline returns when the session is lost unless a heartbeat is acknowledged before. A holder whose
// process was frozen compares it with the clock: see [Core.Session].
func (c *Core) Deadline() Instant { return c.deadline() }

// Namer gives ids, and numbers of claims, calls, holds and commands, names of the caller's: the same for
// the same, whatever they are.
type Namer interface {
	Session(id string) uint64
	Number(kind byte, n uint64) uint64
}

// State appends what the Core does next depends on, in a form in which states that behave alike are
// equal: times are differences from now, and who is who is as name has it.
func (c *Core) State(b []byte, now Instant, name Namer) []byte {
	w := writer{b, now}
	num := func(kind byte, n uint64) {
		if n == 0 {
			w.put(0)
		} else {
			w.put(name.Number(kind, n))
		}
	}
	s := &c.session
	w.flags(c.closing, c.closed, s.id != "", s.unregistering)
	if s.id != "" {
		w.put(name.Session(s.id))
		w.at(s.sent)
		w.at(s.due)
		w.put(uint64(min(s.failed, 8)))
		w.put(uint64(c.clockAt(now).UnixNano() - int64(now)))
	}
	num('c', s.registering)
	w.at(s.registerAt)
	needed := make(map[string]bool)
	for _, cl := range c.inOrder() {
		num('n', cl.number)
		w.b = append(append(w.b, cl.key...), byte(cl.state))
		num('c', cl.command)
		num('w', cl.call)
		num('h', cl.hold)
		w.at(cl.due)
		if cl.state == waiting {
			w.at(cl.poll)
		}
		w.put(uint64(min(cl.failed, 8)))
		w.flags(cl.requests > 1, cl.answers == cl.requests, cl.mayBe, cl.alone, cl.void.IsZero())
		if !cl.void.IsZero() {
			w.put(uint64(max(cl.void.Sub(c.clockAt(now)), -2*c.cfg.Margin)))
		}
		w.put(uint64(cl.token - cl.first))
		if cl.granted > 0 {
			w.put(uint64(min(now.Sub(cl.granted), c.cfg.HandOff)))
		}
		if cl.doubted > 0 {
			w.put(min(2, 1+s.acks-cl.doubted))
		}
		for _, id := range cl.ahead {
			w.put(name.Session(id))
			w.flags(slices.Contains(cl.expired, id))
			needed[id] = true
		}
		w.put(0)
	}
	for _, hold := range slices.Sorted(maps.Keys(c.holds)) {
		num('h', hold)
		num('n', c.holds[hold].claim)
	}
	for _, key := range sortedKeys(c.queues) {
		w.b = append(w.b, key...)
		num('n', c.queues[key].using)
		for _, call := range c.queues[key].calls {
			num('w', call)
		}
	}
	for _, id := range sortedKeys(c.others) {
		if o := c.others[id]; needed[id] {
			w.put(name.Session(id))
			w.at(max(o.lapses, now-1))
			w.flags(o.expired, o.asked, o.lapses == 0)
		}
	}
	return w.b
}

// A writer writes numbers one after the other.
type writer struct {
	b   []byte
	now Instant
}

func (w *writer) put(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *writer) at(i Instant) {
	if i == never || i == 0 {
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
