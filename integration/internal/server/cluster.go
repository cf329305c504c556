package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasehold-go/leasehold/internal/mongod"
)

// routerSkew is how far the second router's clock is ahead of the first's. It is less than the
// smallest margin, which is 100 ms at a TTL of 1 s.
const routerSkew = 50 * time.Millisecond

// StartCluster starts a sharded cluster for one test and stops it at the end of the test.
func (l *Lab) StartCluster(t testing.TB, spec mongod.ClusterSpec) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := l.startCluster(ctx, "own", spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// startCluster starts a cluster whose processes use little memory. If libfaketime is installed, the
// routers' clocks differ.
func (l *Lab) startCluster(ctx context.Context, name string, spec mongod.ClusterSpec) (*Server, error) {
	spec.Args = append(small(), append(spec.Args, "--oplogSize", "64")...)
	env, skewed := FakeClock(routerSkew)
	spec.RouterEnv = func(router int) []string {
		if router == 0 {
			return nil
		}
		return env
	}
	cluster, err := mongod.StartCluster(ctx, l.mongod, l.mongos, spec)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, URI: cluster.URI(), cluster: cluster, stop: cluster.Stop}
	s.has.Binary = true
	if err := s.inspect(ctx); err != nil {
		cluster.Stop()
		return nil, err
	}
	s.Topology += fmt.Sprintf(" of %d shards and %d routers", len(cluster.Shards()), len(cluster.Routers()))
	if skewed {
		s.Skew = routerSkew
		s.Topology += fmt.Sprintf(" whose clocks are %v apart", s.Skew)
	} else {
		s.Topology += ", whose clocks agree: " + NoFakeClock
	}
	return s, nil
}

// place creates the database on one of the two shards.
func (s *Server) place(t testing.TB, name string, n int64) {
	t.Helper()
	shards := s.cluster.Shards()
	s.admin(t, bson.D{
		{Key: "enableSharding", Value: name},
		{Key: "primaryShard", Value: shards[int(n)%len(shards)].Name()}, // supported since 4.2.2
	})
}

// Shard shards a collection by its hashed _id. The collection must be empty.
func (s *Server) Shard(t testing.TB, database, collection string) {
	t.Helper()
	s.admin(t, bson.D{{Key: "enableSharding", Value: database}})
	s.admin(t, bson.D{
		{Key: "shardCollection", Value: database + "." + collection},
		{Key: "key", Value: bson.D{{Key: "_id", Value: "hashed"}}},
	})
}

func (s *Server) admin(t testing.TB, cmd bson.D) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Client(t).Database("admin").RunCommand(ctx, cmd).Err(); err != nil {
		t.Fatalf("%s: %v", cmd[0].Key, err)
	}
}
