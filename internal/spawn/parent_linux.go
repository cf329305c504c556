package spawn

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel end the process of cmd if this process dies without having ended the
// other, for example because a test timed out. Call it before the process is started. It sets
// cmd.SysProcAttr.
func EndWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
