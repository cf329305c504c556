package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// reconnect is how long processes take that all lose all their connections at once, as after the crash of a
// primary, with TLS in front of the server: until each listens again, and until each has had a heartbeat
// acknowledged. Each holds a key.
func (r *report) reconnect(ctx context.Context) ([]row, error) {
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
	front, err := newTLSFront(r.lab.addr(one))
	if err != nil {
		return nil, err
	}
	defer front.close()
	var children []*child
	defer func() {
		for _, c := range children {
			c.kill()
		}
	}()
	for from := 0; from < n; from += perChild {
		c, err := startChild(ctx, job{
			Do: "reconnect", Addr: r.lab.uris[one], Database: t.DB.Name(), TTL: 30 * time.Second,
			Crowd: crowdJob{From: from, Sessions: min(perChild, n-from), Front: front.addr()},
		})
		if err != nil {
			return nil, err
		}
		children = append(children, c)
		if _, err := c.await(ctx, "idle"); err != nil {
			return nil, err
		}
	}
	for _, c := range children {
		if err := c.tell(); err != nil {
			return nil, err
		}
	}
	time.Sleep(100 * time.Millisecond) // until they have been told
	handshakes := front.handshakes.Load()
	began := time.Now()
	front.cut()
	var listen, beat []time.Duration
	lost := 0
	for _, c := range children {
		text, err := c.await(ctx, "back")
		if err != nil {
			return nil, err
		}
		var listened, beaten int64
		var without int
		if _, err := fmt.Sscan(text, &listened, &beaten, &without); err != nil {
			return nil, err
		}
		listen, beat = append(listen, time.Unix(0, listened).Sub(began)), append(beat, time.Unix(0, beaten).Sub(began))
		lost += without
	}
	line := func(what string, d []time.Duration) row {
		last := slices.Max(d)
		return row{name: name(what), unit: "the TTL, 30s"}.put(one, quotient(last.Seconds(), 30), fmt.Sprintf("all after %.1f s; %d holds lost; %d handshakes", last.Seconds(), lost, front.handshakes.Load()-handshakes))
	}
	return []row{line("listening again", listen), line("all have had a heartbeat", beat)}, nil
}

// reconnectJob opens sessions through the front, has each hold a key and listen, and says "idle". When it is told
// to, it waits until all of them listen again and have had a heartbeat, after their connections have broken, and
// says "back", when that was, and how many have lost their holds.
func reconnectJob(j job) error {
	ctx, c := context.Background(), j.Crowd
	type process struct {
		session *dsync.Session
		beat    atomic.Int64 // the last one that was acknowledged
		lost    atomic.Bool
	}
	ps := make([]process, c.Sessions)
	var open errgroup.Group
	open.SetLimit(8)
	for i := range ps {
		open.Go(func() (err error) {
			p := &ps[i]
			p.session, err = dsyncmongo.Connect(ctx, options.Client().ApplyURI(j.Addr).SetDialer(toFront(c.Front)).SetTLSConfig(&tls.Config{
				InsecureSkipVerify: true, // the front's certificate is made for the occasion
			}), j.Database, &dsyncmongo.Options{Options: dsync.Options{
				TTL: j.TTL, AlwaysListen: true,
				Hooks: &dsync.Hooks{
					Heartbeat: func(_, _ time.Duration, err error) {
						if err == nil {
							p.beat.Store(time.Now().UnixNano())
						}
					},
					Lost: func(dsync.LostInfo) { p.lost.Store(true) },
				},
			}})
			if err != nil {
				return err
			}
			if err := p.session.Mutex(keyName(c.From + i)).LockContext(ctx); err != nil {
				return err
			}
			for !p.session.Stats().Listening {
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
	}
	if err := open.Wait(); err != nil {
		return err
	}
	fmt.Println("idle", 0)
	<-j.told
	told := time.Now().Add(200 * time.Millisecond) // by then the connections are cut
	time.Sleep(time.Until(told))
	var listened, beaten time.Time
	for listened.IsZero() || beaten.IsZero() {
		time.Sleep(20 * time.Millisecond)
		now, deaf, late := time.Now(), 0, 0
		for i := range ps {
			if !ps[i].session.Stats().Listening {
				deaf++
			}
			if ps[i].beat.Load() < told.UnixNano() {
				late++
			}
		}
		if listened.IsZero() && deaf == 0 {
			listened = now
		}
		if beaten.IsZero() && late == 0 {
			beaten = now
		}
	}
	lost := 0
	for i := range ps {
		if ps[i].lost.Load() {
			lost++
		}
	}
	fmt.Println("back", listened.UnixNano(), beaten.UnixNano(), lost)
	select {}
}

// toFront dials the front, whatever the address.
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
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
