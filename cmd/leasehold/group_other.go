//go:build darwin || freebsd

package main

import (
	"os"
	"syscall"
	"time"
)

func executable() (string, error) { return os.Executable() }

// dieWithParent can't be had here.
func dieWithParent(*syscall.SysProcAttr) {}

// becomeReaper can't be had here.
func becomeReaper() {}

// reapGroup waits until the processes of a group that were killed are gone. Whose
// parents do not wait for them never are, so it gives up after a second.
func reapGroup(pgid int) {
	for range 100 {
		if syscall.Kill(-pgid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
