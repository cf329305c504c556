//go:build linux || darwin || freebsd

package main

import "time"

// An order is what leasehold tells the keeper: a line of JSON. The first has the
// times; the command is not started before it.
type order struct {
	// Stop is when the command gets SIGTERM, and Kill when its group gets SIGKILL, on
	// [clock]. An order without them leaves them as they are.
	Stop, Kill time.Duration

	// Signal is to be forwarded to the command, 0: none.
	Signal int
}
