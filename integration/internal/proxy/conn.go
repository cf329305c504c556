package proxy

import (
	"errors"
	"net"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A direction is the direction in which a message goes.
type direction int

const (
	toServer direction = iota
	toSender
)

// A conn is a sender's connection to the proxy, together with the proxy's connection to the server.
type conn struct {
	down    net.Conn
	links   []*Link       // the links that the connection belongs to
	service bson.ObjectID // added to the first reply, which is the reply to hello; zero: nothing is added
	done    chan struct{}

	mu    sync.Mutex
	up    net.Conn
	fates map[int32]verdict // by request ID, except Pass
}

// join adds the connection to the link, and reports whether the link accepts it.
func (c *conn) join(l *Link) bool {
	if !l.add(c) {
		return false
	}
	c.links = append(c.links, l)
	return true
}

// leave removes the connection from its links.
func (c *conn) leave() {
	for _, l := range c.links {
		l.remove(c)
	}
}

var errClosed = errors.New("proxy: connection closed")

// dial connects to the server and reports whether that succeeded. If the sender's connection was
// closed in the meantime, dial closes the connection to the server, too.
func (c *conn) dial(r route) bool {
	up, err := net.DialTimeout("tcp", r.upstream, 5*time.Second)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up, c.service = up, r.service
	if c.closed() {
		up.Close()
	}
	return true
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return
	}
	close(c.done)
	c.down.Close()
	if c.up != nil {
		c.up.Close()
	}
}

func (c *conn) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait waits until all links let messages pass in the direction d, or the connection is closed.
func (c *conn) wait(d direction) error {
	for {
		// Check all links each time: a link may have been shut while this loop waited for another.
		shut := c.shut(d)
		if shut == nil {
			return nil
		}
		if err := c.await(shut); err != nil {
			return err
		}
	}
}

func (c *conn) shut(d direction) <-chan struct{} {
	for _, l := range c.links {
		if ch := l.shut(d); ch != nil {
			return ch
		}
	}
	return nil
}

// await waits until ch or the connection is closed.
func (c *conn) await(ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-c.done:
		return errClosed
	}
}

// c.slow delays a reply by the sum of the links' delays.
func (c *conn) slow() error {
	var delay time.Duration
	for _, l := range c.links {
		delay += l.slowness()
	}
	if delay == 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.done:
		return errClosed
	}
}

// decide calls the links' rules in turn, until one chooses another fate than Pass.
func (c *conn) decide(cmd Command) verdict {
	for _, l := range c.links {
		if v := l.decide(cmd); v.Fate != Pass {
			return v
		}
	}
	return verdict{}
}

// requests forwards m and all later messages to the server, unless the links' rules decide otherwise.
func (c *conn) requests(m message) {
	for err := error(nil); err == nil; m, err = read(c.down) {
		if cmd, ok := m.command(); ok {
			v := c.decide(cmd)
			switch v.Fate {
			case LoseRequest:
				continue
			case LateRequest:
				if c.await(v.healed) != nil {
					return
				}
			case ShedRequest:
				if c.wait(toSender) != nil {
					return
				}
				if _, err := c.down.Write(shed(m.requestID())); err != nil {
					return
				}
				continue
			case LoseReply, CutReply, LateReply, ShedReply:
				c.mu.Lock()
				c.fates[m.requestID()] = v
				c.mu.Unlock()
			}
		}
		if c.wait(toServer) != nil {
			return
		}
		if _, err := c.up.Write(m); err != nil {
			return
		}
	}
}

func (c *conn) replies() {
	for first := true; ; first = false {
		m, err := read(c.up)
		if err != nil {
			return
		}
		if first && !c.service.IsZero() {
			m = m.with(bson.E{Key: "serviceId", Value: c.service})
		}
		c.mu.Lock()
		v := c.fates[m.responseTo()]
		delete(c.fates, m.responseTo())
		c.mu.Unlock()
		switch v.Fate {
		case LoseReply:
			continue
		case CutReply:
			return
		case ShedReply:
			m = shed(m.responseTo())
		case LateReply:
			if c.await(v.healed) != nil {
				return
			}
		}
		if c.slow() != nil || c.wait(toSender) != nil {
			return
		}
		if _, err := c.down.Write(m); err != nil {
			return
		}
	}
}
