package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A session returned by Connect has two connections to the primary: one for the driver's monitor and one for commands.
// A session that waits has a third one.
func TestConnections(t *testing.T) {
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		const app = "counted"
		admin := r.Client(t).Database("admin")
		has := func(n int, state string) {
			t.Helper()
			eventually(t, fmt.Sprintf("%d connections, %s", n, state), func() bool { return connections(t, admin, app) == n })
		}
		opt := dsyncmongo.Options{Session: r.short(30 * time.Second)}
		c, err := dsyncmongo.Connect(r.opening(), options.Client().ApplyURI(r.OneClock()).SetAppName(app), r.DB, &opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		mu := r.session(opt.Session).Mutex("k")
		mu.Lock()
		if c.Mutex("k").TryLock() {
			t.Fatal("TryLock of a held key succeeded")
		}
		has(2, "idle")
		waited := make(chan error)
		go func() { waited <- c.Mutex("k").LockContext(t.Context()) }()
		has(3, "waiting")
		mu.Unlock()
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		has(3, "holding") // the listener stays open for a while
	})
}

// connections returns the number of the named application's connections to the server.
func connections(t *testing.T, admin *mongo.Database, app string) int {
	t.Helper()
	cursor, err := admin.Aggregate(t.Context(), mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleConnections", Value: true}}}},
		{{Key: "$match", Value: bson.D{{Key: "appName", Value: app}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$connectionId"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []bson.Raw
	if err := cursor.All(t.Context(), &found); err != nil {
		t.Fatal(err)
	}
	return len(found)
}
