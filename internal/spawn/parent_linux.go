package spawn

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel end the process of cmd if this process dies first, for example
// because a test timed out. Call it before the process of cmd is started. It sets cmd.SysProcAttr.
func EndWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
