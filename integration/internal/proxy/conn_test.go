package proxy

import (
	"net"
	"testing"
)

// If a link is cut while the proxy dials the server for a connection on that link, the connection
// to the server is closed, too.
func TestCutWhileDialling(t *testing.T) {
	lis := listen(t)
	defer lis.Close()
	sender, down := net.Pipe()
	defer sender.Close()

	c := &conn{down: down, done: make(chan struct{}), fates: make(map[int32]verdict)}
	c.close()
	if !c.dial(route{upstream: lis.Addr().String()}) {
		t.Fatal("the server can't be reached")
	}
	if _, err := c.up.Write([]byte("late")); err == nil {
		t.Error("the connection to the server is still open after the sender's was closed")
	}
}
