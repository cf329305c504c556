//go:build linux || darwin || freebsd

package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal of leasehold. A shell gives it to one process group at a time: the job in the
// foreground. With Ctrl-Z and fg, the user stops and continues jobs. The command runs in a process group of its own,
// which the shell does not know about. leasehold makes that group look like part of leasehold's job:
//
//   - The command starts in the background. The kernel stops it when it reads from the terminal or
//     changes the terminal's modes (SIGTTIN, SIGTTOU). If leasehold's job is in the foreground, leasehold then puts the
//     command's group into the foreground and continues the command. It does not do this earlier, because another
//     process of the job may need the terminal, as in "leasehold run … | less", and because Ctrl-C must interrupt the
//     whole job.
//   - When Ctrl-Z has stopped the command, or the command needs the terminal while the job is in the background,
//     leasehold stops its whole job, as the shell expects. The shell then takes the terminal back. On fg or bg the
//     shell sends SIGCONT to leasehold, which forwards it to the command.
//
// While leasehold is stopped it sends no heartbeats. The keeper is not stopped: it ends the command
// in time unless leasehold is continued before the lease runs out.
type terminal struct {
	fd            int
	job           int  // leasehold's own process group
	command       int  // the command's process group; 0: none
	stopRequested bool // Ctrl-Z was pressed, but the command has not stopped yet
}

// openTerminal returns the controlling terminal, or nil if there is none.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	// Without this, SIGTTOU would stop leasehold when it changes the foreground group from the
	// background.
	signal.Ignore(syscall.SIGTTOU)
	return &terminal{fd: fd, job: unix.Getpgrp()}
}

func (t *terminal) close() { unix.Close(t.fd) }

// foreground returns the foreground process group.
func (t *terminal) foreground() int {
	pgid, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0 // the terminal has hung up
	}
	return pgid
}

// give puts a group into the foreground. Errors don't matter: they mean that the terminal has hung
// up or the group is dead, so nothing needs the terminal.
func (t *terminal) give(pgid int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgid) }

// takeBack puts leasehold's job back into the foreground if the command's group is in the foreground.
func (t *terminal) takeBack() {
	if t != nil && t.command != 0 && t.foreground() == t.command {
		t.give(t.job)
	}
}

// stopped handles a command that a signal has stopped. It reports whether the command must be
// continued now. If it must not, and if a shell can continue leasehold's job, that job is stopped as well. The shell's
// SIGCONT continues it later.
func (t *terminal) stopped(by syscall.Signal, command int) (goOn bool) {
	t.command = command
	fg := t.foreground()
	// If the command is already stopped because it needs the terminal, Ctrl-Z does not stop it a
	// second time. So check stopRequested as well.
	wants := by != syscall.SIGTSTP && !t.stopRequested
	t.stopRequested = false
	switch {
	case wants && (fg == t.job || fg == t.command):
		t.give(t.command)
		return true
	case !t.hasShell():
		return !wants // nothing else would continue a command that Ctrl-Z stopped; a command that waits for the terminal stays stopped
	}
	t.stopJob()
	return false
}

// hasShell reports whether there is a shell that stops and continues leasehold's job. There is none
// if leasehold runs in the session leader's own process group. On Ctrl-Z the kernel does not stop
// that group.
func (t *terminal) hasShell() bool {
	sid, err := unix.Getsid(0)
	return err == nil && sid != t.job
}

// stopJob stops leasehold's job if a shell can continue it.
func (t *terminal) stopJob() {
	if t.hasShell() {
		// Don't use SIGTSTP: Go does not restore its default action after the signal has been caught.
		syscall.Kill(0, syscall.SIGSTOP)
	}
}
