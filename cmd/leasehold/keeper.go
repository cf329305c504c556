//go:build linux || darwin || freebsd

package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/keep"
	"golang.org/x/sys/unix"
)

// A keeper is leasehold's handle on the process that runs the command: see package keep.
type keeper struct {
	cmd     *exec.Cmd
	orders  *os.File
	reports chan keep.Report // closed when the keeper has exited
	pgid    int              // the command's process group; 0: not known
	waited  bool             // wait has returned
	leaves  chan struct{}    // closed when wait has returned, if leave was called; otherwise nil
}

// startKeeper starts a keeper, which starts the command when it gets its first deadline. The command is looked up in PATH
// now, so that a mistyped name is an error at once. If jobControl is true, the command can use the controlling terminal.
func startKeeper(a *app, command []string, jobControl bool) (*keeper, error) {
	keep.BecomeReaper()
	self, err := executable()
	if err != nil {
		return nil, err
	}
	command = forSockets(command)
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, notRunnable(err)
	}
	ordersOut, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersOut.Close()
	reports, reportsIn, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer reportsIn.Close()
	k := &keeper{cmd: exec.Command(self), orders: orders, reports: make(chan keep.Report, 2)}
	files, at, closeFiles, err := besideInherited(ordersOut, reportsIn)
	if err != nil {
		orders.Close()
		reports.Close()
		return nil, err
	}
	defer closeFiles()
	k.cmd.Args = append([]string{"leasehold"}, keep.Args(at[0], at[1], path, command)...)
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = a.stdin, a.stdout, a.stderr
	k.cmd.ExtraFiles = files
	// The keeper has its own process group, so that signals to leasehold's group, such as a stop
	// from the terminal, do not reach it. With job control it stays in leasehold's session, because
	// only groups of that session can use the terminal.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: !jobControl, Setpgid: jobControl}
	if err := k.cmd.Start(); err != nil {
		orders.Close()
		reports.Close()
		return nil, err
	}
	go func() {
		defer close(k.reports)
		defer reports.Close()
		keep.Reports(reports, func(r keep.Report) { k.reports <- r })
	}()
	return k, nil
}

// besideInherited assigns the files to descriptors that leasehold's caller left free. It returns the
// ExtraFiles for the child, and the descriptor of each file. Descriptors that the caller passed for
// the command, such as those of make's job server or systemd's sockets, keep their numbers. Call
// closeFiles after starting the child.
func besideInherited(files ...*os.File) (extra []*os.File, at []int, closeFiles func(), err error) {
	var copies []*os.File
	closeFiles = func() {
		for _, f := range copies {
			f.Close()
		}
	}
	syscall.ForkLock.Lock() // elsewhere than on Linux, a socket that is being opened is inherited for a moment
	defer syscall.ForkLock.Unlock()
	for fd := 3; len(at) < len(files); fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 { // not open, or not inherited
			extra = append(extra, files[len(at)])
			at = append(at, fd)
			continue
		}
		// Pass a copy, because the garbage collector closes the descriptor of an os.File. The
		// copy's number is above fd: starting the child would move a lower descriptor, perhaps onto
		// another of the caller's descriptors.
		number, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, fd+1)
		if err != nil {
			closeFiles()
			return nil, nil, nil, os.NewSyscallError("fcntl", err)
		}
		copies = append(copies, os.NewFile(uintptr(number), "inherited"))
		extra = append(extra, copies[len(copies)-1])
	}
	return extra, at, closeFiles, nil
}

// forSockets wraps the command so that it accepts the sockets that systemd passed to leasehold. A process accepts such
// sockets only if LISTEN_PID is its own process ID.
func forSockets(command []string) []string {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return command
	}
	return append([]string{"sh", "-c", `unset LISTEN_PIDFDID; export LISTEN_PID=$$; exec "$0" "$@"`}, command...)
}

// tell sends an order. It does not wait for a keeper that is frozen or dead: leasehold notices that
// when the hold is lost or the reports end. A write deadline would be wrong: on a busy machine it
// could pass before the first attempt to write, and the keeper would never get the order to start
// the command.
func (k *keeper) tell(o keep.Order) {
	line := o.Line()
	c, err := k.orders.SyscallConn()
	if err != nil {
		return // closed
	}
	// Writes to the pipe don't block, and a line is written either whole or not at all, because it is shorter than
	// PIPE_BUF: the longest, with the environment, has a key of at most 512 bytes. Where PIPE_BUF is less than that, only
	// this first line may be longer, and the pipe is then empty.
	c.Write(func(fd uintptr) bool {
		for {
			if _, err := unix.Write(int(fd), line); !errors.Is(err, unix.EINTR) {
				return true
			}
		}
	})
}

// kill kills the command's group and the keeper. If the group is not known yet, the command dies with
// the keeper (on Linux).
func (k *keeper) kill() {
	if k.pgid != 0 {
		syscall.Kill(-k.pgid, syscall.SIGKILL)
	}
	k.cmd.Process.Kill()
}

// wait waits until the keeper and the command's group are dead.
func (k *keeper) wait() {
	k.orders.Close()
	k.cmd.Wait()
	for range k.reports {
	}
	if k.pgid != 0 {
		keep.ReapGroup(k.pgid)
	}
	k.waited = true
}

// leave is for a keeper that has sent its last report, which it sends when the command's group is dead. Nothing needs
// to wait for the end of the keeper itself, except end.
func (k *keeper) leave() {
	k.leaves = make(chan struct{})
	go func() {
		defer close(k.leaves)
		k.wait()
	}()
}

// end ends the keeper, unless wait has returned.
func (k *keeper) end() {
	switch {
	case k.leaves != nil:
		k.cmd.Process.Kill() // it has nothing left to do, but may be frozen
		<-k.leaves
	case !k.waited:
		k.kill()
		k.wait()
	}
}
