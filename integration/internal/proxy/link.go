package proxy

import (
	"sync"
	"time"
)

// A Link is a way that faults can be put on: all connections through one proxy, or all
// of one sender through the proxies of a network. A connection is on two links, and
// suffers what is put on either. Its methods may be called at any time and concurrently.
type Link struct {
	mu     sync.Mutex
	conns  map[*conn]struct{}
	rule   func(Command) Fate
	hung   [2]bool       // by direction
	delay  time.Duration // of replies
	cut    bool
	healed chan struct{} // closed by the next Heal
}

func newLink() *Link {
	return &Link{conns: make(map[*conn]struct{}), healed: make(chan struct{})}
}

// Rule sets the function that decides what becomes of each command from now on;
// nil passes everything. It is called for one command at a time.
func (l *Link) Rule(f func(Command) Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule = f
}

// Once sets a rule that gives the fate to the first command that match is true
// for, and returns a channel that closes when there was one.
func (l *Link) Once(fate Fate, match func(Command) bool) <-chan struct{} {
	done := make(chan struct{})
	var hit bool
	l.Rule(func(c Command) Fate {
		if hit || !match(c) {
			return Pass
		}
		hit = true
		close(done)
		return fate
	})
	return done
}

// Hang lets nothing through, in either direction, until Heal. Connections are
// accepted and stay open.
func (l *Link) Hang() { l.hang(toServer, toSender) }

// HangRequests lets nothing through to the server until Heal.
func (l *Link) HangRequests() { l.hang(toServer) }

// HangReplies lets nothing through from the server until Heal.
func (l *Link) HangReplies() { l.hang(toSender) }

func (l *Link) hang(ways ...direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ways {
		l.hung[d] = true
	}
}

// Cut closes every connection, and new ones at once, until Heal. It goes on listening:
// somebody else might take the port.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for c := range l.conns {
		c.close()
	}
}

// Delay makes every reply wait for d.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Heal ends Hang, Cut and Delay, takes the rule away and lets everything that
// was held go on.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule = nil
	l.hung = [2]bool{}
	l.delay = 0
	l.cut = false
	close(l.healed)
	l.healed = make(chan struct{})
}

// add puts a connection on the link, and reports whether it may be there.
func (l *Link) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *Link) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// shut returns what to wait for before a message may go that way, nil if for nothing.
func (l *Link) shut(d direction) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hung[d] {
		return nil
	}
	return l.healed
}

// decide asks the rule.
func (l *Link) decide(cmd Command) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rule == nil {
		return verdict{}
	}
	return verdict{l.rule(cmd), l.healed}
}

// slowness is what replies are delayed by.
func (l *Link) slowness() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}
