package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// startBehind starts a set in which clients and other members reach each member only through
// that member's proxy. The members identify themselves to the proxies.
func startBehind(t *testing.T, net *proxy.Network, spec mongod.Spec) *server.Server {
	t.Helper()
	spec.Announce = func(addr string) string { return net.Proxy(addr).Addr() }
	spec.Args = append(spec.Args, "--setParameter", "enableTestCommands=1")
	return lab.Start(t, spec)
}

// Faults on a client's link affect that client, and no other client of the same proxy.
func TestNetworkHarmsOneClient(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		net := proxy.NewNetwork(t)
		uri := net.Proxy(r.Primary(t)).URI()
		type insert func(id string, d time.Duration) error
		client := func(name string) insert {
			// Switch off retries: with them, the driver would hide a lost command.
			coll := server.Connect(t, uri+"&appName="+name, options.Client().SetRetryWrites(false)).Database(r.DB).Collection("c")
			return func(id string, d time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				_, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id + " by " + name}})
				return err
			}
		}
		harmed, other := client("harmed"), client("other")
		if err := harmed("plain", 10*time.Second); err != nil {
			t.Fatalf("through an idle network: %v", err)
		}
		link := net.Link("harmed")
		for _, c := range []struct {
			name    string
			harm    func()
			applied bool // whether the insert took effect although the client got an error
		}{
			{"cut", link.Cut, false},
			{"hang", link.Hang, false},
			{"hang requests", link.HangRequests, false},
			{"hang replies", link.HangReplies, true},
			{"rule", func() { link.Rule(always(proxy.LoseReply, func(c proxy.Command) bool { return c.Name == "insert" })) }, true},
		} {
			c.harm()
			if err := harmed(c.name, 500*time.Millisecond); err == nil {
				t.Errorf("%s: the insert of the harmed client succeeded", c.name)
			}
			if err := other(c.name, 10*time.Second); err != nil {
				t.Errorf("%s: the other client: %v", c.name, err)
			}
			err := s.Client(t).Database(r.DB).Collection("c").FindOne(t.Context(), bson.D{{Key: "_id", Value: c.name + " by harmed"}}).Err()
			if applied := err == nil; applied != c.applied {
				t.Errorf("%s: applied = %v, want %v", c.name, applied, c.applied)
			}
			link.Heal()
			if err := harmed("after "+c.name, 20*time.Second); err != nil {
				t.Errorf("after %s: %v", c.name, err)
			}
		}
	})
}

// A primary that is cut off from the other members, in one direction or in both, is replaced. If no message reaches the
// primary, it learns of its replacement only when it rejoins the set.
func TestNetworkPartsMembers(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		net := proxy.NewNetwork(t)
		own := startBehind(t, net, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
		r := newRoom(t, own)
		term := func(m *mongod.Member) (term int64) {
			direct := server.Connect(t, "mongodb://"+m.Addr+"/?directConnection=true")
			status, err := direct.Database("admin").RunCommand(t.Context(), bson.D{{Key: "replSetGetStatus", Value: 1}}).Raw()
			if err != nil {
				t.Fatal(err)
			}
			return status.Lookup("term").AsInt64()
		}
		// A member can roll back a write only if it knows of an earlier write that has reached all members; otherwise
		// mongod would exit. The second write tells all members that they all have the first.
		all := options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: 3})
		for range 2 {
			if _, err := r.Client(t).Database(r.DB).Collection("c", all).InsertOne(t.Context(), bson.D{}); err != nil {
				t.Fatal(err)
			}
		}
		parts := []struct {
			name string
			harm func(in, out *proxy.Link)
			deaf bool
		}{
			{"cut off", func(in, out *proxy.Link) { in.Hang(); out.Hang() }, true},
			{"deaf", func(in, out *proxy.Link) { in.HangRequests(); out.HangReplies() }, true},
			// Messages may still reach the primary on existing connections.
			{"mute", func(in, out *proxy.Link) { in.HangReplies(); out.HangRequests() }, false},
		}
		for _, c := range parts[:testkit.Rounds(1, len(parts))] {
			old := primary(t, own.Set())
			before := term(old)
			in, out := net.Proxy(old.Addr).Link, net.Proxy(old.Addr).Outgoing()
			c.harm(in, out)
			var next *mongod.Member
			eventually(t, c.name+": there is another primary", func() bool {
				next = primary(t, own.Set())
				return next != old
			})
			if _, err := r.raw().InsertOne(t.Context(), bson.D{}); err != nil {
				t.Errorf("%s: a write to the others: %v", c.name, err)
			}
			time.Sleep(3 * time.Second) // several heartbeats
			if c.deaf && term(old) != before {
				t.Errorf("%s: the former primary has heard of the new one", c.name)
			}
			in.Heal()
			out.Heal()
			eventually(t, c.name+": the former primary is in the new term", func() bool { return term(old) == term(next) })
		}
	})
}
