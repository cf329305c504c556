package core

import (
	"maps"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A listener receives the session's notices. A session has at most one. It runs while somebody waits for a key,
// observes one, or has held one for a while, and stops when nobody has needed it for a TTL.
type listener struct {
	state    listening
	number   uint64         // number of the last listener that was opened
	readies  uint64         // how often a listener became ready
	at       Instant        // when to open a listener; never: nobody needs one, or one is running
	opened   Instant        // when the last listener was opened
	idle     Instant        // when somebody last needed a listener
	failed   int            // number of consecutive listeners that broke
	keys     map[string]int // number of observers, by key
	changes  int64          // how often the set of these keys has changed
	unlisted int            // how many of these keys did not fit into the last list
}

// listening is the state of a listener.
type listening int

const (
	silent  listening = iota // there is no listener
	opening                  // it runs, but may miss notices
	ready                    // it receives all notices
	unable                   // there is none, because the store can't notify
)

func (l *listener) running() bool { return l.state == opening || l.state == ready }

// is reports whether a listener with the given number is running.
func (l *listener) is(number uint64) bool { return l.running() && l.number == number }

// hears returns the number in l.readies if the listener is ready, and 0 otherwise. As long as it does not change, the
// listener misses no notice.
func (l *listener) hears() uint64 {
	if l.state == ready {
		return l.readies
	}
	return 0
}

// listenAfter is how long a session that only holds keys waits before it opens a listener. Most holds end sooner and
// need none.
const listenAfter = time.Second

// gather is how long the session waits before it opens a listener for a new key, so that more keys can be added.
const gather = 5 * time.Millisecond

// listen opens a listener after the given time, unless one is running already.
func (c *Core) listen(after time.Duration) {
	l := &c.listener
	if l.state != silent || c.session.id == "" {
		return
	}
	if l.failed == 0 || l.at == never { // otherwise a retry is scheduled already
		l.at = min(l.at, c.now.Add(after))
	}
	l.idle = c.now
}

// listenerDue opens the listener when it is due, if it is still needed.
func (c *Core) listenerDue() {
	l := &c.listener
	if l.at > c.now {
		return
	}
	l.at = never
	if !c.listenerNeeded() {
		return
	}
	l.number++
	l.state, l.opened, l.idle = opening, c.now, c.now
	keys := maps.Clone(l.keys)
	for _, cl := range c.claims {
		if c.breaks(cl, nil) {
			keys[cl.request.Key]++
		}
	}
	c.do(&Listen{l.number, c.session.id, sortedKeys(keys)})
}

// listenerNeeded reports whether anybody observes, waits or holds, or a claim lingers.
func (c *Core) listenerNeeded() bool {
	if len(c.listener.keys) > 0 || c.cfg.AlwaysListen {
		return true
	}
	for _, cl := range c.claims {
		if cl.request.Session == c.session.id && cl.listens() {
			return true
		}
	}
	return false
}

// listens reports whether the claim needs the listener: it waits, is held, or lingers.
func (cl *claim) listens() bool {
	switch cl.state {
	case waiting, held, lingering:
		return true
	case joining:
		return cl.requests > 1 || cl.request.Yield
	}
	return false
}

// keepListening stops a listener that nobody has needed for a TTL, and starts a listener if something is held. It is
// called after every acknowledged heartbeat.
func (c *Core) keepListening() {
	l := &c.listener
	switch {
	case c.listenerNeeded():
		l.idle = c.now
		c.listen(listenAfter)
	case l.running() && c.now.Sub(l.idle) > c.cfg.TTL:
		c.stopListening()
	}
}

func (c *Core) stopListening() {
	l := &c.listener
	if l.running() {
		l.state = silent
		c.do(StopListening{})
	}
	l.at, l.failed = never, 0
}

// observe changes the number of observers of a key. If the set of observed keys changes, the store is told. To receive
// the changes of a new key, the listener must be reopened.
func (c *Core) observe(key string, n int) {
	l := &c.listener
	before := l.keys[key]
	l.keys[key] += n
	if l.keys[key] <= 0 {
		delete(l.keys, key) // the running listener still receives the key's changes, which does no harm
	}
	l.idle = c.now
	if before == 0 || before+n == 0 {
		l.changes++
		c.announce()
	}
	if before == 0 && n > 0 {
		c.needSession()
		c.stopListening()
		c.listen(gather)
	}
}

// observed returns a command that tells the store which keys the session observes. The list is bounded, because it is
// part of the session's record, and MongoDB 4.4 writes the whole record to its oplog with each heartbeat.
func (c *Core) observed() *Command {
	l := &c.listener
	keys := sortedKeys(l.keys)
	n, size := 0, 0
	for n < len(keys) && size+len(keys[n]) <= driver.MaxObserved {
		size += len(keys[n])
		n++
	}
	before := l.unlisted
	if l.unlisted = len(keys) - n; before == 0 && l.unlisted > 0 {
		c.do(Unlisted{n, l.unlisted})
	}
	return &Command{Op: Announce, Session: c.session.id, Observed: keys[:n], Seq: l.changes}
}

// listenerBroken schedules another listener, unless the store can't notify. A new listener makes waiters request again,
// or looks read their keys. So the pause before the next listener grows with each failure, unless the broken listener
// had run for a while.
func (c *Core) listenerBroken(unsupported bool) {
	l := &c.listener
	if l.state = silent; unsupported {
		l.state = unable
		return
	}
	if c.now.Sub(l.opened) > c.cfg.Backoff {
		l.failed = 0
	}
	l.at = c.now.Add(c.cfg.pause(l.failed))
	l.failed++
}

// listenerReady is called when the listener begins to receive all notices that are sent. Earlier notices may have been
// missed. So all waiters request again, a heartbeat checks the holds, and observers read their keys. If more claims wait
// than may request at once, the heartbeat checks them, too: the look after it reads their keys, many per command, and
// only claims that were granted request again.
func (c *Core) listenerReady() {
	l := &c.listener
	l.state = ready
	l.readies++
	ours, waiters := c.those(func(cl *claim) bool { return cl.request.Session == c.session.id }), 0
	for _, cl := range ours {
		if cl.state == waiting {
			waiters++
		}
	}
	for _, cl := range ours {
		switch cl.state {
		case waiting:
			if waiters > c.cfg.PollLanes && c.awaitsGrant(cl) {
				c.doubt(cl)
			} else {
				c.fire(cl, wake, args{})
			}
		case held, lingering:
			c.heartbeatSoon()
			if !cl.shares() {
				c.crowded(cl) // others may have begun to wait, and the notices that say so may have been missed
			}
		}
	}
	for _, key := range sortedKeys(l.keys) {
		c.do(Changed{key})
	}
}

// awaitsGrant reports whether a look is enough for the claim, because it waits for its grant. A claim for a tick also waits
// for seals; a claim with First, or a Break, must learn of other holders to revoke them. A look does not show the end of a
// lease ahead either: if that notice was missed, the next poll finds out.
func (c *Core) awaitsGrant(cl *claim) bool {
	return cl.request.Tick == 0 && !cl.request.First && !c.breaks(cl, nil)
}

// noticed handles a notice to this session. The notice came from the listener, or was returned by one of the session's
// own commands.
func (c *Core) noticed(n driver.Notice) {
	if c.session.id == "" {
		return
	}
	if n.Session != "" && n.Session != c.session.id {
		return
	}
	cl := c.byID(n.Claim)
	switch n.Type {
	case driver.NoticeReady:
		c.listenerReady()
	case driver.NoticeChange:
		c.do(Changed{n.Key})
		for _, cl := range c.those(func(cl *claim) bool { return c.breaks(cl, nil) && cl.request.Key == n.Key }) {
			c.fire(cl, wake, args{})
		}
	case driver.NoticeRevoke:
		c.recorded(driver.Revocation{Key: n.Key, Claim: n.Claim})
	case driver.NoticeYield:
		if cl != nil {
			c.crowded(cl)
		}
	case driver.NoticeWake:
		if cl != nil {
			c.fire(cl, wake, args{})
		}
	case driver.NoticeGrant:
		switch {
		case cl == nil:
			c.unknownClaim(n.Key, n.Claim, n.Token)
		case cl.state.in(joining | waiting | checking):
			c.granted(cl, grant{token: n.Token, term: n.Term, crowded: n.Crowded})
		case cl.state == leaving:
			cl.stored = present
		}
	}
}

// crowded records that other sessions may be waiting for the claim's key, if the claim can yield. If the claim lingers,
// it is released.
func (c *Core) crowded(cl *claim) {
	if cl.request.Yield {
		cl.ender = max(cl.ender, byWaiters)
		c.fire(cl, othersCame, args{})
	}
}
