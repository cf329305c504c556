package integration_test

import (
	"cmp"
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/history"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

var (
	nemesisFor  = flag.Duration("nemesis.duration", 0, "how long TestNemesis injects faults; 0: the test is skipped, or takes 2m with LEASEHOLD_LONG set")
	nemesisSeed = flag.Uint64("nemesis.seed", 0, "seed of TestNemesis; 0: the seed of the run")
	nemesisDir  = flag.String("nemesis.dir", "", "directory in which TestNemesis always stores its history as lines and as a page, and its table; by default it stores them only if it fails")
)

// A nemesis lets clients work on a server while it injects faults into the server, the clients and
// their connections. It records the history.
type nemesis struct {
	t    *testing.T
	name string // the server's name
	room *room
	seed uint64
	ttl  time.Duration
	poll time.Duration
	dir  string // directory of the histories
	host string // HostDir for half of the clients, or "" for none
	rec  *history.Recorder

	// For reading from the server. If single is false, the server is a replica set, in which a
	// former primary can return stale data.
	single bool
	set    *mongod.Set // nil unless the server is a set that this test started
	store  driver.Store
	docs   *mongo.Collection

	// The clients' connection string, to which start adds the client's name.
	uri string
	net *proxy.Network

	// For each client:
	clients []*proc.Proc
	starts  []int
	names   []string

	lanes    []*lane
	counts   map[string]int // faults by kind
	messages atomic.Int64   // number of messages that lossy links did not pass unchanged

	rollbacks int // number of members that rolled back writes
}

// Locks, elections and fences follow the rules of package history, whatever faults servers, networks and processes
// have. All calls return, and nothing is left behind in the store.
func TestNemesis(t *testing.T) {
	t.Parallel()
	lab.Servers(t) // skips the test if there is no server
	if *nemesisFor == 0 && !testkit.Long() {
		lab.Skip(t, nil, "its faults are random, so it runs only with LEASEHOLD_LONG or -nemesis.duration")
	}
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		n := &nemesis{t: t, name: s.Name, seed: cmp.Or(*nemesisSeed, lab.Seed), ttl: 3 * time.Second, counts: make(map[string]int)}
		n.net = proxy.NewNetwork(t)
		var harms []harm
		switch draw := n.source("server"); {
		case s.Has(server.Need{Container: true}):
			own, box := lab.StartContainer(t, true)
			n.room, n.single = newRoom(t, own), true
			harms = n.containerHarms(box)
			n.uri = n.net.Proxy(n.room.Primary(t)).URI()
		case s.Has(server.Need{Members: true}):
			own := startBehind(t, n.net, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second, Env: skewed(t, draw)})
			n.room = newRoom(t, own)
			n.ttl = 6 * time.Second // one and a half times the duration of a primary's election
			n.set = own.Set()
			harms = n.setHarms(n.set, draw)
			n.uri = own.URI
		case s.Has(server.Need{Sharded: true, Binary: true}):
			own := lab.StartCluster(t, mongod.ClusterSpec{})
			n.room, n.single = newRoom(t, own), true
			n.ttl = 6 * time.Second // longer than a shard needs to restart
			harms = n.clusterHarms(own.Cluster(), draw)
			var routers []string
			for _, m := range own.Cluster().Routers() {
				routers = append(routers, n.net.Proxy(m.Addr).Addr())
			}
			n.uri = "mongodb://" + strings.Join(routers, ",") + "/?"
		default:
			lab.Skip(t, s, "the test can't inject faults into this server")
		}
		n.lanes = append(n.lanes, &lane{draw: n.source("server"), harms: harms, least: 4 * n.ttl, most: 10 * n.ttl})
		n.run()
	})
}

// source returns a source of random numbers that is determined by the seed and by name.
func (n *nemesis) source(name string) *rand.Rand {
	var sum uint64
	for _, c := range name {
		sum = sum*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(n.seed, sum))
}

// skewed returns the environment for a server whose clock is right or, with libfaketime, an hour
// off this host's.
func skewed(t *testing.T, draw *rand.Rand) []string {
	ahead := []time.Duration{0, time.Hour, -time.Hour}[draw.IntN(3)]
	env, ok := server.FakeClock(ahead)
	if !ok || ahead == 0 {
		return nil
	}
	t.Logf("the clocks of the servers are %v ahead", ahead)
	return env
}

func (n *nemesis) run() {
	const clients = 4
	t := n.t
	lasts := cmp.Or(*nemesisFor, 2*time.Minute)
	n.poll = n.room.short(n.ttl).PollInterval
	n.dir, n.host = t.TempDir(), newHostDir(t)
	var err error
	if n.rec, err = history.NewRecorder(n.dir, "nemesis"); err != nil {
		t.Fatal(err)
	}
	n.store = n.room.store()
	n.docs = n.room.Client(t).Database(n.room.DB).Collection(fencedColl)
	for _, key := range nemesisKeys() {
		if _, err := n.docs.InsertOne(t.Context(), bson.D{{Key: "_id", Value: key}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range clients {
		n.clients, n.starts, n.names = append(n.clients, nil), append(n.starts, 0), append(n.names, "")
		name := clientName(i)
		n.lanes = append(n.lanes,
			&lane{target: name, draw: n.source("link " + name), harms: n.linkHarms(n.net.Link(name), name), least: 2 * n.ttl, most: 8 * n.ttl},
			&lane{target: name, draw: n.source("client " + name), harms: n.clientHarms(i), least: 2 * n.ttl, most: 8 * n.ttl})
		n.start(i)
	}
	for _, p := range n.clients {
		p.Await("ready")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	if n.single {
		watching.Go(func() { n.watch(ctx) })
	}
	defer watching.Wait()
	defer cancel()
	began := time.Now()
	defer func() { n.judge(time.Since(began)) }() // keep the history even if a client does not end
	n.harm(began.Add(lasts))

	for _, p := range n.clients {
		p.Tell(proc.Order{Do: "finish"})
	}
	for i, p := range n.clients {
		done := p.Await("done")
		if done.Err != "" {
			t.Logf("%s ended with %q", n.names[i], done.Err) // the server was slow; whatever the client left behind will lapse
		}
		if done.Text != "" {
			t.Errorf("goroutines of %s are still running:\n%s", n.names[i], done.Text)
		}
	}
	cancel()
	watching.Wait() // stop watching before the records are swept
	n.logs(context.Background())
	n.clean()
	if n.set != nil {
		if n.rollbacks, err = n.set.Rollbacks(t.Context()); err != nil {
			t.Error(err)
		}
	}
	noErr(t, n.rec.Close())
	replayTraces(t, n.dir)
}

// harm injects faults until the time end, and then heals everything.
func (n *nemesis) harm(end time.Time) {
	for _, l := range n.lanes {
		l.due = time.Now().Add(between(l.draw, l.least/4, l.most/2))
	}
	for {
		l := slices.MinFunc(n.lanes, func(a, b *lane) int { return a.due.Compare(b.due) })
		if l.due.After(end) {
			break
		}
		time.Sleep(time.Until(l.due))
		if err := l.step(n.rec, n.counts); err != nil {
			n.t.Fatal(err)
		}
	}
	time.Sleep(time.Until(end))
	for _, l := range n.lanes {
		if err := l.end(); err != nil {
			n.t.Fatal(err)
		}
	}
}
