package main

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm fires at a given time of [clock] or, if the machine is suspended at that time, as soon
// as the machine wakes. Go's timers stop while the machine is suspended, so they would fire late.
type alarm struct {
	c    chan struct{} // with a capacity of one
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

// set makes the alarm fire at t instead of the previous time. The receiver must check the clock,
// because the alarm may just have fired for the previous time.
func (a *alarm) set(t time.Duration) {
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(t, 1)))} // 0 would disarm it
	if err := unix.TimerfdSettime(int(a.file.Fd()), unix.TFD_TIMER_ABSTIME, &when, nil); err != nil {
		panic(os.NewSyscallError("timerfd_settime", err)) // without the alarm nothing would stop the command
	}
}

// clock returns the time since boot, including the time that the machine was suspended. All
// processes see the same clock, and nobody can set it.
func clock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }

// executable returns the path of the file that this process runs, even if that file has been
// replaced since.
func executable() (string, error) { return "/proc/self/exe", nil }

// dieWithParent makes the kernel kill a process when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// becomeReaper makes this process the parent of its orphaned descendants, so that it can wait for
// them.
func becomeReaper() {
	// This fails only on kernels before 3.4, where reapGroup does not wait for orphans.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// reapGroup waits until all processes of a killed group are dead.
func reapGroup(pgid int) {
	for {
		_, err := syscall.Wait4(-pgid, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// reapOrphans reaps children of leasehold that have exited, such as daemons that an exited keeper
// left behind. It may also reap a keeper; nothing needs the exit status.
func reapOrphans() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
