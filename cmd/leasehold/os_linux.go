package main

import (
	"errors"
	"syscall"
)

// executable returns the path of the file that this process runs, even if that file has been
// replaced since.
func executable() (string, error) { return "/proc/self/exe", nil }

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
