//go:build linux || darwin || freebsd

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A keeper is the process that runs the command, as leasehold sees it: see [keep].
type keeper struct {
	cmd     *exec.Cmd
	orders  *os.File
	reports chan report // closed when the keeper has ended
	pgid    int         // the command's process group, 0: not known
}

// startKeeper starts a keeper, which starts the command with its first order.
func startKeeper(a *app, command, env []string) (*keeper, error) {
	becomeReaper()
	self, err := executable()
	if err != nil {
		return nil, err
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
	k := &keeper{cmd: exec.Command(self), orders: orders, reports: make(chan report, 2)}
	k.cmd.Args = append([]string{"leasehold", keepName, "--"}, command...)
	k.cmd.Env = append(os.Environ(), env...)
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = a.stdin, a.stdout, a.stderr
	k.cmd.ExtraFiles = []*os.File{ordersOut, reportsIn}
	// A session of its own: what is sent to leasehold's group, a stop from the
	// terminal included, does not reach it.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := k.cmd.Start(); err != nil {
		orders.Close()
		reports.Close()
		return nil, err
	}
	go func() {
		defer close(k.reports)
		defer reports.Close()
		for lines := json.NewDecoder(reports); ; {
			var r report
			if lines.Decode(&r) != nil {
				return
			}
			k.reports <- r
		}
	}()
	return k, nil
}

// tell sends an order. A keeper that takes none is frozen or dead, which is noticed
// when the hold is lost or its reports end: it must not hold up leasehold.
func (k *keeper) tell(o order) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers only
	}
	k.orders.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	k.orders.Write(append(line, '\n'))
}

// kill kills the command's group, and the keeper, with which the command would die
// if its group is not known yet.
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
		reapGroup(k.pgid)
	}
}

// statusOf is the exit status that stands for how a command ended.
func statusOf(p *os.ProcessState) int {
	if w := p.Sys().(syscall.WaitStatus); w.Signaled() {
		return exitSignal + int(w.Signal())
	}
	return p.ExitCode()
}
