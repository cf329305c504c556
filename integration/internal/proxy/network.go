package proxy

import (
	"sync"
	"testing"
)

// A Network consists of proxies in front of several servers, and knows who opened each
// connection. The methods may be called concurrently.
type Network struct {
	t testing.TB

	mu      sync.Mutex
	proxies map[string]*Proxy // by upstream address
	links   map[string]*Link  // by sender
}

// NewNetwork returns a network without proxies. Its proxies are stopped at the end of the test.
func NewNetwork(t testing.TB) *Network {
	return &Network{t: t, proxies: make(map[string]*Proxy), links: make(map[string]*Link)}
}

// Proxy returns the proxy in front of upstream (host:port). The first call for an upstream starts its proxy.
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

// Link returns the link from a sender to all servers. A client identifies itself by its application
// name (appName in a URI). A mongod identifies itself by its port, but only if it runs with the
// parameter enableTestCommands. All other connections belong to the sender "".
//
// A sender identifies itself in the first message of a connection. So a connection is accepted even if the sender's
// link is cut or hangs, and is closed or held after that message.
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
