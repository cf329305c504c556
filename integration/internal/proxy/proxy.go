// Package proxy is a TCP proxy between a MongoDB driver and a server that
// understands as much of the wire protocol as it takes to lose one reply.
//
// Clients must connect with directConnection=true, else they learn the names
// of the replica set's members and go around it.
package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Fate says what becomes of one command.
type Fate int

const (
	// Pass forwards the command and its reply.
	Pass Fate = iota
	// LoseReply forwards the command and swallows the reply; the connection
	// stays open, so that the caller waits until its deadline.
	LoseReply
	// CutReply forwards the command, waits for the server's reply, so that the
	// command surely was carried out, and closes the connection in place of it.
	CutReply
	// LoseRequest swallows the command; the server never sees it.
	LoseRequest
	// LateReply forwards the command and holds the reply until [Proxy.Heal].
	LateReply
	// LateRequest holds the command and what comes after it on its connection
	// until [Proxy.Heal], then forwards it.
	LateRequest
)

// A Proxy is one listener in front of one server. Its methods may be called at
// any time and concurrently.
type Proxy struct {
	upstream string
	lis      net.Listener

	mu      sync.Mutex
	conns   map[*conn]struct{}
	rule    func(Command) Fate
	open    chan struct{} // closed while nothing is hung
	delay   time.Duration // of replies
	refused bool
	healed  chan struct{} // closed by the next Heal

	wg sync.WaitGroup
}

// New starts a proxy on a free loopback port in front of upstream, host:port.
// It ends with the test.
func New(t testing.TB, upstream string) *Proxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{
		upstream: upstream,
		lis:      lis,
		conns:    make(map[*conn]struct{}),
		open:     make(chan struct{}),
		healed:   make(chan struct{}),
	}
	close(p.open)
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.stop)
	return p
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.lis.Addr().String() }

// URI is a connection string that leads through the proxy.
func (p *Proxy) URI() string {
	return "mongodb://" + p.Addr() + "/?directConnection=true"
}

// Rule sets the function that decides what becomes of each command from now on;
// nil passes everything. It is called for one command at a time.
func (p *Proxy) Rule(f func(Command) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = f
}

// Once sets a rule that gives the fate to the first command that match is true
// for, and returns a channel that closes when there was one.
func (p *Proxy) Once(fate Fate, match func(Command) bool) <-chan struct{} {
	done := make(chan struct{})
	var hit bool
	p.Rule(func(c Command) Fate {
		if hit || !match(c) {
			return Pass
		}
		hit = true
		close(done)
		return fate
	})
	return done
}

// Hang lets nothing through, in either direction, until Heal. Connections are
// accepted and stay open.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Cut closes every connection, and new ones at once, until Heal. It goes on listening:
// somebody else might take the port.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.refused = true
	p.mu.Unlock()
	p.Reset()
}

// Reset closes every connection once; new ones are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// Delay makes every reply wait for d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends Hang, Cut and Delay, takes the rule away and lets everything that
// was held go on.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = nil
	p.delay = 0
	select {
	case <-p.open:
	default:
		close(p.open)
	}
	close(p.healed)
	p.healed = make(chan struct{})
	p.refused = false
}

func (p *Proxy) stop() {
	p.lis.Close()
	p.Cut()
	p.free()
	p.wg.Wait()
}

// free lets go what is held without listening again.
func (p *Proxy) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
	close(p.healed)
	p.healed = make(chan struct{})
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		down, err := p.lis.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			p.serve(down)
		}()
	}
}

func (p *Proxy) serve(down net.Conn) {
	if p.cut() {
		down.Close()
		return
	}
	up, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
	if err != nil {
		down.Close()
		return
	}
	c := &conn{p: p, up: up, down: down, done: make(chan struct{}), fates: make(map[int32]Fate)}
	p.mu.Lock()
	if p.refused {
		p.mu.Unlock()
		c.close()
		return
	}
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()

	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); defer c.close(); c.requests() }()
	go func() { defer both.Done(); defer c.close(); c.replies() }()
	both.Wait()
}

func (p *Proxy) cut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// decide asks the rule.
func (p *Proxy) decide(cmd Command) Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rule == nil {
		return Pass
	}
	return p.rule(cmd)
}

// conn is a client's connection and its counterpart at the server.
type conn struct {
	p        *Proxy
	up, down net.Conn
	once     sync.Once
	done     chan struct{}

	mu    sync.Mutex
	fates map[int32]Fate // by request id, of those that are not Pass
}

func (c *conn) close() {
	c.once.Do(func() {
		close(c.done)
		c.up.Close()
		c.down.Close()
	})
}

var errClosed = errors.New("proxy: connection closed")

// wait returns when the proxy's state lets a message through.
func (c *conn) wait() error {
	c.p.mu.Lock()
	open := c.p.open
	c.p.mu.Unlock()
	return c.await(open)
}

// await waits for ch, while the connection is open.
func (c *conn) await(ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-c.done:
		return errClosed
	}
}

// slow waits for what replies are delayed by.
func (c *conn) slow() error {
	c.p.mu.Lock()
	delay := c.p.delay
	c.p.mu.Unlock()
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

// heal returns at the next Heal.
func (c *conn) heal() error {
	c.p.mu.Lock()
	healed := c.p.healed
	c.p.mu.Unlock()
	return c.await(healed)
}

func (c *conn) requests() {
	for {
		m, err := read(c.down)
		if err != nil {
			return
		}
		if cmd, ok := m.command(); ok {
			fate := c.p.decide(cmd)
			switch fate {
			case LoseRequest:
				continue
			case LateRequest:
				if c.heal() != nil {
					return
				}
			case LoseReply, CutReply, LateReply:
				c.mu.Lock()
				c.fates[m.requestID()] = fate
				c.mu.Unlock()
			}
		}
		if c.wait() != nil {
			return
		}
		if _, err := c.up.Write(m); err != nil {
			return
		}
	}
}

func (c *conn) replies() {
	for {
		m, err := read(c.up)
		if err != nil {
			return
		}
		c.mu.Lock()
		fate := c.fates[m.responseTo()]
		delete(c.fates, m.responseTo())
		c.mu.Unlock()
		switch fate {
		case LoseReply:
			continue
		case CutReply:
			return
		case LateReply:
			if c.heal() != nil {
				return
			}
		}
		if c.slow() != nil || c.wait() != nil {
			return
		}
		if _, err := c.down.Write(m); err != nil {
			return
		}
	}
}

// read reads one whole message.
func read(r io.Reader) (message, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := message(head[:]).length()
	if n < headerLen || n > maxMessage {
		return nil, errors.New("proxy: not a MongoDB message")
	}
	m := make(message, n)
	copy(m, head[:])
	_, err := io.ReadFull(r, m[headerLen:])
	return m, err
}
