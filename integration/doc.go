// Package integration tests leasehold on real servers, with real processes and
// real faults. It holds nothing but tests; README.md says how to run them.
package integration
