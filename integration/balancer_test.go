package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Through a load balancer, a client has a single address for all routers, and its connections reach
// the routers in turn. Even so, Open and Connect work, and sessions can listen and can wait for
// each other's locks. If a router exits, no lock is lost, because commands and listeners continue
// through the other router.
func TestLoadBalancer(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Sharded: true, Binary: true}, func(t *testing.T, s *server.Server) {
		own := lab.StartCluster(t, mongod.ClusterSpec{})
		r := newRoom(t, own)
		var addrs []string
		for _, m := range own.Cluster().Routers() {
			addrs = append(addrs, m.Addr)
		}
		uri := "mongodb://" + proxy.NewBalancer(t, addrs...).Addr() + "/?loadBalanced=true"
		var lost losses
		o := r.lasting()
		o.Hooks, o.Logger = lost.hooks(), r.logger()
		opened := r.open(server.Connect(t, uri), o)
		connected, err := dsyncmongo.Connect(r.opening(), options.Client().ApplyURI(uri), r.DB, &dsyncmongo.Options{Session: o})
		if err != nil {
			t.Fatalf("Connect: %v", err)
		}
		t.Cleanup(func() { connected.Close(context.Background()) })
		r.takeTurns(t, "turns", opened, connected)

		kept := lock(t, opened.Mutex("kept"))
		token := kept.Token()
		for i, m := range own.Cluster().Routers() {
			m.Kill()
			r.through(t, own.Cluster().Routers()[1-i], opened, connected)
			if err := m.Start(); err != nil {
				t.Fatal(err)
			}
			r.through(t, m, opened, connected)
		}
		if kept.Token() != token {
			t.Errorf("token %d, want %d unchanged", kept.Token(), token)
		}
		release(t, kept)
		lost.none(t)
	})
}

// r.through waits until the router m answers, and then makes the two sessions take turns waiting for each other.
func (r *room) through(t *testing.T, m *mongod.Member, a, b *dsync.Session) {
	t.Helper()
	client := server.Connect(t, "mongodb://"+m.Addr+"/")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := client.Ping(ctx, nil); err != nil { // waits until a router answers
		t.Fatal(err)
	}
	r.takeTurns(t, "turns", a, b)
}
