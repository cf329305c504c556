package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm tells when a time on [clock] has come, at once when the machine wakes
// from a sleep in which it came: Go's timers stand still in a sleep.
type alarm struct {
	c    chan struct{} // has room for one
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{c: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "alarm")}
	go func() {
		var count [8]byte
		for {
			if _, err := a.file.Read(count[:]); err != nil {
				return
			}
			select {
			case a.c <- struct{}{}:
			default:
			}
		}
	}()
	return a, nil
}

// set has the alarm tell at t, and not at a time that was set before. Who is told
// compares the clock: the alarm may have rung just before it was set anew.
func (a *alarm) set(t time.Duration) {
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(t, 1)))} // 0 would disarm it
	if err := unix.TimerfdSettime(int(a.file.Fd()), unix.TFD_TIMER_ABSTIME, &when, nil); err != nil {
		panic(os.NewSyscallError("timerfd_settime", err)) // nobody would stop the command
	}
}
