// Package mongod starts MongoDB servers, alone, as replica sets or as sharded clusters, each
// on loopback, on a free port, with its data in a temporary directory, and ends them by
// their pids. The tests and the measurements run on them, and a test may harm them.
package mongod
