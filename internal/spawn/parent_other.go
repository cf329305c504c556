//go:build !linux

package spawn

import "os/exec"

// EndWithParent does nothing here: only Linux ends a process with its parent.
func EndWithParent(*exec.Cmd) {}
