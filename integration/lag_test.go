package integration_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// While an application writes, one of two secondaries is frozen for several heartbeat intervals. After the thaw it
// lags. No session is lost, and sessions continue to get the lock in turn.
func TestLaggingSecondary(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3})
		r := newRoom(t, own)
		opt := r.lasting()
		var lost losses
		opt.Hooks = lost.hooks()
		kept := lock(t, r.session(opt).Mutex("kept"))
		token := kept.Token()
		a, b := r.session(opt).Mutex("turns"), r.session(opt).Mutex("turns")
		application(t, own)
		turns := func(d time.Duration) (n int) {
			h := lock(t, a)
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				before, ch := h.Token(), locking(t.Context(), b)
				release(t, h)
				g := granted(t, ch)
				if g.token <= before {
					t.Errorf("token %d came after %d, want a greater one", g.token, before)
				}
				h, a, b = g.h, b, a
			}
			release(t, h)
			return n
		}
		secondary := secondaries(t, own.Set())[0]
		noErr(t, secondary.Freeze())
		t.Cleanup(func() { secondary.Thaw() })
		frozen := turns(15 * time.Second)
		noErr(t, secondary.Thaw())
		lagging := turns(8 * time.Second)
		if kept.Token() != token {
			t.Errorf("token %d, want %d unchanged", kept.Token(), token)
		}
		release(t, kept)
		lost.none(t)
		lab.Note(t, "%d turns while the secondary was frozen, %d afterwards", frozen, lagging)
	})
}

// secondaries returns the members except the primary. An arbiter comes last.
func secondaries(t *testing.T, set *mongod.Set) (members []*mongod.Member) {
	t.Helper()
	first := primary(t, set)
	for _, m := range set.Members() {
		if m != first {
			members = append(members, m)
		}
	}
	return members
}

// application tries to write a thousand documents per second until the end of the test.
func application(t *testing.T, s *server.Server) {
	t.Helper()
	db := s.Client(t).Database(s.Database(t))
	coll := db.Collection("app", options.Collection().SetWriteConcern(writeconcern.W1()))
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	written := 0
	began := time.Now()
	writing.Go(func() {
		const atOnce = 10
		docs := make([]any, atOnce)
		for i := range docs {
			docs[i] = bson.D{{Key: "text", Value: "what an application writes"}}
		}
		tick := time.NewTicker(atOnce * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if _, err := coll.InsertMany(ctx, docs); err == nil {
				written += atOnce
			}
			<-tick.C
		}
	})
	t.Cleanup(func() {
		cancel()
		writing.Wait()
		lab.Note(t, "an application wrote %.0f documents a second", float64(written)/time.Since(began).Seconds())
	})
}
