package mongod

import "time"

// A Spec says how mongod is to be started.
type Spec struct {
	Members         int           // of the replica set; 0: a standalone
	ElectionTimeout time.Duration // 0: the server's default, 10 s
	Auth            bool          // access control on; the user root/root may do everything
	Args            []string      // added to the arguments of the processes
	Env             []string      // added to the environment of the processes

	// Announce, if not nil, says under which host:port the others and clients are to
	// know the member that listens at addr: that of a proxy in front of it.
	Announce func(addr string) string
}
