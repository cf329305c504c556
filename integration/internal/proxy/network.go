package proxy

import (
	"sync"
	"testing"
)

// A Network is the proxies in front of several servers. It tells whose the connections
// through them are, wherever they lead. Its methods may be called concurrently.
type Network struct {
	t testing.TB

	mu      sync.Mutex
	proxies map[string]*Proxy // by upstream
	links   map[string]*Link  // by sender
}

// NewNetwork returns a network without proxies. Those that it is asked for end with
// the test.
func NewNetwork(t testing.TB) *Network {
	return &Network{t: t, proxies: make(map[string]*Proxy), links: make(map[string]*Link)}
}

// Proxy returns the proxy in front of upstream, host:port, which it starts when it is
// asked for the first time.
func (n *Network) Proxy(upstream string) *Proxy {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.proxies[upstream]
	if p == nil {
		p = start(n.t, listen(n.t), n, route{upstream: upstream})
		n.proxies[upstream] = p
	}
	return p
}

// Link returns what leads from a sender to any of the servers. A client is known by
// its application name, appName in a URI, and a mongod by its port, if it runs with the
// parameter enableTestCommands: only then it says who it is. Those that don't say are
// the sender "".
//
// A sender tells its name in the first message of a connection. A connection is
// accepted before, and then closed or held.
func (n *Network) Link(sender string) *Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[sender]
	if l == nil {
		l = newLink()
		n.links[sender] = l
	}
	return l
}
