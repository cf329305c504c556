//go:build !windows

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFolder locks a folder against other agents until unlock. The kernel unlocks it when the process ends. It waits for at
// most five seconds, because anyone who can read the folder can lock it.
func lockFolder(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for range 500 {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("can't lock the folder %s, perhaps because another process has: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// modeBeforeName gives a socket its mode before it has a name, so that nobody who may not can connect. macOS has no such
// call; there the umask says who may connect until the socket has its mode.
func modeBeforeName(mode os.FileMode) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), uint32(mode)) })
	}
}
