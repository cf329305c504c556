package core

import (
	"container/heap"
	"time"
)

// An Instant is a time on a local clock that does not stop while the machine sleeps, counted from an arbitrary
// moment before the first event.
type Instant time.Duration

// Add returns i + d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns i − o.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

const never = Never

// Never is later than any other Instant.
const Never = Instant(1<<63 - 1)

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
	for len(c.timers) > 0 && c.timers[0].at <= c.now {
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

// Lanes limit how many commands are under way at once, because a store's client needs a connection for each. Repeated
// requests and notices, which can be as many as there are waiters, also need one of the few lanes for polls. Commands
// wait for a lane in FIFO order. Heartbeats, Register and Unregister need none.
type lanes struct {
	busy, polls int
	line        []delayed // waiting for any lane
	pollLine    []delayed // waiting for a lane for polls
}

// A delayed is a command that waits for a lane: either a complete command, or the number of the claim or message that
// makes the command when a lane is free.
type delayed struct {
	number uint64 // number of a claim, or messageBit plus the number of a message; 0: cmd is set
	cmd    *Command
	claim  uint64 // number of the claim that needs cmd, or 0
}

// enterLane takes a lane if one is free, and reports whether it did. If not, d is sent when a lane becomes free.
func (c *Core) enterLane(poll bool, d delayed) bool {
	l := &c.lanes
	switch {
	case l.busy < c.most(c.cfg.Lanes) && (!poll || l.polls < c.most(c.cfg.PollLanes)):
		l.busy++
		if poll {
			l.polls++
		}
		return true
	case poll:
		l.pollLine = append(l.pollLine, d)
	default:
		l.line = append(l.line, d)
	}
	return false
}

// leaveLane frees the lane of an answered command, and sends commands that wait for a lane. Polls come first: few can
// be under way, and they must not starve.
func (c *Core) leaveLane(s *sent) {
	l := &c.lanes
	switch s.op {
	case Heartbeat, Register, Unregister:
		return
	}
	l.busy--
	if s.poll {
		l.polls--
	}
	c.fillLanes()
}

// fillLanes sends waiting commands while lanes are free.
func (c *Core) fillLanes() {
	l := &c.lanes
	for l.busy < c.most(c.cfg.Lanes) {
		var d delayed
		switch {
		case len(l.pollLine) > 0 && l.polls < c.most(c.cfg.PollLanes):
			d, l.pollLine = l.pollLine[0], l.pollLine[1:]
		case len(l.line) > 0:
			d, l.line = l.line[0], l.line[1:]
		default:
			return
		}
		cl, m := c.claims[d.number], c.messages[d.number&^messageBit]
		switch {
		case d.number == 0:
			c.send(d.cmd, d.claim)
		case d.number < messageBit && cl != nil && cl.command == inLine:
			cl.command = 0
			c.fire(cl, laneFree, args{})
		case d.number >= messageBit && m != nil:
			c.messageDue(m)
		}
	}
}

// most returns how many commands may be under way: normally n, and more after a Hurry.
func (c *Core) most(n int) int {
	if c.closing != nil && c.closing.phase == hurried {
		return n * hurryLanes
	}
	return n
}

// send sends a command as soon as a lane is free.
func (c *Core) send(cmd *Command, claim uint64) {
	if c.enterLane(false, delayed{cmd: cmd, claim: claim}) {
		c.sendNow(&sent{session: cmd.Session, claim: claim, others: cmd.Sessions, revoked: cmd.Revoked}, cmd)
	}
}

// sendNow sends a command that has its lane or needs none.
func (c *Core) sendNow(s *sent, cmd *Command) uint64 {
	c.last.send++
	s.at, s.op = c.now, cmd.Op
	c.sent[c.last.send] = s
	c.do(&Send{c.last.send, cmd})
	return c.last.send
}
