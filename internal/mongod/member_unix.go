//go:build unix

package mongod

import "syscall"

// Freeze stops the process as SIGSTOP does.
func (m *Member) Freeze() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (m *Member) Thaw() error { return m.cmd.Process.Signal(syscall.SIGCONT) }
