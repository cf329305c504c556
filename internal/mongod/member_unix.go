//go:build unix

package mongod

import "syscall"

// Freeze stops the process as SIGSTOP does.
func (m *Member) Freeze() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }

// Stop ends the process as a service manager does, with SIGTERM, and waits for its end.
func (m *Member) Stop() error {
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-m.done
	return nil
}

// Thaw lets a frozen process go on.
func (m *Member) Thaw() error { return m.cmd.Process.Signal(syscall.SIGCONT) }
