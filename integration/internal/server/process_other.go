//go:build unix && !linux

package server

import (
	"os"
	"os/exec"
	"syscall"
)

func endWithParent(*exec.Cmd) {}

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func thaw(p *os.Process) error   { return p.Signal(syscall.SIGCONT) }
