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
		noErr(t, err)
		t.Cleanup(func() { connected.Close(context.Background()) })
		r.takeTurns(t, "turns", opened, connected)

		kept := lock(t, opened.Mutex("kept"))
		token := kept.Token()
		for i, m := range own.Cluster().Routers() {
			m.Kill()
			r.through(t, own.Cluster().Routers()[1-i], opened, connected)
			noErr(t, m.Start())
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

// If the collection is sharded by its hashed _id, waiters for a mutex are notified of their
// turns, whichever shard the mutex's record is on.
func TestHandOffSharded(t *testing.T) {
	t.Parallel()
	const keys = 8
	lab.Each(t, server.Need{Sharded: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		s.Shard(t, r.DB, collection)
		opt := idleOptions()
		opt.TTL = 2 * time.Minute
		a, b := r.session(opt), r.session(opt)
		store := r.store()
		var took time.Duration
		for n := range keys {
			key := string(rune('a' + n))
			h := lock(t, a.Mutex(key))
			first := h.Token()
			ch := locking(t.Context(), b.Mutex(key))
			eventually(t, "the other is queued", func() bool { return load(t, store, key).Waiting == 1 })
			time.Sleep(500 * time.Millisecond) // until it listens
			begin := time.Now()
			release(t, h)
			g := granted(t, ch) // thanks to the notice; a poll would come later
			took += g.at.Sub(begin)
			if g.token <= first {
				t.Errorf("token %d came after %d, want a greater one", g.token, first)
			}
			release(t, g.h)
		}
		lab.Note(t, "granted %v after the call of Release, on average of %d", (took / keys).Round(100*time.Microsecond), keys)
	})
}
