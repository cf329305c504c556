package clockcheck_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/internal/mongofake"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A cluster is a set of servers, by address.
type cluster struct {
	mu      sync.Mutex
	servers map[string]*fake
	all     []*mongofake.Server
}

// A fake is a server that has a clock and reports it.
type fake struct {
	*mongofake.Server
	// Set these fields before the first connection, or under the cluster's lock.
	clock     func() time.Time
	out, back func() time.Duration // return the delays of a hello and of its answer; nil: no delay
	says      func() bson.D        // additional fields of its answers
	down      bool                 // refuses connections
	silent    bool                 // answers only the driver's own commands

	received []bson.Raw // all commands that have a session
}

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// newCluster returns a cluster of servers at the addresses, all with the host's clock.
func newCluster(addrs ...string) *cluster {
	c := &cluster{servers: make(map[string]*fake)}
	for _, addr := range addrs {
		f := &fake{clock: time.Now, says: standalone()}
		f.Server = mongofake.New(func(name string, cmd bson.Raw) bson.D { return c.handle(f, name, cmd) })
		c.servers[addr] = f
		c.all = append(c.all, f.Server)
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
	n, _ := c.servers[addr].Connections()
	return n
}

// close ends all connections and waits until they have ended.
func (c *cluster) close() {
	for _, s := range c.all {
		s.End()
	}
	for _, s := range c.all {
		s.Wait()
	}
}

func (c *cluster) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.servers[addr]
	if f == nil || f.down {
		return nil, errors.New("connection refused by " + addr)
	}
	return f.DialContext(ctx, network, addr)
}

// handle returns f's answer to a command, after the delays of f.
func (c *cluster) handle(f *fake, name string, cmd bson.Raw) bson.D {
	c.mu.Lock()
	out, back, says, clock, silent := f.out, f.back, f.says, f.clock, f.silent
	// A command of the client has a session; the driver's own commands have none.
	_, err := cmd.LookupErr("lsid")
	own := err != nil
	if !own {
		f.received = append(f.received, cmd)
	}
	c.mu.Unlock()
	if name == "endSessions" {
		return mongofake.OK()
	}
	if !own && silent {
		return mongofake.Silent
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
	return answer
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
