package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// reconnect measures how long many processes take to recover when all of them lose all connections
// at once, as after the crash of a primary, with TLS in front of the server. It reports the time
// until all processes listen again, and the time until all have received a heartbeat reply. Each
// process holds a key.
func (r *report) reconnect(ctx context.Context) ([]row, error) {
	const ttl = 30 * time.Second
	n := r.effort.reconnect
	name := func(what string) string { return fmt.Sprintf("%d processes reconnect with TLS: %s", n, what) }
	if !r.lab.here[one] {
		return []row{{name: name("listening again")}}, nil
	}
	t, err := r.lab.target(one)
	if err != nil {
		return nil, err
	}
	defer t.Close(context.WithoutCancel(ctx))
	uri, err := url.Parse(r.lab.uris[one])
	if err != nil {
		return nil, err
	}
	front, err := newTLSFront(uri.Host)
	if err != nil {
		return nil, err
	}
	defer front.close()
	children, _, err := startChildren(ctx, n, job{
		Do: "reconnect", Addr: r.lab.uris[one], Database: t.DB.Name(), TTL: ttl,
		Sessions: sessionsJob{Front: front.addr()},
	})
	defer func() {
		for _, c := range children {
			c.kill()
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, c := range children {
		if err := c.tell(); err != nil {
			return nil, err
		}
	}
	time.Sleep(100 * time.Millisecond) // until the children have read the order
	handshakes := front.handshakes.Load()
	began := time.Now()
	front.cut()
	var notices, heartbeats time.Duration // until the last process had recovered
	lost := 0
	for _, c := range children {
		text, err := c.await(ctx, "back")
		if err != nil {
			return nil, err
		}
		var noticesAt, heartbeatsAt int64
		var without int
		if _, err := fmt.Sscan(text, &noticesAt, &heartbeatsAt, &without); err != nil {
			return nil, err
		}
		notices, heartbeats = max(notices, time.Unix(0, noticesAt).Sub(began)), max(heartbeats, time.Unix(0, heartbeatsAt).Sub(began))
		lost += without
	}
	line := func(what string, after time.Duration) row {
		return row{name: name(what), unit: fmt.Sprint("the TTL, ", ttl)}.put(one, ratio(after, ttl),
			fmt.Sprintf("%.1f s for all processes; %d holds lost; %d handshakes", after.Seconds(), lost, front.handshakes.Load()-handshakes))
	}
	return []row{line("listening again", notices), line("all have had a heartbeat", heartbeats)}, nil
}

// reconnectJob opens sessions through the front, locks a key with each, waits until all of them
// listen, and prints "idle". The parent then tells it to proceed and breaks the connections. The
// child waits until all sessions listen again and have received a heartbeat reply, and prints
// "back", both times, and how many sessions have lost their hold.
func reconnectJob(j job) error {
	ctx, c := context.Background(), j.Sessions
	type process struct {
		session *dsync.Session
		acked   atomic.Int64 // when the last heartbeat reply came
		lost    atomic.Bool
	}
	ps := make([]process, c.Count)
	var open errgroup.Group
	open.SetLimit(8)
	for i := range ps {
		open.Go(func() (err error) {
			p := &ps[i]
			p.session, err = dsyncmongo.Connect(ctx, options.Client().ApplyURI(j.Addr).SetDialer(toFront(c.Front)).SetTLSConfig(&tls.Config{
				InsecureSkipVerify: true, // the front has a test certificate
			}), j.Database, &dsyncmongo.Options{Session: dsync.Options{
				TTL: j.TTL, AlwaysListen: true,
				Hooks: &dsync.Hooks{
					Heartbeat: func(_, _ time.Duration, err error) {
						if err == nil {
							p.acked.Store(time.Now().UnixNano())
						}
					},
					Lost: func(dsync.HoldInfo) { p.lost.Store(true) },
				},
			}})
			if err != nil {
				return err
			}
			if err := p.session.Mutex(keyName(c.From + i)).LockContext(ctx); err != nil {
				return err
			}
			for !admin.New(p.session).Stats().Listening {
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
	}
	if err := open.Wait(); err != nil {
		return err
	}
	fmt.Println("idle")
	<-j.proceed
	time.Sleep(200 * time.Millisecond) // by then the parent has broken the connections
	cut := time.Now().UnixNano()
	var noticesAt, heartbeatsAt int64
	for noticesAt == 0 || heartbeatsAt == 0 {
		time.Sleep(20 * time.Millisecond)
		now, notListening, late := time.Now().UnixNano(), 0, 0
		for i := range ps {
			if !admin.New(ps[i].session).Stats().Listening {
				notListening++
			}
			if ps[i].acked.Load() < cut {
				late++
			}
		}
		if noticesAt == 0 && notListening == 0 {
			noticesAt = now
		}
		if heartbeatsAt == 0 && late == 0 {
			heartbeatsAt = now
		}
	}
	lost := 0
	for i := range ps {
		if ps[i].lost.Load() {
			lost++
		}
	}
	fmt.Println("back", noticesAt, heartbeatsAt, lost)
	select {}
}

// toFront dials the front instead of the requested address.
type toFront string

func (f toFront) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, string(f))
}

// A tlsFront terminates TLS in front of a server.
type tlsFront struct {
	listener   net.Listener
	server     string
	handshakes atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newTLSFront(server string) (*tlsFront, error) {
	local := httptest.NewTLSServer(nil) // only for its certificate, which is valid for the loopback address
	local.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: local.TLS.Certificates})
	if err != nil {
		return nil, err
	}
	f := &tlsFront{listener: l, server: server, conns: make(map[net.Conn]bool)}
	go f.serve()
	return f, nil
}

func (f *tlsFront) addr() string { return f.listener.Addr().String() }

func (f *tlsFront) serve() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		go f.pass(c.(*tls.Conn))
	}
}

func (f *tlsFront) pass(c *tls.Conn) {
	defer c.Close()
	if err := c.Handshake(); err != nil {
		return
	}
	f.handshakes.Add(1)
	server, err := net.Dial("tcp", f.server)
	if err != nil {
		return
	}
	defer server.Close()
	f.note(c, true)
	defer f.note(c, false)
	go func() {
		io.Copy(server, c)
		server.Close()
	}()
	io.Copy(c, server)
}

func (f *tlsFront) note(c net.Conn, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if open {
		f.conns[c] = true
	} else {
		delete(f.conns, c)
	}
}

// cut breaks all connections.
func (f *tlsFront) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		go c.(*tls.Conn).NetConn().Close()
	}
}

func (f *tlsFront) close() {
	f.listener.Close()
	f.cut()
}
