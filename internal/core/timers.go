package core

import "container/heap"

// A timer fires at due. Its entry in timers may be earlier: setting a later time leaves the entry where it is. So a
// timer that is often set and stopped, such as a lingering claim's, costs almost nothing.
type timer struct {
	due   Instant
	armed Instant // time of the timer's entry in timers; never: no entry
}

// timers is a heap of the claims' and messages' timers, the earliest first.
type timers []entry

type entry struct {
	at     Instant
	number uint64 // number of a claim, or messageBit plus the number of a message
}

const messageBit = 1 << 63

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].number < t[j].number
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(entry)) }
func (t *timers) Pop() any {
	e := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return e
}

// at sets the timer of the claim or message with the given number.
func (c *Core) at(t *timer, number uint64, due Instant) {
	t.due = due
	if due < t.armed {
		t.armed = due
		heap.Push(&c.timers, entry{due, number})
	}
}

// timersDue fires the timers of claims and messages that are due.
func (c *Core) timersDue() {
	for most := maxRounds + 10*len(c.timers); len(c.timers) > 0 && c.timers[0].at <= c.now; most-- {
		if most == 0 {
			panic(neverDone)
		}
		e := heap.Pop(&c.timers).(entry)
		cl, m := c.claims[e.number], c.messages[e.number&^messageBit]
		var t *timer
		switch {
		case e.number < messageBit && cl != nil:
			t = &cl.timer
		case e.number >= messageBit && m != nil:
			t = &m.timer
		}
		if t == nil || t.armed != e.at {
			continue
		}
		t.armed = never
		switch {
		case t.due > c.now:
			c.at(t, e.number, t.due)
		case e.number < messageBit:
			t.due = never
			c.fire(cl, timeOver, args{})
		default:
			t.due = never
			c.messageDue(m)
		}
	}
}
