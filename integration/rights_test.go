package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B17: find, insert, update, remove and changeStream on the one collection are
// enough for everything, and nothing else is even tried.
func TestB17OrdinaryRights(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true}, func(t *testing.T, s *server.Server) {
		spec := mongod.Spec{Auth: true}
		if !s.Has(server.Need{Standalone: true}) {
			spec.Members = 1
		}
		own := lab.Start(t, spec)
		r := newRoom(t, own)
		app := own.Client(t).Database(r.DB)
		for _, cmd := range []bson.D{
			{{Key: "createRole", Value: "locker"},
				{Key: "privileges", Value: bson.A{bson.D{
					{Key: "resource", Value: bson.D{{Key: "db", Value: r.DB}, {Key: "collection", Value: collection}}},
					{Key: "actions", Value: bson.A{"find", "insert", "update", "remove", "changeStream"}},
				}}},
				{Key: "roles", Value: bson.A{}}},
			{{Key: "createUser", Value: "locker"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{"locker"}}},
		} {
			if err := app.RunCommand(t.Context(), cmd).Err(); err != nil {
				t.Fatalf("%v: %v", cmd[0], err)
			}
		}

		mon := newMonitor(r.DB)
		uri := own.Set().URIAs("locker:secret@") + "&authSource=" + r.DB
		client := server.Connect(t, uri, mon.client())
		opt := r.short(time.Second)
		a, b := r.open(client, opt), r.open(client, opt)
		ma, mb := a.Mutex("key"), b.Mutex("key")
		lock(t, ma, 20*time.Second)
		if mb.TryLock() {
			t.Error("TryLock of a held key succeeded")
		}
		ch := locking(t.Context(), mb)
		store, err := dsyncmongo.NewStore(t.Context(), client.Database(r.DB), nil)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the waiter stands in line", func() bool { return load(t, store, "key").Waiting == 1 })
		unlock(t, ma)
		granted(t, ch, 10*time.Second)
		unlock(t, mb)
		l, err := a.Acquire(t.Context(), "lease", 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := store.Sweep(t.Context(), "s", dsync.SweepState{}, time.Hour); err != nil {
			t.Error(err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}

		// hello needs no right at all.
		ordinary := []string{"hello", "findAndModify", "update", "insert", "delete", "find", "aggregate", "getMore", "killCursors"}
		streams := 0
		for _, c := range mon.commands(nil) {
			if !slices.Contains(ordinary, c.name) {
				t.Errorf("%v is not among the commands %v", c, ordinary)
			}
			if c.code != 0 {
				t.Errorf("%v: answered with code %d", c, c.code)
			}
			if c.name == "getMore" {
				streams++
			}
		}
		if spec.Members > 0 && streams == 0 {
			t.Error("no change stream was open, so its right was not shown")
		}
	})
}
