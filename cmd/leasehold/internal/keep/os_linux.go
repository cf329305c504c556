package keep

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// These constants and calls are in golang.org/x/sys/unix, which is initialized too late: see the package comment.
const (
	clockBoottime        = 7  // CLOCK_BOOTTIME
	timerAbstime         = 1  // TFD_TIMER_ABSTIME
	prSetChildSubreaper  = 36 // PR_SET_CHILD_SUBREAPER
	timerCloexecNonblock = syscall.O_CLOEXEC | syscall.O_NONBLOCK
)

// An alarm fires at a given time of [Clock] or, if the machine is suspended at that time, as soon
// as the machine wakes. Go's timers stop while the machine is suspended, so they would fire late.
type alarm struct {
	c  chan struct{} // with a capacity of one
	fd uintptr
}

func newAlarm() (*alarm, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, timerCloexecNonblock, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("timerfd_create", errno)
	}
	a := &alarm{c: make(chan struct{}, 1), fd: fd}
	file := os.NewFile(fd, "alarm")
	go func() {
		var count [8]byte
		for {
			if _, err := file.Read(count[:]); err != nil {
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
	when := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(max(t, 1)))} // 0 would disarm it
	_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, a.fd, timerAbstime, uintptr(unsafe.Pointer(&when)), 0, 0, 0)
	if errno != 0 {
		panic(os.NewSyscallError("timerfd_settime", errno)) // without the alarm nothing would stop the command
	}
}

// Clock returns the time since boot, including the time that the machine was suspended. All
// processes see the same clock, and nobody can set it.
func Clock() time.Duration {
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		panic(os.NewSyscallError("clock_gettime", errno)) // without this clock no deadline can be enforced
	}
	return time.Duration(t.Nano())
}

// dieWithParent makes the kernel kill a process when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// BecomeReaper makes this process the parent of its orphaned descendants, so that it can wait for
// them.
func BecomeReaper() {
	// This fails only on kernels before 3.4, where ReapGroup does not wait for orphans.
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0)
}

// ReapGroup waits until all processes of a killed group are dead.
func ReapGroup(pgid int) {
	for {
		_, err := syscall.Wait4(-pgid, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
