// Package server finds or starts the servers that the integration tests run on,
// and records which suite ran on which server.
package server

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/internal/mongod"
)

// A Need lists the properties of a server that a test needs.
type Need struct {
	MongoDB      bool // MongoDB itself, not a compatible product
	Notices      bool // the server supports notices, so waiters need not poll
	Oplog        bool // the oplog can be read
	Transactions bool
	Standalone   bool // a standalone server, not a member of a replica set
	Sharded      bool // a sharded cluster
	Members      bool // a replica set whose members a test may start and harm
	Binary       bool // the program mongod is there, so the test can start servers itself
	Container    bool // the test may start, pause and kill containers
}

// missing returns a property that the need requires and s lacks, or "" if s meets the need.
func (n Need) missing(s *Server) string {
	for _, p := range []struct {
		needed, there bool
		why           string
	}{
		{n.MongoDB, !s.FerretDB(), "not MongoDB"},
		{n.Notices, s.has.Notices, "no notices"},
		{n.Oplog, s.has.Oplog, "no oplog to read"},
		{n.Transactions, s.has.Transactions, "no transactions"},
		{n.Standalone, s.has.Standalone, "not a standalone"},
		{n.Sharded, s.has.Sharded, "not sharded"},
		{n.Members, s.has.Members, "no members to harm"},
		{n.Binary, s.has.Binary, "no mongod to start"},
		{n.Container, s.has.Container, "no container"},
	} {
		if p.needed && !p.there {
			return p.why
		}
	}
	return ""
}

// A Server is one deployment of MongoDB, or of a compatible product, that tests run on.
type Server struct {
	Name     string // "replset", "standalone", "sharded", "docker", "ferretdb", "uri", or "own" for one test's server
	Product  string // "MongoDB" or "FerretDB"
	Version  string
	Topology string // "replica set of 3", "standalone", "sharded cluster"
	URI      string

	// Skew is how far the clocks that the server uses for requests can differ. It is 0 except for a
	// sharded cluster, in which each router uses its own clock.
	Skew time.Duration

	has  Need
	stop func()

	set     *mongod.Set     // for "replset" and servers from [Lab.Start]
	cluster *mongod.Cluster // for "sharded" and servers from [Lab.StartCluster]
}

func (s *Server) String() string {
	return fmt.Sprintf("%s %s, %s", s.Product, s.Version, s.Topology)
}

// FerretDB reports whether the server runs FerretDB instead of MongoDB.
func (s *Server) FerretDB() bool { return s.Product == "FerretDB" }

// Major returns the major version.
func (s *Server) Major() int {
	first, _, _ := strings.Cut(s.Version, ".")
	n, _ := strconv.Atoi(first)
	return n
}

// URIAs returns a connection string with credentials for a server that this run started. user has
// the form "user:password@".
func (s *Server) URIAs(user string) string {
	if s.cluster != nil {
		return s.cluster.URIAs(user)
	}
	return s.set.URIAs(user)
}

// Has reports whether the server meets the need.
func (s *Server) Has(n Need) bool { return n.missing(s) == "" }

// Set returns the members of a server that this run started with mongod.
func (s *Server) Set() *mongod.Set { return s.set }

// Cluster returns the processes of a sharded cluster that this run started.
func (s *Server) Cluster() *mongod.Cluster { return s.cluster }

// Oplogs returns a connection string for each replica set whose oplog contains writes to the
// server.
func (s *Server) Oplogs() []string {
	if s.cluster == nil {
		return []string{s.URI}
	}
	var uris []string
	for _, set := range s.cluster.Shards() {
		uris = append(uris, set.URI())
	}
	return uris
}

// OneClock returns a connection string for tests in which the server must use the same clock for
// all commands. For a cluster, it contains only one router.
func (s *Server) OneClock() string {
	if s.cluster == nil {
		return s.URI
	}
	return "mongodb://" + s.cluster.Routers()[0].Addr + "/"
}

// Client returns a client of the server, which is disconnected at the end of the test. opts
// override the options in the server's URI.
func (s *Server) Client(t testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	return Connect(t, s.URI, opts...)
}

// Connect returns a client for the URI, which is disconnected at the end of the test.
func Connect(t testing.TB, uri string, opts ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	opts = append([]*options.ClientOptions{options.Client().ApplyURI(uri)}, opts...)
	client, err := mongo.Connect(opts...)
	if err != nil {
		t.Fatalf("connect to %s: %v", uri, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		client.Disconnect(ctx) // may fail, because the test may have killed the server
	})
	return client
}

var databases atomic.Int64

// Database returns the name of a new database. It drops the database at the end of the test.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	n := databases.Add(1)
	name := "leasehold_" + strconv.Itoa(os.Getpid()) + "_" + strconv.FormatInt(n, 10)
	if s.cluster != nil {
		s.place(t, name, n)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		client, err := mongo.Connect(options.Client().ApplyURI(s.URI))
		if err != nil {
			return
		}
		defer client.Disconnect(ctx)
		client.Database(name).Drop(ctx)
	})
	return name
}

// Primary returns the address (host:port) of the node that accepts writes.
func (s *Server) Primary(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := s.Client(t)
	var hello struct {
		Me      string `bson:"me"`
		Primary string `bson:"primary"`
	}
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if err != nil {
		t.Fatalf("hello: %v", err)
	}
	// If a set of one runs in a container with a published port, the address that the set itself
	// reports can't be reached.
	if hello.Primary != "" && !strings.Contains(s.URI, "directConnection=true") {
		return hello.Primary
	}
	hosts := options.Client().ApplyURI(s.URI).Hosts
	return hosts[0]
}

// inspect sets the fields that a server reports about itself.
func (s *Server) inspect(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	admin := client.Database("admin")

	var build struct {
		Version  string   `bson:"version"`
		FerretDB bson.Raw `bson:"ferretdb"`
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return err
	}
	s.Product, s.Version = "MongoDB", build.Version
	if build.FerretDB != nil {
		s.Product = "FerretDB"
		if v, ok := build.FerretDB.Lookup("version").StringValueOK(); ok {
			s.Version = strings.TrimPrefix(v, "v")
		}
	}

	var hello struct {
		SetName string   `bson:"setName"`
		Hosts   []string `bson:"hosts"`
		Msg     string   `bson:"msg"`
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return err
	}
	switch {
	case hello.Msg == "isdbgrid":
		s.Topology = "sharded cluster"
		s.has.Sharded = true
	case hello.SetName != "":
		s.Topology = fmt.Sprintf("replica set of %d", max(1, len(hello.Hosts)))
	default:
		s.Topology = "standalone"
		s.has.Standalone = true
	}
	s.has.Notices = !s.FerretDB()
	s.has.Transactions = !s.FerretDB() && !s.has.Standalone
	s.has.Oplog = s.has.Transactions && (!s.has.Sharded || s.cluster != nil) // routers have no oplog
	return nil
}
