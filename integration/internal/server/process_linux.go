package server

import (
	"os"
	"os/exec"
	"syscall"
)

// endWithParent has the kernel end the process if this one dies without having
// ended it (a test that times out panics).
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func thaw(p *os.Process) error   { return p.Signal(syscall.SIGCONT) }
