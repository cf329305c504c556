// Package proxy is a TCP proxy between MongoDB drivers and a server that understands
// as much of the wire protocol as it takes to lose one reply, and to tell whose a
// connection is; and networks of such proxies.
//
// A driver that learns the names of a replica set's members goes around a proxy: either
// clients connect with directConnection=true, or the set's configuration names proxies
// in place of its members.
package proxy

import (
	"net"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Proxy is one listener in front of one server. Its methods may be called at
// any time and concurrently. Those of its Link are about all connections through it.
type Proxy struct {
	*Link
	net    *Network
	routes []route // of connections, in turn; one that can't be reached is left out
	lis    net.Listener
	wg     sync.WaitGroup
}

// A route is where connections lead.
type route struct {
	upstream string
	service  bson.ObjectID // by which a load balancer's clients know the upstream; zero: there is none
}

// New starts a proxy on a free loopback port in front of upstream, host:port.
// It ends with the test.
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

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.lis.Addr().String() }

// URI is a connection string that leads through the proxy.
func (p *Proxy) URI() string {
	return "mongodb://" + p.Addr() + "/?directConnection=true"
}

// Outgoing returns what leads from the server behind the proxy, a mongod, to the other
// servers of the network.
func (p *Proxy) Outgoing() *Link {
	_, port, _ := net.SplitHostPort(p.routes[0].upstream)
	return p.net.Link(port)
}

// stop ends the proxy. What is held ends with its connection.
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

// serve forwards what comes on one connection, until it ends. It leads to routes[turn].
func (p *Proxy) serve(down net.Conn, turn int) {
	c := &conn{down: down, done: make(chan struct{}), fates: make(map[int32]verdict)}
	defer c.close()
	if !c.join(p.Link) {
		return
	}
	defer c.leave()
	// A server of MongoDB's never speaks first: nothing is due to it or from it before
	// the sender has said who it is.
	first, err := read(down)
	if err != nil || !c.join(p.net.Link(first.sender())) {
		return
	}
	// The server's refusal is an answer, too: it must not come through what is hung.
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
