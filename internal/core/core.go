package core

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// A Config has the settings of a Core. They do not change.
type Config struct {
	TTL, Margin, Grace time.Duration
	Heartbeat          time.Duration // between two heartbeats
	Attempt            time.Duration // how long a command may take
	Poll               time.Duration // between two requests of a waiter
	HandOff            time.Duration // how long a grant may be handed off; 0: not at all
	Retry, Backoff     time.Duration // the first pause before a retry, and the longest

	// Rand returns a number in [0, n).
	Rand func(n int64) int64
}

// hold returns for how long a grant of d is good for its holder, from before its request was sent.
func (c *Config) hold(d time.Duration) time.Duration { return d - d/1000 - c.Margin - c.Grace }

// jitter returns d ± a tenth of it.
func (c *Config) jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(c.Rand(int64(d/5)+1))
}

// pause returns how long to wait before the next try after so many that failed.
func (c *Config) pause(failed int) time.Duration {
	d := min(c.Retry<<min(failed, 20), c.Backoff)
	return d/2 + time.Duration(c.Rand(int64(d/2)+1))
}

// The errors that callers and holders get.
var (
	ErrClosed  = errors.New("session closed")
	ErrLost    = errors.New("session lost")
	ErrRevoked = errors.New("asked to give the key up")
)

// A Core is one session. The zero Core is not ready: see [New].
type Core struct {
	cfg *Config
	now Instant

	session session
	claims  map[uint64]*claim // by number
	queues  map[string]*queue // of keys that somebody here wants or holds
	calls   map[uint64]string // the keys that callers wait for
	holds   map[uint64]use    // whose holder is not done
	others  map[string]other  // what is known of other sessions, by id
	sent    map[uint64]sent   // commands under way

	closing bool
	closed  bool
	last    struct{ claim, hold, command uint64 } // the last numbers that were given

	out []Effect // of the Step under way
}

// A sent command is under way. claim is the number of the claim that it is for, or 0.
type sent struct {
	op      Op
	session string // in whose name it was sent, or of Expire the session that it is about
	claim   uint64
	at      Instant
	other   []string // of Read
}

// New returns a Core. It does nothing until the first Acquire.
func New(cfg *Config) *Core {
	return &Core{
		cfg: cfg, claims: make(map[uint64]*claim), queues: make(map[string]*queue),
		calls: make(map[uint64]string), holds: make(map[uint64]use),
		others: make(map[string]other), sent: make(map[uint64]sent),
	}
}

// Step takes an event that happens now and returns its effects. now must not be before that of any Step
// before.
func (c *Core) Step(now Instant, e Event) []Effect {
	c.now, c.out = now, nil
	// First of all: after a freeze this may be the first thing that happens.
	if c.session.id != "" && now >= c.deadline() {
		c.lose()
	}
	switch e := e.(type) {
	case Acquire:
		c.acquire(e)
	case GiveUp:
		c.giveUp(e.Call)
	case Done:
		c.done(e.Hold)
	case Revoked:
		c.revoked(e)
	case Noticed:
		c.noticed(e.Notice)
	case Reply:
		c.reply(e)
	case Close:
		c.close()
	}
	c.due()
	return c.out
}

// Next returns when a Tick is due.
func (c *Core) Next() Instant {
	next := never
	if c.session.id != "" {
		next = min(c.deadline(), c.session.due)
	}
	for _, cl := range c.claims {
		next = min(next, cl.due)
	}
	if c.session.registerAt > 0 {
		next = min(next, c.session.registerAt)
	}
	return next
}

// due does what is due now. The order is that of numbers, not of a map.
func (c *Core) due() {
	c.sessionDue()
	for _, cl := range c.inOrder() {
		if cl.due <= c.now {
			cl.due = never
			c.move(cl, timer)
		}
	}
	c.discardDue()
	c.closeDue()
}

// inOrder returns the claims in the order of their numbers.
func (c *Core) inOrder() []*claim {
	all := make([]*claim, 0, len(c.claims))
	for _, n := range slices.Sorted(maps.Keys(c.claims)) {
		all = append(all, c.claims[n])
	}
	return all
}

// send sends a command for a claim, or for none.
func (c *Core) send(cmd Command, claim uint64) uint64 {
	c.last.command++
	id := c.last.command
	c.sent[id] = sent{cmd.Op, cmd.Session, claim, c.now, cmd.Sessions}
	c.out = append(c.out, Send{id, cmd})
	return id
}

// reply takes the answer to a command.
func (c *Core) reply(r Reply) {
	s, ok := c.sent[r.Command]
	if !ok {
		return
	}
	delete(c.sent, r.Command)
	if len(r.Notices) > 0 {
		c.notify(r.Notices)
	}
	switch s.op {
	case Register:
		c.registered(s, r)
	case Heartbeat:
		c.heartbeatAnswered(s, r)
	case Expire, Read:
		c.learned(s, r)
	case Unregister:
		c.session.unregistering = false
		c.lose()
	case Discard:
		c.discarded(s, r)
	case Join, Release:
		if cl := c.claims[s.claim]; cl != nil && cl.command == r.Command {
			cl.command = 0
			if s.op == Join {
				c.joinAnswered(cl, r)
			} else {
				c.releaseAnswered(cl, r)
			}
		}
	}
}
