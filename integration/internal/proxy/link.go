package proxy

import (
	"sync"
	"time"
)

// A Link is a set of connections to which faults can be applied. It contains all connections through one proxy, or all
// connections from one sender through the proxies of a network. A connection belongs to two links, and is affected by
// the faults of both. The methods may be called concurrently.
type Link struct {
	mu     sync.Mutex
	conns  map[*conn]struct{}
	rule   func(Command) Fate
	hung   [2]bool       // by direction
	delay  time.Duration // delay of replies
	cut    bool
	healed chan struct{} // closed by the next Heal
}

func newLink() *Link {
	return &Link{conns: make(map[*conn]struct{}), healed: make(chan struct{})}
}

// Rule sets the function that decides the fate of each command from now on; nil passes everything.
// The function is called for one command at a time.
func (l *Link) Rule(f func(Command) Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule = f
}

// Once sets a rule that applies the fate to the first command for which match returns true.
// The channel that it returns is closed when that command arrives.
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

// Hang stops all messages, in both directions, until Heal. Connections are accepted and stay open.
func (l *Link) Hang() { l.hang(toServer, toSender) }

// HangRequests stops all messages to the server until Heal.
func (l *Link) HangRequests() { l.hang(toServer) }

// HangReplies stops all messages from the server until Heal.
func (l *Link) HangReplies() { l.hang(toSender) }

func (l *Link) hang(ways ...direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ways {
		l.hung[d] = true
	}
}

// Cut closes all connections and, until Heal, every new connection at once. The proxy keeps
// listening, because otherwise another process could take the port.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for c := range l.conns {
		c.close()
	}
}

// Delay delays every reply by d.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Heal ends Hang, Cut and Delay, removes the rule and releases all held messages.
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

// add adds a connection to the link, and reports whether the link accepts it.
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

// shut returns nil if messages may pass in this direction now. Otherwise it returns a channel that is closed when they
// may pass again.
func (l *Link) shut(d direction) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hung[d] {
		return nil
	}
	return l.healed
}

// decide returns the rule's verdict on a command.
func (l *Link) decide(cmd Command) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rule == nil {
		return verdict{}
	}
	return verdict{l.rule(cmd), l.healed}
}

// slowness returns how long the link delays each reply.
func (l *Link) slowness() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}
