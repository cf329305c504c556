package engine

import (
	"syscall"
	"time"
	"unsafe"
)

// A sleepMark is how long the machine has slept since boot: CLOCK_BOOTTIME minus CLOCK_MONOTONIC
// (clock_gettime(2)).
type sleepMark time.Duration

func markSleep() sleepMark {
	const monotonic, boottime = 1, 7
	for range 4 {
		m1, b, m2 := clockGettime(monotonic), clockGettime(boottime), clockGettime(monotonic)
		// If the thread was stopped between the readings, b-m2 is meaningless.
		if m2-m1 < time.Millisecond {
			return sleepMark(b - m2)
		}
	}
	return sleepMark(clockGettime(boottime) - clockGettime(monotonic))
}

// since returns how long the machine has slept since m. It ignores differences below a millisecond: the two clocks are
// read one after the other.
func (m sleepMark) since(_, _ time.Time) time.Duration {
	d := time.Duration(markSleep() - m)
	if d < time.Millisecond {
		return 0
	}
	return d
}

func clockGettime(clock uintptr) time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
