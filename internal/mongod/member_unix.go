//go:build unix

package mongod

import "syscall"

// Freeze stops the process with SIGSTOP.
func (m *Member) Freeze() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }

// Stop ends the process with SIGTERM, as a service manager does, and waits until it has ended.
func (m *Member) Stop() error {
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-m.done
	return nil
}

// Thaw resumes a frozen process.
func (m *Member) Thaw() error { return m.cmd.Process.Signal(syscall.SIGCONT) }
