package spawn

import (
	"os/exec"
	"syscall"
)

// EndWithParent has the kernel end the process, which is not started yet, if this one
// dies without having ended it (a test that times out panics). It sets cmd.SysProcAttr.
func EndWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
