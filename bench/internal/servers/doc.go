// Package servers starts the servers that are measured, each on loopback, on a free
// port, with its data in a temporary directory, and ends them by their pids.
package servers
