package proxy

import (
	"net"
	"testing"
)

// A connection that a link cuts while it is being dialled ends as any other does.
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
		t.Error("the connection to the server is open after the sender's has ended")
	}
}
