//go:build darwin || freebsd

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock returns the time since the machine was started: all processes have the
// same, and nobody sets it. On darwin it counts what the machine slept, too.
func clock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }
