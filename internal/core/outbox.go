package core

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Lanes limit how many commands are under way at once, because a store may need a connection for each. Repeated
// requests and notices also need one of the few lanes for polls, because there can be as many of them as there are
// waiters. Commands wait for a lane in FIFO order. Heartbeats, Register and Unregister need none.
type lanes struct {
	open        int // the limit that the store told at registration; 0: Config.Lanes
	closing     int // the limit after a Close or a Hurry, if it is greater
	busy, polls int
	line        []delayed // waiting for any lane
	pollLine    []delayed // waiting for a lane for polls
}

// delayed is a command that waits for a lane. It has either a complete command, or an Ask or the number of a claim or
// message that makes the command when a lane is free.
type delayed struct {
	number uint64 // number of a claim, or messageBit plus the number of a message; 0: cmd or ask is set
	ask    *Ask
	cmd    *Command
	claim  uint64 // number of the claim that needs cmd, or 0
}

// enterLane takes a lane if one is free, and reports whether it did. If not, d is sent when a lane becomes free.
func (c *Core) enterLane(poll bool, d delayed) bool {
	l := &c.lanes
	switch {
	case l.busy < c.laneLimit() && (!poll || l.polls < c.pollLimit()):
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

func (c *Core) laneLimit() int { return max(cmp.Or(c.lanes.open, c.cfg.Lanes), c.lanes.closing) }
func (c *Core) pollLimit() int {
	return max(c.cfg.PollLanes, c.lanes.closing*c.cfg.PollLanes/c.cfg.Lanes)
}

// leaveLane frees the lane of an answered command, and sends commands that wait for a lane. Polls come first: few can
// be under way, and they must not starve.
func (c *Core) leaveLane(s *sent) {
	l := &c.lanes
	switch s.Op {
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
	for l.busy < c.laneLimit() {
		var d delayed
		switch {
		case len(l.pollLine) > 0 && l.polls < c.pollLimit():
			d, l.pollLine = l.pollLine[0], l.pollLine[1:]
		case len(l.line) > 0:
			d, l.line = l.line[0], l.line[1:]
		default:
			return
		}
		cl, m := c.claims[d.number], c.messages[d.number&^messageBit]
		switch {
		case d.ask != nil:
			c.ask(d.ask)
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

// A message is a command that nobody waits for: notices for other sessions, the keys that the session observes, or a
// value that a holder publishes. It is sent again until the store has answered or, see unwanted, it is of no more use.
type message struct {
	timer
	number  uint64
	cmd     *Command
	claim   uint64  // for Publish: number of the holder's claim
	began   Instant // when sending began; never: not yet, or the message was sent and another about its topic is not due before its timer
	failed  int     // failed sends
	command uint64  // the command under way, or inLine; 0: none
	topic   topic
	changed bool // it was not sent yet, or what it is about has changed since it was sent
}

// A topic is what a message is about, if there is only one such message at a time: the changes of a key (with Notify),
// or the keys that the session observes (with Announce). Other messages have no topic.
type topic struct {
	op  Op
	key string
}

// notifyTime is how long a session tries to send a notice. With default settings, MongoDB elects a primary within about
// twelve seconds. So if a waiter was granted a key just before an election, it is notified right after the election. A
// later notice is of little use, since waiters poll.
const notifyTime = 15 * time.Second

// changeGap is the shortest time between two messages that a session sends about one topic.
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
		c.sendMessage(&message{cmd: &Command{Op: Notify, Notices: others}}, 0)
	}
}

func (c *Core) notifyChange(n driver.Notice) {
	if about := (topic{Notify, n.Key}); !c.changed(about) {
		c.sendMessage(&message{cmd: &Command{Op: Notify, Notices: []driver.Notice{n}}, topic: about}, 0)
	}
}

// changed makes the message about the topic be sent again, and reports whether there is such a message.
func (c *Core) changed(about topic) bool {
	m := c.messages[c.topics[about]]
	if m != nil {
		m.changed = true
	}
	return m != nil
}

// announce makes the store learn which keys the session observes, after a moment in which more can be added.
func (c *Core) announce() {
	about := topic{op: Announce}
	if c.session.id != "" && c.closing == nil && !c.changed(about) {
		c.sendMessage(&message{cmd: &Command{Op: Announce}, topic: about}, gather)
	}
}

// publishLater publishes a holder's value. A later value prevails, even if the store gets it first, because its Seq is
// greater.
func (c *Core) publishLater(e PublishLater) {
	if cl := c.claims[e.Claim]; cl != nil && cl.state == held {
		publish := driver.Edit{Publish: &driver.Publish{Claim: cl.request, Seq: e.Seq, Value: e.Value}}
		c.sendMessage(&message{cmd: &Command{Op: Publish, Session: cl.request.Session, Edit: publish}, claim: e.Claim}, 0)
	}
}

// sendMessage sends a new message after the given time; 0 means at once.
func (c *Core) sendMessage(m *message, after time.Duration) {
	c.last.message++
	m.number, m.began, m.changed, m.timer = c.last.message, never, true, timer{never, never}
	c.messages[m.number] = m
	if m.topic != (topic{}) {
		c.topics[m.topic] = m.number
	}
	if after > 0 {
		c.at(&m.timer, m.number|messageBit, c.now.Add(after))
	} else {
		c.messageDue(m)
	}
}

// unwanted reports whether the message is of no use any more: what it is about has not changed since it was sent, its
// hold is over, or the session that observes closes.
func (c *Core) unwanted(m *message) bool {
	switch cl := c.claims[m.claim]; {
	case m.began == never && !m.changed:
		return true
	case m.cmd.Op == Publish:
		return cl == nil || cl.state != held
	}
	return m.cmd.Op == Announce && c.closing != nil
}

// messageDue sends the message, or forgets it if it is unwanted.
func (c *Core) messageDue(m *message) {
	switch {
	case m.command != 0 && m.command != inLine:
		return
	case c.unwanted(m):
		c.forgetMessage(m)
		return
	case m.began == never:
		m.began, m.failed = c.now, 0
	}
	m.command = inLine
	if c.enterLane(m.failed > 0, delayed{number: m.number | messageBit}) {
		m.changed = false
		if m.cmd.Op == Announce {
			m.cmd = c.observed()
		}
		m.command = c.sendNow(&sent{Command: m.cmd, claim: m.number, poll: m.failed > 0})
	}
}

// messageAnswered handles the answer to a message's command.
func (c *Core) messageAnswered(s *sent, r *Reply) {
	m := c.messages[s.claim]
	if m == nil {
		return
	}
	m.command = 0
	if errors.Is(r.Err, driver.ErrNotHeld) {
		c.missing(c.claims[m.claim], 0)
	}
	switch {
	case r.Lost && c.repeats(s) && (s.Op != Notify || c.now.Sub(m.began) < notifyTime):
		c.at(&m.timer, m.number|messageBit, c.now.Add(c.pause(m.failed)))
		m.failed++
	case m.topic != (topic{}) && c.closing == nil:
		m.began = never
		c.at(&m.timer, m.number|messageBit, c.now.Add(changeGap))
	default:
		c.forgetMessage(m)
	}
}

func (c *Core) forgetMessage(m *message) {
	delete(c.messages, m.number)
	delete(c.topics, m.topic)
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
