package clientgo_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("the network is cut")

// A network is a dialer that can cut its connections and lose a reply.
type network struct {
	mu    sync.Mutex
	isCut bool
	lose  string // the command whose next reply is lost; "": none
	conns []net.Conn
}

// cut closes all connections, and refuses new ones.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
	for _, c := range n.conns {
		c.Close()
	}
}

// loseReply loses the reply to the next command of that name.
func (n *network) loseReply(command string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = command
}

func (n *network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut {
		c.Close()
		return nil, errCut
	}
	n.conns = append(n.conns, c)
	return &conn{Conn: c, n: n}, nil
}

// A conn is used by one goroutine at a time: to write a command, and then to read the reply.
type conn struct {
	net.Conn
	n *network

	mu    sync.Mutex
	loses bool
}

func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	// A command is a document. Its first field is a string (type 2) and is named after the command.
	if lose := c.n.lose; lose != "" && bytes.Contains(b, []byte("\x02"+lose+"\x00")) {
		c.n.lose = ""
		c.mu.Lock()
		c.loses = true
		c.mu.Unlock()
	}
	c.n.mu.Unlock()
	return c.Conn.Write(b)
}

// Read returns what the server sends. A reply is lost only after it has arrived, so the server has
// executed the command.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.loses {
		c.Close()
		return 0, errCut
	}
	return n, err
}
