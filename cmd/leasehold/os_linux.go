package main

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm fires at a time on [clock], or, if the machine was asleep then, as soon as it
// wakes. Go's timers stop while the machine sleeps, and would fire late.
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

// set makes the alarm fire at t, and no longer at an earlier setting. The receiver must
// compare the clock, since the alarm may have fired just before it was set anew.
func (a *alarm) set(t time.Duration) {
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(t, 1)))} // 0 would disarm it
	if err := unix.TimerfdSettime(int(a.file.Fd()), unix.TFD_TIMER_ABSTIME, &when, nil); err != nil {
		panic(os.NewSyscallError("timerfd_settime", err)) // nobody would stop the command
	}
}

// clock returns the time since the machine was started, sleep included. It is the same
// in all processes, and nobody can set it.
func clock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }

// executable returns the path by which leasehold starts itself: the file that it was
// started from, even if that was replaced since.
func executable() (string, error) { return "/proc/self/exe", nil }

// dieWithParent makes the kernel kill a process when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// becomeReaper makes orphaned descendants children of this process, which can then wait
// for them.
func becomeReaper() {
	// It fails only on kernels before 3.4. There reapGroup does not wait for orphans.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// reapGroup waits until all processes of a group that were killed are dead.
func reapGroup(pgid int) {
	for {
		_, err := syscall.Wait4(-pgid, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// reapOrphans waits for children of leasehold that have ended: what a keeper that has ended leaves
// behind, daemons say. Nobody needs the status of any child, the keeper's included.
func reapOrphans() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
