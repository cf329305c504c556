package clockcheck_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A cluster is a set of servers, by address. Clients reach them over net.Pipe.
type cluster struct {
	mu      sync.Mutex
	servers map[string]*fake
	done    chan struct{}
	wg      sync.WaitGroup
}

// A fake is a server that has a clock and speaks enough of the wire protocol to report it.
type fake struct {
	// Set these fields before the first connection, or under the cluster's lock.
	clock     func() time.Time
	out, back func() time.Duration // return how long a hello and its answer are under way; nil: no time
	says      func() bson.D        // additional fields of its answers
	down      bool                 // refuses connections
	silent    bool                 // answers only the driver's own commands

	received []bson.Raw // all commands except the driver's own
	dials    int
}

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// newCluster returns a cluster of servers at the addresses, all with the host's clock.
func newCluster(addrs ...string) *cluster {
	c := &cluster{servers: make(map[string]*fake), done: make(chan struct{})}
	for _, addr := range addrs {
		c.servers[addr] = &fake{clock: time.Now, says: standalone()}
	}
	return c
}

func standalone() func() bson.D {
	process := bson.NewObjectID()
	return func() bson.D {
		return bson.D{e("isWritablePrimary", true), e("topologyVersion", bson.D{e("processId", process), e("counter", int64(0))})}
	}
}

func router() func() bson.D {
	process := bson.NewObjectID()
	return func() bson.D {
		return bson.D{e("isWritablePrimary", true), e("msg", "isdbgrid"), e("topologyVersion", bson.D{e("processId", process), e("counter", int64(0))})}
	}
}

// set makes the servers at hosts a replica set whose primary is the first.
func (c *cluster) set(name string, hosts ...string) {
	for i, addr := range hosts {
		process := bson.NewObjectID()
		c.servers[addr].says = func() bson.D {
			return bson.D{
				e("isWritablePrimary", i == 0), e("secondary", i > 0), e("setName", name), e("setVersion", 1),
				e("hosts", hosts), e("passives", bson.A{"passive:27017"}), e("arbiters", bson.A{"arbiter:27017"}),
				e("me", addr), e("primary", hosts[0]),
				e("topologyVersion", bson.D{e("processId", process), e("counter", int64(6))}),
			}
		}
	}
}

// options returns options for a client of the servers at hosts.
func (c *cluster) options(hosts ...string) *options.ClientOptions {
	return options.Client().SetHosts(hosts).SetDialer(c).SetServerMonitoringMode("poll").
		SetServerSelectionTimeout(5 * time.Second)
}

// change changes the cluster while it is in use.
func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// received returns the commands that the server at addr got since the last call.
func (c *cluster) received(addr string) []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	received := c.servers[addr].received
	c.servers[addr].received = nil
	return received
}

// dials returns how many connections to the server at addr were made.
func (c *cluster) dials(addr string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[addr].dials
}

// close ends all connections and waits until they have ended.
func (c *cluster) close() {
	close(c.done)
	c.wg.Wait()
}

func (c *cluster) DialContext(_ context.Context, _, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.servers[addr]
	if f == nil || f.down {
		return nil, errors.New("connection refused by " + addr)
	}
	f.dials++
	here, there := net.Pipe()
	c.wg.Go(func() { c.serve(f, there) })
	return here, nil
}

func (c *cluster) serve(f *fake, conn net.Conn) {
	defer conn.Close()
	for {
		cmd, reply, err := receive(conn)
		if err != nil {
			return
		}
		answer, ok := c.handle(f, cmd)
		if !ok {
			gone := make(chan struct{})
			go func() { _, _ = conn.Read(make([]byte, 1)); close(gone) }()
			select {
			case <-gone:
			case <-c.done:
				conn.Close()
				<-gone
			}
			return
		}
		if reply(answer) != nil {
			return
		}
	}
}

// handle returns f's answer to a command, after the delays of f. It returns false if f does not
// answer.
func (c *cluster) handle(f *fake, cmd bson.Raw) (bson.D, bool) {
	c.mu.Lock()
	out, back, says, clock, silent := f.out, f.back, f.says, f.clock, f.silent
	// A command of the client has a session; the driver's own commands have none.
	_, err := cmd.LookupErr("lsid")
	own := err != nil
	if !own {
		f.received = append(f.received, cmd)
	}
	c.mu.Unlock()
	if first, _ := cmd.IndexErr(0); first.Key() == "endSessions" {
		return bson.D{e("ok", 1)}, true
	}
	if !own && silent {
		return nil, false
	}
	if !own && out != nil {
		time.Sleep(out())
	}
	answer := append(says(), // the fields that a test sets come first and take precedence
		e("localTime", clock().Truncate(time.Millisecond)),
		e("maxBsonObjectSize", 16<<20), e("maxMessageSizeBytes", 48000000), e("maxWriteBatchSize", 100000),
		e("minWireVersion", 0), e("maxWireVersion", 9), e("logicalSessionTimeoutMinutes", 30), e("ok", 1))
	if !own && back != nil {
		time.Sleep(back())
	}
	return answer, true
}

// receive reads one message, an OP_QUERY of the handshake or an OP_MSG, and returns a function that
// writes the reply to that message.
func receive(conn net.Conn) (bson.Raw, func(bson.D) error, error) {
	const opReply, opQuery, opMsg = 1, 2004, 2013
	head := make([]byte, 16)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, nil, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(head)-16)
	if _, err := io.ReadFull(conn, body); err != nil {
		return nil, nil, err
	}
	var doc bson.Raw
	var prefix []byte // bytes before the reply's body
	var code uint32
	switch binary.LittleEndian.Uint32(head[12:]) {
	case opMsg:
		doc, prefix, code = body[5:], make([]byte, 5), opMsg
	case opQuery:
		name := strings.IndexByte(string(body[4:]), 0)
		doc, prefix, code = body[4+name+1+8:], make([]byte, 20), opReply
		prefix[16] = 1
	default:
		return nil, nil, errors.New("a message of a kind that the fake does not know")
	}
	doc = doc[:binary.LittleEndian.Uint32(doc)]
	reply := func(d bson.D) error {
		raw, err := bson.Marshal(d)
		if err != nil {
			return err
		}
		msg := binary.LittleEndian.AppendUint32(nil, uint32(16+len(prefix)+len(raw)))
		msg = binary.LittleEndian.AppendUint32(msg, 1)
		msg = append(msg, head[4:8]...)
		msg = binary.LittleEndian.AppendUint32(msg, code)
		msg = append(append(msg, prefix...), raw...)
		_, err = conn.Write(msg)
		return err
	}
	return doc, reply, nil
}

// bubble runs f in a bubble with a cluster of servers at the addresses, and closes the cluster at
// the end.
func bubble(t *testing.T, f func(t *testing.T, c *cluster), addrs ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(addrs...)
		t.Cleanup(c.close)
		f(t, c)
	})
}

// connect returns a client that is disconnected at the end of the test.
func connect(t testing.TB, opt *options.ClientOptions) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Disconnect gets no deadline, because with a deadline the driver waits in a busy loop
		// (v2.9.3, pool.close) that never ends in a bubble.
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// ahead returns a clock that is d ahead of the host's.
func ahead(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

// hesitation is how much later than usual a new client may be ready. When an operation waits for a
// server, the driver first reads which servers are known, and only then registers the operation
// (v2.9.3, Topology.Subscribe). If a server is found between these steps, the operation sees it
// only at the next poll, half a second later. That happens once in a few thousand runs.
const hesitation = 510 * time.Millisecond

// always returns a function that always returns the delay d.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// holds reports whether truth is within offset ± bound.
func holds(truth, offset, bound time.Duration) bool { return (truth - offset).Abs() <= bound }

func check(t testing.TB, client *mongo.Client, opt *clockcheck.Options) clockcheck.Result {
	t.Helper()
	r, err := clockcheck.Check(t.Context(), client, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
