// Package proxy is a TCP proxy between MongoDB drivers and a server. It understands enough of the
// wire protocol to lose a single reply and to recognize the sender of a connection. It can also
// make a network of such proxies.
//
// A driver that learns the addresses of a replica set's members connects to them directly and
// bypasses the proxy. So either clients must connect with directConnection=true, or the set's
// configuration must list the proxies' addresses instead of its members'.
package proxy

import (
	"net"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Proxy is a listener in front of one server, or of several routers. Its methods may be called
// concurrently. The methods of its Link apply to all connections through the proxy.
type Proxy struct {
	*Link
	net    *Network
	routes []route // used by connections in turn; unreachable routes are skipped
	lis    net.Listener
	wg     sync.WaitGroup
}

// A route is a destination of connections.
type route struct {
	upstream string
	service  bson.ObjectID // identifies the upstream to a load balancer's clients; zero if the proxy is not a load balancer
}

// New starts a proxy on a free loopback port in front of upstream (host:port). It is stopped at the
// end of the test.
func New(t testing.TB, upstream string) *Proxy {
	t.Helper()
	return NewNetwork(t).Proxy(upstream)
}

// listen listens on a free loopback port.
func listen(t testing.TB) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	return lis
}

func start(t testing.TB, lis net.Listener, n *Network, routes ...route) *Proxy {
	p := &Proxy{Link: newLink(), net: n, routes: routes, lis: lis}
	p.wg.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

// Addr returns the address (host:port) on which the proxy listens.
func (p *Proxy) Addr() string { return p.lis.Addr().String() }

// URI returns a connection string for connections through the proxy.
func (p *Proxy) URI() string {
	return "mongodb://" + p.Addr() + "/?directConnection=true"
}

// Outgoing returns the link from the mongod behind the proxy to the other servers of the network.
func (p *Proxy) Outgoing() *Link {
	_, port, _ := net.SplitHostPort(p.routes[0].upstream)
	return p.net.Link(port)
}

// stop ends the proxy. Held messages are lost with their connections.
func (p *Proxy) stop() {
	p.lis.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for i := 0; ; i++ {
		down, err := p.lis.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(down, i%len(p.routes)) })
	}
}

// serve forwards the messages of one connection until the connection ends. It tries routes[turn]
// first, and then the other routes in order.
func (p *Proxy) serve(down net.Conn, turn int) {
	c := &conn{down: down, done: make(chan struct{}), fates: make(map[int32]verdict)}
	defer c.close()
	if !c.join(p.Link) {
		return
	}
	defer c.leave()
	// A MongoDB server never speaks first, so there is nothing to forward before the sender has
	// identified itself.
	first, err := read(down)
	if err != nil || !c.join(p.net.Link(first.sender())) {
		return
	}
	// Don't dial while a link hangs: a refused connection would be an answer, too.
	if c.wait(toServer) != nil || !slices.ContainsFunc(slices.Concat(p.routes[turn:], p.routes[:turn]), c.dial) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		defer c.close()
		c.replies()
	})
	c.requests(first)
	c.close()
	back.Wait()
}
