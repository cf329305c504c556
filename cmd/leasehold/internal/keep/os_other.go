//go:build darwin || freebsd

package keep

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm fires every 20 ms, and the receiver checks [Clock]: Go's timers stop while the machine
// is suspended, so they would fire late.
type alarm struct {
	c <-chan time.Time
}

func newAlarm() (*alarm, error) { return &alarm{time.Tick(20 * time.Millisecond)}, nil }

// set does nothing: the alarm fires all the time.
func (*alarm) set(time.Duration) {}

// Clock returns the time since boot; on darwin it includes the time that the machine was suspended.
// All processes see the same clock, and nobody can set it.
func Clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // without this clock no deadline can be enforced
	}
	return time.Duration(t.Nano())
}

// dieWithParent does nothing: these systems don't support it.
func dieWithParent(*syscall.SysProcAttr) {}

// BecomeReaper does nothing: these systems don't support it.
func BecomeReaper() {}

// ReapGroup waits until the processes of a killed group no longer exist. It gives up after a
// second, because a zombie exists until its parent waits for it.
func ReapGroup(pgid int) {
	for range 100 {
		if syscall.Kill(-pgid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
