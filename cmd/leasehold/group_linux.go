package main

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// executable returns what to run leasehold itself by: the file that it was started
// from, replaced by a newer one or not.
func executable() (string, error) { return "/proc/self/exe", nil }

// dieWithParent has a process killed when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// becomeReaper has processes whose parents die become children of this one, which
// can then wait for them.
func becomeReaper() {
	// It fails on kernels that are older than 3.4 only, where reapGroup does not wait.
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
