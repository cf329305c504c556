//go:build darwin || freebsd

package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm fires every 20 ms, and the receiver checks [clock]: Go's timers stop while the machine
// is suspended, so they would fire late.
type alarm struct {
	c <-chan time.Time
}

func newAlarm() (*alarm, error) { return &alarm{time.Tick(20 * time.Millisecond)}, nil }

// set does nothing: the alarm fires all the time.
func (*alarm) set(time.Duration) {}

// clock returns the time since boot; on darwin it includes the time that the machine was suspended.
// All processes see the same clock, and nobody can set it.
func clock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

func executable() (string, error) { return os.Executable() }

// dieWithParent does nothing: these systems don't support it.
func dieWithParent(*syscall.SysProcAttr) {}

// becomeReaper does nothing: these systems don't support it.
func becomeReaper() {}

// reapGroup waits until the processes of a killed group no longer exist. It gives up after a
// second, because a zombie exists until its parent waits for it.
func reapGroup(pgid int) {
	for range 100 {
		if syscall.Kill(-pgid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// reapOrphans does nothing: leasehold's only children are its keepers, which it waits for.
func reapOrphans() {}
