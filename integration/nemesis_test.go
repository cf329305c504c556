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
	nemesisFor  = flag.Duration("nemesis.duration", 0, "for how long TestNemesis injects faults; 0: not at all, 2m with LEASEHOLD_LONG set")
	nemesisSeed = flag.Uint64("nemesis.seed", 0, "seed of TestNemesis; 0: that of the run")
	nemesisDir  = flag.String("nemesis.dir", "", "folder that TestNemesis leaves its history, picture and table in; without one it leaves them only if it fails")
)

// A nemesis lets clients work on a server, harms it, them, and what is between, and
// keeps the history.
type nemesis struct {
	t    *testing.T
	name string // of the server
	room *room
	seed uint64
	ttl  time.Duration
	poll time.Duration
	dir  string // of the histories
	host string // HostDir of half of the clients; "": none
	rec  *history.Recorder

	// To look into the server with. What is read from a single one is never out of
	// date; of several a former primary may answer.
	single bool
	set    *mongod.Set // nil: it is none
	store  driver.Store
	docs   *mongo.Collection

	// What clients connect with is the same for all but for the name that is added to it.
	uri string
	net *proxy.Network

	// Of each client.
	clients []*proc.Proc
	starts  []int
	names   []string

	lanes    []*lane
	counts   map[string]int // of faults
	messages atomic.Int64   // that were lost or late

	rollbacks int // members that undid writes
}

// Locks, elections and fences under whatever can happen to a server, to a network and
// to processes: no rule of package history is broken, all calls end, and nothing is
// left behind.
func TestNemesis(t *testing.T) {
	t.Parallel()
	lab.Servers(t) // without one the test is skipped here
	if *nemesisFor == 0 && !testkit.Long() {
		lab.Skip(t, nil, "what it meets is chance: without LEASEHOLD_LONG or -nemesis.duration it does not run")
	}
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		n := &nemesis{t: t, name: s.Name, seed: cmp.Or(*nemesisSeed, lab.Seed), ttl: 3 * time.Second, counts: make(map[string]int)}
		n.net = proxy.NewNetwork(t)
		var harms []harm
		switch draw := n.source("server"); {
		case s.Has(server.Need{Container: true}):
			own, box := lab.StartIsolated(t)
			n.room, n.single = newRoom(t, own), true
			harms = n.containerHarms(box)
			n.uri = n.net.Proxy(n.room.Primary(t)).URI()
		case s.Has(server.Need{Members: true}):
			own := startBehind(t, n.net, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second, Env: skewed(t, draw)})
			n.room = newRoom(t, own)
			n.ttl = 6 * time.Second // longer than an election of a primary, by half
			n.set = own.Set()
			harms = n.setHarms(n.set, draw)
			n.uri = own.URI
		case s.Has(server.Need{Sharded: true, Binary: true}):
			own := lab.StartCluster(t, mongod.ClusterSpec{})
			n.room, n.single = newRoom(t, own), true
			n.ttl = 6 * time.Second // longer than a shard takes to start again
			harms = n.clusterHarms(own.Cluster(), draw)
			var routers []string
			for _, m := range own.Cluster().Routers() {
				routers = append(routers, n.net.Proxy(m.Addr).Addr())
			}
			n.uri = "mongodb://" + strings.Join(routers, ",") + "/?"
		default:
			lab.Skip(t, s, "a server that can't be harmed")
		}
		n.lanes = append(n.lanes, &lane{draw: n.source("server"), harms: harms, least: 4 * n.ttl, most: 10 * n.ttl})
		n.run()
	})
}

// source returns a source of random numbers that depends on the seed and the name.
func (n *nemesis) source(name string) *rand.Rand {
	var sum uint64
	for _, c := range name {
		sum = sum*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(n.seed, sum))
}

// skewed returns the environment of a server whose clock is right, or an hour from
// this host's, where there is libfaketime.
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
	defer func() { n.judge(time.Since(began)) }() // also if somebody does not come to an end
	n.harm(began.Add(lasts))

	for _, p := range n.clients {
		p.Tell(proc.Order{Do: "finish"})
	}
	for i, p := range n.clients {
		done := p.Await("done")
		if done.Err != "" {
			t.Logf("%s ended with %q", n.names[i], done.Err) // a slow server; what that leaves lapses
		}
		if done.Text != "" {
			t.Errorf("%s has left running:\n%s", n.names[i], done.Text)
		}
	}
	cancel()
	watching.Wait() // before records are swept
	n.logs(context.Background())
	n.clean()
	if n.set != nil {
		if n.rollbacks, err = n.set.Rollbacks(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := n.rec.Close(); err != nil {
		t.Fatal(err)
	}
	replayTraces(t, n.dir)
}

// harm injects faults until the end, and then heals everything.
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
