// Package mongod starts MongoDB servers for tests and measurements: standalones, replica sets and sharded clusters.
// Each server listens on a free port of the loopback interface and keeps its data in a temporary directory. Tests may
// kill or freeze the servers.
package mongod
