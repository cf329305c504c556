package core

import (
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Lanes limit how many commands are under way at once, because a store's client needs a connection for each. Repeated
// requests and notices also need one of the few lanes for polls, because there can be as many of them as there are
// waiters. Commands wait for a lane in FIFO order. Heartbeats, Register and Unregister need none.
type lanes struct {
	times       int // multiplies the limits: 1, or hurryLanes after a Hurry
	busy, polls int
	line        []delayed // waiting for any lane
	pollLine    []delayed // waiting for a lane for polls
}

// delayed is a command that waits for a lane. It has either a complete command, or the number of a claim or message
// that makes the command when a lane is free.
type delayed struct {
	number uint64 // number of a claim, or messageBit plus the number of a message; 0: cmd is set
	cmd    *Command
	claim  uint64 // number of the claim that needs cmd, or 0
}

// enterLane takes a lane if one is free, and reports whether it did. If not, d is sent when a lane becomes free.
func (c *Core) enterLane(poll bool, d delayed) bool {
	l := &c.lanes
	switch {
	case l.busy < l.times*c.cfg.Lanes && (!poll || l.polls < l.times*c.cfg.PollLanes):
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
	for l.busy < l.times*c.cfg.Lanes {
		var d delayed
		switch {
		case len(l.pollLine) > 0 && l.polls < l.times*c.cfg.PollLanes:
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

// A message has notices for other sessions. It is sent again until the store has accepted it or notifyTime is over.
type message struct {
	timer
	number  uint64
	notices []driver.Notice
	began   Instant // when sending began; never: the message was sent, and is kept only for changeGap
	failed  int     // failed sends
	command uint64  // the command under way, or inLine; 0: none
	key     string  // the key whose changes the message announces; "": the message has other notices
	changed bool    // the key has changed again since the message was sent
}

// notifyTime is how long a session tries to send a notice. With default settings, MongoDB elects a primary within about
// twelve seconds. So if a waiter was granted a key just before an election, it is notified right after the election. A
// later notice is of little use, since waiters poll.
const notifyTime = 15 * time.Second

// changeGap is the shortest time between two change notices that a session sends for one key.
const changeGap = 20 * time.Millisecond

// notify sends the notices that are addressed to other sessions, and handles those addressed to this session.
func (c *Core) notify(notices []driver.Notice) {
	var others []driver.Notice
	for _, n := range notices {
		switch {
		case n.Session != "" && n.Session == c.session.id:
			c.noticed(n)
		case n.Type == driver.NoticeChange:
			c.notifyChange(n)
		default:
			others = append(others, n)
		}
	}
	if len(others) > 0 {
		c.sendMessage(&message{notices: others})
	}
}

func (c *Core) notifyChange(n driver.Notice) {
	if m := c.messages[c.changes[n.Key]]; m != nil {
		m.changed = true
		return
	}
	m := &message{notices: []driver.Notice{n}, key: n.Key}
	c.sendMessage(m)
	c.changes[n.Key] = m.number
}

func (c *Core) sendMessage(m *message) {
	c.last.message++
	m.number, m.began, m.timer = c.last.message, c.now, timer{never, never}
	c.messages[m.number] = m
	c.messageDue(m)
}

// messageDue sends the message. A message that announces a key's changes may have been sent already. Such a message is
// sent again if the key has changed since; otherwise it is forgotten.
func (c *Core) messageDue(m *message) {
	switch {
	case m.command != 0 && m.command != inLine:
		return
	case m.began == never && !m.changed:
		c.forgetMessage(m)
		return
	case m.began == never:
		m.began, m.failed = c.now, 0
	}
	m.command = inLine
	if c.enterLane(m.failed > 0, delayed{number: m.number | messageBit}) {
		m.changed = false
		m.command = c.sendNow(&sent{claim: m.number, poll: m.failed > 0}, &Command{Op: Notify, Notices: m.notices})
	}
}

// notified handles the answer to a Notify.
func (c *Core) notified(s *sent, r *Reply) {
	m := c.messages[s.claim]
	if m == nil {
		return
	}
	m.command = 0
	switch {
	case r.Lost && c.repeats(s) && c.now.Sub(m.began) < notifyTime:
		c.at(&m.timer, m.number|messageBit, c.now.Add(c.pause(m.failed)))
		m.failed++
	case m.key != "" && c.closing == nil:
		m.began = never
		c.at(&m.timer, m.number|messageBit, c.now.Add(changeGap))
	default:
		c.forgetMessage(m)
	}
}

func (c *Core) forgetMessage(m *message) {
	delete(c.messages, m.number)
	if m.key != "" {
		delete(c.changes, m.key)
	}
}

// unchanged returns the notices to send after a command that did not change its own claim. It drops change notices,
// unless the command granted other claims.
func unchanged(notices []driver.Notice) []driver.Notice {
	if slices.ContainsFunc(notices, func(n driver.Notice) bool { return n.Type == driver.NoticeGrant }) {
		return notices
	}
	return slices.DeleteFunc(slices.Clone(notices), func(n driver.Notice) bool { return n.Type == driver.NoticeChange })
}

// inOrder returns the messages in the order of their numbers.
func (c *Core) inOrder() (all []*message) {
	for _, n := range slices.Sorted(maps.Keys(c.messages)) {
		all = append(all, c.messages[n])
	}
	return all
}
