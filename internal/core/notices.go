package core

import (
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A message has notices for other sessions. It is sent again until the store has accepted it or notifyTime is over.
type message struct {
	timer
	number  uint64
	notices []driver.Notice
	began   Instant // when sending began; never: the message was sent, and is kept only for changeGap
	failed  int     // failed sends
	command uint64  // the command under way, or inLine; 0: none
	key     string  // the key whose changes until the send it announces; "": it has other notices
	again   bool    // the key has changed again since the message was sent
}

// notifyTime is how long a session tries to send a notice. With default settings, MongoDB elects a primary within about
// twelve seconds. So a waiter that was granted a key just before an election is notified right after it. A later notice
// is of little use, since waiters poll.
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
		m.again = true
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

// messageDue sends the message. If the message announces a key's changes and was sent already, messageDue sends it
// again if the key has changed since, and otherwise forgets it.
func (c *Core) messageDue(m *message) {
	switch {
	case m.command != 0 && m.command != inLine:
		return
	case m.began == never && !m.again:
		c.forgetMessage(m)
		return
	case m.began == never:
		m.began, m.failed = c.now, 0
	}
	m.command = inLine
	if c.enterLane(m.failed > 0, delayed{number: m.number | messageBit}) {
		m.again = false
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
