package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
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
		noErr(t, err)
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
		noErr(t, <-waited)
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
	noErr(t, err)
	var found []bson.Raw
	noErr(t, cursor.All(t.Context(), &found))
	return len(found)
}

// B34: a slow query occupies the application's only connection for two TTLs. A session with a
// client of its own is not affected. A session on the application's client is lost, and its hooks
// are given the reason.
func TestB34ExhaustedPool(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		const ttl = 3 * time.Second
		for _, own := range []bool{true, false} {
			name := "caller's client"
			if own {
				name = "own client"
			}
			t.Run(name, func(t *testing.T) {
				r := newRoom(t, s)
				p := r.proxy()
				app := server.Connect(t, p.URI(), options.Client().SetMaxPoolSize(1))
				var mu sync.Mutex
				var why []string
				var lost losses
				opt := r.short(ttl)
				opt.Hooks = lost.hooks()
				opt.Hooks.StoreError = func(op string, err error) {
					mu.Lock()
					defer mu.Unlock()
					why = append(why, op+": "+err.Error())
				}
				var session *dsync.Session
				if own {
					var err error
					session, err = dsyncmongo.Connect(r.opening(), options.Client().ApplyURI(p.URI()), r.DB, &dsyncmongo.Options{Session: opt})
					noErr(t, err)
					t.Cleanup(func() { session.Close(context.Background()) })
				} else {
					session = r.open(app, opt)
				}
				h := lock(t, session.Mutex("key"))

				// The query is not answered until the proxy is healed.
				hit := p.Once(proxy.LateReply, func(c proxy.Command) bool { return c.On(r.DB, "app") })
				query := make(chan error, 1)
				go func() {
					cur, err := app.Database(r.DB).Collection("app").Find(context.Background(), bson.D{})
					if err == nil {
						err = cur.Close(context.Background())
					}
					query <- err
				}()
				<-hit
				time.Sleep(2 * ttl)
				stillHeld := h.Token() != 0
				p.Heal()
				if err := <-query; err != nil {
					t.Errorf("the slow query: %v", err)
				}

				mu.Lock()
				defer mu.Unlock()
				if own {
					if !stillHeld {
						t.Errorf("the hold was lost, although the session has a client of its own: %v", why)
					}
					lost.none(t)
					release(t, h)
					return
				}
				if stillHeld {
					t.Error("the lock is still held, although no heartbeat can have got through")
				}
				said := false
				for _, w := range why {
					said = said || strings.HasPrefix(w, "Heartbeat: ") && strings.Contains(w, "connection")
				}
				if !said {
					t.Errorf("no StoreError says that heartbeats wait for a connection: %q", why)
				} else {
					t.Logf("the hook said: %s", why[len(why)-1])
				}
				if err := h.Release(t.Context()); sentinel(err) != "lost" {
					t.Errorf("Release: %v, want ErrLost", err)
				}
			})
		}
	})
}
