package measure

import (
	"context"
	"net"
	"sync/atomic"
)

// A wire is a dialer that counts the bytes on its connections.
type wire struct {
	net.Dialer
	bytes atomic.Int64
}

// DialContext implements the driver's options.ContextDialer.
func (w *wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := w.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, &w.bytes}, nil
}

type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}
