package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time of CLOCK_MONOTONIC.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every kernel has the clock
	}
	return time.Duration(ts.Nano())
}
