// Package server finds or starts the servers that the integration tests run on,
// and keeps the book of which suite ran on which.
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

// A Need is what a test needs of a server beyond being one.
type Need struct {
	ChangeStream bool // change streams (and an oplog that can be read)
	Transactions bool
	Standalone   bool // no replica set: what only a single node has
	Members      bool // a replica set whose members a test may start and harm
	Binary       bool // the program mongod, to be started in a way of the test's own
	Container    bool // a container that a test may start, pause and kill
}

// missing says what s lacks of the need, "" if nothing.
func (n Need) missing(s *Server) string {
	switch {
	case n.ChangeStream && !s.has.ChangeStream:
		return "no change stream"
	case n.Transactions && !s.has.Transactions:
		return "no transactions"
	case n.Standalone && !s.has.Standalone:
		return "not a standalone"
	case n.Members && !s.has.Members:
		return "no members to harm"
	case n.Binary && !s.has.Binary:
		return "no mongod to start"
	case n.Container && !s.has.Container:
		return "no container"
	}
	return ""
}

// A Server is one deployment that tests run on.
type Server struct {
	Name     string // "replset", "standalone", "docker", "uri"
	Product  string // "MongoDB" or "FerretDB"
	Version  string
	Topology string // "replica set of 3", "standalone", "sharded"
	URI      string

	has  Need
	stop func()

	set *mongod.Set // of "replset" and those that [Lab.Start] started
}

func (s *Server) String() string {
	return fmt.Sprintf("%s %s, %s", s.Product, s.Version, s.Topology)
}

// FerretDB reports whether the server is FerretDB.
func (s *Server) FerretDB() bool { return s.Product == "FerretDB" }

// Has reports whether the server meets the need.
func (s *Server) Has(n Need) bool { return n.missing(s) == "" }

// Set returns the members of a server that this run started with mongod.
func (s *Server) Set() *mongod.Set { return s.set }

// Client connects to the server; the client is disconnected at the end of the
// test. Options are merged over the server's URI.
func (s *Server) Client(t testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	return Connect(t, s.URI, opts...)
}

// Connect connects to a URI for the length of a test.
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
		client.Disconnect(ctx) // a server that a test has killed can't answer
	})
	return client
}

var databases atomic.Int64

// Database returns the name of a database of the test's own, which is dropped
// when the test ends.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := "leasehold_" + strconv.Itoa(os.Getpid()) + "_" + strconv.FormatInt(databases.Add(1), 10)
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

// Primary returns the address, host:port, of the node that takes writes.
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
	// Behind a published port of a container the names that a set of one has for
	// itself lead nowhere.
	if hello.Primary != "" && !strings.Contains(s.URI, "directConnection=true") {
		return hello.Primary
	}
	hosts := options.Client().ApplyURI(s.URI).Hosts
	return hosts[0]
}

// inspect fills in what a server says of itself.
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
		s.Topology = "sharded"
	case hello.SetName != "":
		s.Topology = fmt.Sprintf("replica set of %d", max(1, len(hello.Hosts)))
	default:
		s.Topology = "standalone"
		s.has.Standalone = true
	}
	if !s.FerretDB() && !s.has.Standalone {
		s.has.ChangeStream, s.has.Transactions = true, true
	}
	return nil
}
