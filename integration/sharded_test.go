package integration_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The conformance suite passes with the collection sharded by its hashed _id. The collections of
// notices are not sharded, because capped collections can't be.
func TestStoreSharded(t *testing.T) {
	lab.Each(t, server.Need{Sharded: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		s.Shard(t, r.DB, collection)
		store := r.exactStore()
		dsynctest.TestStore(t, func(*testing.T) driver.Store { return store })

		if s.Cluster() == nil {
			return // the addresses of the cluster's shards are unknown
		}
		for _, uri := range s.Oplogs() {
			coll := server.Connect(t, uri).Database(r.DB).Collection(collection)
			if n, err := coll.CountDocuments(t.Context(), bson.D{}); err != nil || n == 0 {
				t.Errorf("%d records on %s, %v: want some on every shard", n, uri, err)
			}
		}
	})
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
