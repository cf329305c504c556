package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestOpenRefusesNonsense(t *testing.T) {
	cases := []struct {
		name string
		open func(*mongo.Client) error
		want string // what the error must say
	}{
		{"nil database", open(func(*mongo.Client) *mongo.Database { return nil }, nil), "client.Database("},
		{"no database name", open(database(""), nil), "1 to 63 bytes"},
		{"long database name", open(database(strings.Repeat("x", 64)), nil), "63"},
		{"dollar in collection", open(database("app"), &dsyncmongo.Options{Collection: "a$b"}), "must not contain"},
		{"NUL in collection", open(database("app"), &dsyncmongo.Options{Collection: "a\x00b"}), "must not contain"},
		{"system collection", open(database("app"), &dsyncmongo.Options{Collection: "system.locks"}), "must not begin"},
		{"dot before collection", open(database("app"), &dsyncmongo.Options{Collection: ".locks"}), "begin or end"},
		{"dot after collection", open(database("app"), &dsyncmongo.Options{Collection: "locks."}), "begin or end"},
		{"long namespace", open(database("app"), &dsyncmongo.Options{Collection: strings.Repeat("x", 239)}), "242"},
		{"fewer than no collections", open(database("app"), &dsyncmongo.Options{NoticeCollections: -1}), "from 1 to 1000"},
		{"too many collections", open(database("app"), &dsyncmongo.Options{NoticeCollections: 1001}), "from 1 to 1000"},
		{"negative TTL", open(database("app"), &dsyncmongo.Options{Session: dsync.Options{TTL: -1}}), "at least 1s"},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			client := f.client()
			f.script(null)
			if err := tc.open(client); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error that says %q", err, tc.want)
			}
			if n := len(f.took()); n != 0 {
				t.Errorf("%d commands were sent, want none", n)
			}
		})
	}
}

func database(name string) func(*mongo.Client) *mongo.Database {
	return func(c *mongo.Client) *mongo.Database { return c.Database(name) }
}

func open(db func(*mongo.Client) *mongo.Database, opt *dsyncmongo.Options) func(*mongo.Client) error {
	return func(c *mongo.Client) error {
		_, err := dsyncmongo.Open(context.Background(), db(c), opt)
		return err
	}
}

func TestConnectRefusesNonsense(t *testing.T) {
	cases := []struct {
		name     string
		client   *options.ClientOptions
		database string
		opt      *dsyncmongo.Options
		want     string
	}{
		{"nil client options", nil, "app", nil, "ApplyURI"},
		{"bad client options", options.Client().ApplyURI("http://x"), "app", nil, "scheme"},
		{"the server's own database", options.Client().ApplyURI("mongodb://h/admin"), "", nil, "the database of the connection string is \"admin\", which is the server's own"},
		{"dot in the connection string's database", options.Client().ApplyURI("mongodb://h/a.b"), "", nil, "must not contain"},
		{"dot in database name", options.Client(), "a.b", nil, "must not contain"},
		{"collection", options.Client(), "app", &dsyncmongo.Options{Collection: "$"}, "must not contain"},
		{"TTL", options.Client(), "app", &dsyncmongo.Options{Session: dsync.Options{TTL: 1}}, "at least 1s"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s, err := dsyncmongo.Connect(t.Context(), tc.client, tc.database, tc.opt)
			if s != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, %v, want an error that says %q", s, err, tc.want)
			}
		})
	}
}

// Closing a session returned by Open leaves the caller's client open. Closing a session returned by Connect closes
// its client.
func TestOpenAndConnect(t *testing.T) {
	cases := []struct {
		name   string
		client *options.ClientOptions
		pool   uint64 // 0: Open
	}{
		{"Open", nil, 0},
		{"Connect", options.Client(), 36},
		{"Connect with a pool of the caller's size", options.Client().SetMaxPoolSize(3), 3},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			var pool atomic.Uint64
			var s *dsync.Session
			var err error
			if tc.pool == 0 {
				s, err = dsyncmongo.Open(t.Context(), f.client().Database("app"), nil)
			} else {
				tc.client.SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
					if e.Type == event.ConnectionPoolCreated {
						pool.Store(e.PoolOptions.MaxPoolSize)
					}
				}})
				own := options.MergeClientOptions(tc.client, f.ClientOptions())
				s, err = dsyncmongo.Connect(t.Context(), own, "app", nil)
			}
			noErr(t, err)
			if got := pool.Load(); got != tc.pool {
				t.Errorf("the pool has room for %d connections, want %d", got, tc.pool)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if _, n := f.Connections(); (n == 0) != (tc.pool > 0) {
				t.Errorf("%d connections are open after the session was closed, want none only after Connect", n)
			}
		})
	}
}

// A session returned by Connect closes within a second even if its server no longer answers.
func TestConnectCloseWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s, err := dsyncmongo.Connect(t.Context(), f.ClientOptions(), "app", nil)
		noErr(t, err)
		f.mu.Lock()
		f.mute = true
		f.mu.Unlock()
		start := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("Close took %v, want at most 1s", d)
		}
		f.End()
		f.Wait()
	})
}

func TestConnectFailsWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.mute = true
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		start := time.Now()
		_, err := dsyncmongo.Connect(ctx, f.ClientOptions(), "app", nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want context.DeadlineExceeded", err)
		}
		if d := time.Since(start); d > attempt+time.Second {
			t.Errorf("Connect took %v, want at most a second more than %v", d, attempt)
		}
		f.End()
		f.Wait() // returns only when all connections of the client are closed
	})
}

// If the server never replies to a command and ctx has no deadline, Open gives up after 30 s.
func TestOpenLosesAnAnswer(t *testing.T) {
	for _, nth := range []int{1, 2, 10, 24, 25} { // does not apply to hello, which the fake answers by itself
		inBubble(t, fmt.Sprint(nth), func(t *testing.T) {
			f := newFake(t)
			client := f.client()
			f.script(func(c call) bson.D {
				if len(f.took()) == nth {
					return silent
				}
				return honest(c)
			})
			start := time.Now()
			if _, err := dsyncmongo.Open(context.Background(), client.Database("app"), nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrRefused) {
				t.Errorf("got %v, want context.DeadlineExceeded, and nothing refused", err)
			}
			if d := time.Since(start); d != 30*time.Second {
				t.Errorf("Open took %v, want 30s", d)
			}
		})
	}
}

// If the call names no database, Connect uses the one in the connection string, or else "leasehold", as the command
// leasehold does. If the call names a database, the one in the connection string doesn't matter: there may be none,
// another, or one of the server's own, where the user is defined.
func TestConnectTakesTheDatabaseOfTheConnectionString(t *testing.T) {
	for _, tc := range []struct{ uri, database, want string }{
		{"", "", "leasehold"},
		{"mongodb://db1", "", "leasehold"},
		{"mongodb://u:p%2F%40@db1,db2/?appName=a@b", "", "leasehold"},
		{"mongodb://u:p@db1/app2?w=majority", "", "app2"},
		{"mongodb://db1/app2", "app3", "app3"},
		{"mongodb://u:p@db1/admin", "app3", "app3"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			o := options.Client()
			if tc.uri != "" {
				o.ApplyURI(tc.uri)
			}
			o.Auth = nil // the fake asks for no password
			var seen sync.Map
			o.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) { seen.Store(e.DatabaseName, true) }})
			o = options.MergeClientOptions(f.ClientOptions(), o).SetHosts(f.ClientOptions().Hosts)
			s, err := dsyncmongo.Connect(t.Context(), o, tc.database, nil)
			if err != nil {
				t.Fatalf("%q: %v", tc.uri, err)
			}
			defer s.Close(t.Context())
			seen.Delete("admin") // hello
			seen.Range(func(db, _ any) bool {
				if db != tc.want {
					t.Errorf("%q, %q: a command to the database %q, want %q", tc.uri, tc.database, db, tc.want)
				}
				return true
			})
			if _, ok := seen.Load(tc.want); !ok {
				t.Errorf("%q, %q: no command to the database %q", tc.uri, tc.database, tc.want)
			}
		})
	}
}

// An error about a malformed connection string contains no part of its password.
func TestConnectKeepsPasswordsOutOfErrors(t *testing.T) {
	for _, uri := range []string{
		"mongodb://me:se%zzcret@h/", "mongodb://me:se/cret@h/", "mongodb://me:se:cret@h/", "mongodb://me:s@ecret@h/", "mongodb://me:s@ecret/x@h/", "mongodb://me:s@ecret:cret/x@h/",
		"mongodb://me:s@ecret:ecret:x/@h/", "mongodb://h/?tlsCertificateKeyFilePassword=secret%zz", "mongodb://h/?authMechanismProperties=secret", "me:secret@h",
	} {
		for _, database := range []string{"", "app"} {
			_, err := dsyncmongo.Connect(t.Context(), options.Client().ApplyURI(uri), database, nil)
			for e := err; e != nil; e = errors.Unwrap(e) {
				if text := e.Error(); strings.Contains(text, "cret") || strings.Contains(text, "%zz") {
					t.Errorf("%s: %q, want no part of the password", uri, text)
				}
			}
			if err == nil {
				t.Errorf("%s: no error", uri)
			}
		}
	}
}
