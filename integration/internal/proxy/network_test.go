package proxy_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The network recognizes clients and members by every form of first message. So each sender's messages pass only over
// that sender's link.
func TestNetworkKnowsSenders(t *testing.T) {
	upstream := echo(t)
	for _, c := range []struct {
		name   string
		hello  bson.D
		sender string
	}{
		{"client", bson.D{{Key: "isMaster", Value: 1}, {Key: "client", Value: bson.D{{Key: "application", Value: bson.D{{Key: "name", Value: "c0"}}}}}}, "c0"},
		{"member", bson.D{{Key: "isMaster", Value: 1}, {Key: "hostInfo", Value: "host.example:27018"}}, "27018"},
		{"stranger", bson.D{{Key: "isMaster", Value: 1}, {Key: "client", Value: bson.D{{Key: "driver", Value: bson.D{}}}}}, ""},
	} {
		doc, err := bson.Marshal(c.hello)
		if err != nil {
			t.Fatal(err)
		}
		for form, m := range map[string][]byte{
			"OP_QUERY":               message(2004, "\x00\x00\x00\x00admin.$cmd\x00\x00\x00\x00\x00\xff\xff\xff\xff", doc),
			"OP_MSG":                 message(2013, "\x00\x00\x00\x00\x00", doc),
			"OP_MSG, sequence first": message(2013, "\x00\x00\x00\x00\x01\x06\x00\x00\x00s\x00\x00", doc),
		} {
			n := proxy.NewNetwork(t)
			n.Link("another").Cut()
			if got := ask(t, n.Proxy(upstream), m); !bytes.Equal(got, m) {
				t.Errorf("%s, %s: answer %q, want its own message", c.name, form, got)
			}
			n.Link(c.sender).Cut()
			if got := ask(t, n.Proxy(upstream), m); len(got) > 0 {
				t.Errorf("%s, %s: answer %q on a link that is cut", c.name, form, got)
			}
		}
	}
}

// message assembles a message from its parts.
func message(opCode uint32, before string, doc []byte) []byte {
	m := append(append(make([]byte, 16), before...), doc...)
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	binary.LittleEndian.PutUint32(m[12:], opCode)
	return m
}

// echo starts a server that sends back what it receives.
func echo(t *testing.T) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return lis.Addr().String()
}

// ask sends a message and reads an answer of the same length. It returns what arrives within
// 5 s.
func ask(t *testing.T, p *proxy.Proxy, m []byte) []byte {
	c, err := net.DialTimeout("tcp", p.Addr(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(m))
	read, _ := io.ReadFull(c, answer)
	return answer[:read]
}
