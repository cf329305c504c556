// Package mongoclient has what both package dsync/mongo and the command leasehold know: the client options that suit a
// lease, how to tell servers apart, and the names of collections.
package mongoclient

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// pool is the number of connections that a session can use at a time. The session uses 32 for commands, one
	// for heartbeats, one to listen for the session, one to listen for keys, and one to register and unregister. So a
	// heartbeat never waits for another command's connection. The driver opens a connection when it is needed.
	pool = 36

	// minConnect allows for TCP, TLS and authentication with a distant server. minMonitor is the least that the
	// driver accepts. The other bounds are the driver's defaults.
	minConnect    = time.Second
	minMonitor    = 500 * time.Millisecond
	driverConnect = 30 * time.Second
	driverMonitor = 10 * time.Second
)

// Options returns client options that suit a lease. heartbeat is the session's HeartbeatInterval, or 0 for its default.
//
// The driver's defaults suit applications that can wait. With them, the driver notices a silent primary after 40 s, and
// may try to connect for 30 s. It also keeps idle connections that died silently. Commands then try these connections
// one after the other, each for the length of an attempt (TTL/6). With these defaults, a lease of 30 s was lost when
// the network dropped everything for 5 s.
//
// So these times are reduced to fractions of the TTL. The driver then notices a silent primary after TTL/4. It
// discards a connection only if it was idle for longer than the time between two heartbeats. The server selection
// timeout need not be reduced, because each attempt has its own deadline. MaxConnecting need not be raised either,
// because with these settings the driver soon gives up an attempt to connect.
//
// For the sake of large fleets, the client polls the servers instead of having them stream. Streaming needs an
// additional connection to measure round trips, so a waiting process would have four connections instead of three.
func Options(ttl, heartbeat time.Duration) *options.ClientOptions {
	return options.Client().SetMaxPoolSize(pool).SetAppName("leasehold").
		SetConnectTimeout(min(max(ttl/12, minConnect), driverConnect)).
		SetHeartbeatInterval(min(max(ttl/6, minMonitor), driverMonitor)).
		SetServerMonitoringMode(options.ServerMonitoringModePoll).
		SetMaxConnIdleTime(max(ttl/2, heartbeat*3/2))
}
