package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock returns the time since the machine was started, what it slept included: all
// processes have the same, and nobody sets it.
func clock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }
