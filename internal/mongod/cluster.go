package mongod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// A Cluster is a sharded cluster: a config server, shards, and routers (mongos). Clients connect to the routers.
type Cluster struct {
	spec    ClusterSpec
	dir     string // directory of the routers
	config  *Set
	shards  []*Set
	routers []*Member
}

// StartCluster starts a cluster with the programs at the paths mongod and mongos, and returns when every router knows
// every shard. The processes run until [Cluster.Stop], even if ctx ends.
func StartCluster(ctx context.Context, mongod, mongos string, spec ClusterSpec) (_ *Cluster, err error) {
	spec.Shards, spec.Routers = cmp.Or(spec.Shards, 2), cmp.Or(spec.Routers, 2)
	dir, err := os.MkdirTemp("", "leasehold-mongos-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{spec: spec, dir: dir, shards: make([]*Set, spec.Shards)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, tail(c.routers))
			c.Stop()
		}
	}()
	if err := c.startSets(ctx, mongod); err != nil {
		return nil, err
	}
	if err := c.startRouters(mongos); err != nil {
		return nil, err
	}
	for _, m := range c.routers {
		if err := m.ping(ctx); err != nil {
			return nil, fmt.Errorf("mongos on %s: %w", m.Addr, err)
		}
	}
	for _, s := range c.shards {
		add := bson.D{{Key: "addShard", Value: s.Name() + "/" + s.members[0].name}}
		if err := c.routers[0].insist(ctx, c.user(), add); err != nil {
			return nil, fmt.Errorf("addShard: %w", err)
		}
	}
	for _, m := range c.routers {
		// Without this command, a router does not learn of a new shard at once.
		if err := m.insist(ctx, c.user(), bson.D{{Key: "flushRouterConfig", Value: 1}}); err != nil {
			return nil, fmt.Errorf("flushRouterConfig: %w", err)
		}
	}
	return c, nil
}

// startSets starts the config server and the shards, in parallel.
func (c *Cluster) startSets(ctx context.Context, mongod string) error {
	var all sync.WaitGroup
	errs := make([]error, 1+len(c.shards))
	start := func(i int, set **Set, name, role string) {
		all.Go(func() {
			*set, errs[i] = Start(ctx, mongod, Spec{Members: 1, Auth: c.spec.Auth, Args: c.spec.Args, name: name, role: role})
		})
	}
	start(0, &c.config, "config", configServer)
	for i := range c.shards {
		start(1+i, &c.shards[i], fmt.Sprint("shard", i), shardServer)
	}
	all.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) startRouters(mongos string) error {
	ports, err := spawn.FreePorts(c.spec.Routers)
	if err != nil {
		return err
	}
	var keyFile string
	if c.spec.Auth {
		if keyFile, err = writeKey(c.dir); err != nil {
			return err
		}
	}
	for i, port := range ports {
		m := &Member{Addr: "127.0.0.1:" + port, path: mongos, dir: filepath.Join(c.dir, fmt.Sprint(i))}
		m.name = m.Addr
		if c.spec.RouterEnv != nil {
			m.env = c.spec.RouterEnv(i)
		}
		if err := os.Mkdir(m.dir, 0o700); err != nil {
			return err
		}
		m.args = []string{
			"--configdb", c.config.Name() + "/" + c.config.members[0].name,
			"--bind_ip", "127.0.0.1", "--port", port, "--nounixsocket",
			"--logpath", filepath.Join(m.dir, "log"), "--logappend",
		}
		if keyFile != "" {
			m.args = append(m.args, "--keyFile", keyFile)
		}
		if err := m.Start(); err != nil {
			return err
		}
		c.routers = append(c.routers, m)
	}
	return nil
}

// URI returns the connection string for all routers.
func (c *Cluster) URI() string { return c.URIAs(c.user()) }

// URIAs returns the connection string for the given user, such as "user:password@".
func (c *Cluster) URIAs(user string) string {
	var addrs []string
	for _, m := range c.routers {
		addrs = append(addrs, m.Addr)
	}
	return "mongodb://" + user + strings.Join(addrs, ",") + "/?"
}

// Routers returns the routers' processes.
func (c *Cluster) Routers() []*Member { return c.routers }

// Shards returns the shards.
func (c *Cluster) Shards() []*Set { return c.shards }

// Config returns the config server.
func (c *Cluster) Config() *Set { return c.config }

// Stop ends the processes and removes their files.
func (c *Cluster) Stop() {
	var all sync.WaitGroup
	for _, m := range c.routers {
		all.Go(m.Kill)
	}
	all.Wait() // end the routers first; otherwise they would log that the servers are gone
	for _, s := range append([]*Set{c.config}, c.shards...) {
		if s != nil {
			all.Go(s.Stop)
		}
	}
	all.Wait()
	os.RemoveAll(c.dir)
}

// user returns the credentials of the user who has all privileges, in the form used in a
// URI.
func (c *Cluster) user() string { return root(c.spec.Auth) }
