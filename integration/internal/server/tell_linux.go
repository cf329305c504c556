package server

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// terminal returns the stderr of go test, which is this process's parent, or nil if it can't be
// opened. That stderr is often a terminal. The tests can't print there themselves, because go test
// discards the output of passing tests.
func terminal() *os.File {
	if pidfd, err := unix.PidfdOpen(os.Getppid(), 0); err == nil {
		defer unix.Close(pidfd)
		if fd, err := unix.PidfdGetfd(pidfd, int(os.Stderr.Fd()), 0); err == nil {
			return os.NewFile(uintptr(fd), "stderr of go test")
		}
	}
	// If copying the descriptor is not permitted, open the terminal or pipe again. Don't do that
	// with a file: the two descriptors would overwrite each other's output.
	name := "/proc/" + strconv.Itoa(os.Getppid()) + "/fd/2"
	if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	return f
}
