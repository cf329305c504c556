package mongod

import "time"

// A Spec describes the mongod processes to start.
type Spec struct {
	Members         int           // number of members of the replica set; 0: a standalone server
	Arbiter         bool          // the last member is an arbiter, which votes but stores no data
	ElectionTimeout time.Duration // 0: the server's default, 10 s
	Auth            bool          // access control is on; the user root (password root) may do everything
	Args            []string      // added to the arguments of the processes
	Env             []string      // added to the environment of the processes
	Dir             string        // directory for the files; "": the system's temporary directory

	// Announce, if not nil, returns the host:port that clients and other members use to reach the member that
	// listens at addr, for example the address of a proxy.
	Announce func(addr string) string

	// For the parts of a cluster:
	name string // name of the replica set; "": defaultName
	role string // configServer or shardServer; "": neither
}

// The roles of a mongod in a cluster, named as in its command-line options.
const (
	configServer = "configsvr"
	shardServer  = "shardsvr"
)

// A ClusterSpec describes the sharded cluster to start. Its config server and its shards are
// replica sets of one member each.
type ClusterSpec struct {
	Shards, Routers int      // 0: two
	Auth            bool     // access control is on; the user root (password root) may do everything
	Args            []string // added to the arguments of the mongods

	// RouterEnv, if not nil, returns additional environment variables for the i-th router, counting from 0.
	RouterEnv func(router int) []string
}
