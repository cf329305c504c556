// Package integration tests leasehold on real servers, with real processes and real faults. It
// contains only tests; README.md says how to run them.
package integration
