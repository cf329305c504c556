//go:build darwin || freebsd

package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm fires every 20 ms, and the receiver compares [clock]: Go's timers stop while
// the machine sleeps, and would fire late.
type alarm struct {
	c <-chan time.Time
}

func newAlarm() (*alarm, error) { return &alarm{time.Tick(20 * time.Millisecond)}, nil }

// set does nothing: the alarm fires all the time.
func (*alarm) set(time.Duration) {}

// clock returns the time since the machine was started, on darwin sleep included. It is
// the same in all processes, and nobody can set it.
func clock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

func executable() (string, error) { return os.Executable() }

// dieWithParent does nothing: these systems can't do it.
func dieWithParent(*syscall.SysProcAttr) {}

// becomeReaper does nothing: these systems can't do it.
func becomeReaper() {}

// reapGroup waits until the killed processes of a group no longer exist. A zombie whose
// parent does not wait for it exists on, so reapGroup gives up after a second.
func reapGroup(pgid int) {
	for range 100 {
		if syscall.Kill(-pgid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// reapOrphans does nothing: the children of leasehold are its keepers, which it waits for.
func reapOrphans() {}
