//go:build linux || darwin || freebsd

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A keeper is leasehold's handle on the process that runs the command: see [keep].
type keeper struct {
	cmd     *exec.Cmd
	orders  *os.File
	reports chan report // closed when the keeper has ended
	pgid    int         // the command's process group, 0: not known
}

// startKeeper starts a keeper. It starts the command when it gets its first order. With
// job control the command can use the controlling terminal.
func startKeeper(a *app, command, env []string, jobControl bool) (*keeper, error) {
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
	// The keeper has a process group of its own, so that signals to leasehold's, a stop
	// from the terminal included, do not reach it. The command's group can use the terminal
	// only in the same session.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: !jobControl, Setpgid: jobControl}
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

// tell sends an order. It does not wait for a keeper that is frozen or dead: leasehold
// notices that when the hold is lost or the reports end.
func (k *keeper) tell(o order) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers only
	}
	k.orders.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	k.orders.Write(append(line, '\n'))
}

// kill kills the command's group and the keeper. If the group is not known yet, the
// command dies with the keeper.
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

// statusOf returns the exit status that says how a command ended, as a shell's does.
func statusOf(w syscall.WaitStatus) int {
	if w.Signaled() {
		return exitSignal + int(w.Signal())
	}
	return w.ExitStatus()
}

// An order is a message from leasehold to the keeper: a line of JSON. The first one has
// Stop and Kill; the keeper starts the command when it arrives.
type order struct {
	// Stop is when the command gets SIGTERM, and Kill when its group gets SIGKILL, on
	// [clock]. They are ignored in an order that has a Signal.
	Stop, Kill time.Duration

	// Signal is a signal to forward to the command; 0: none.
	Signal int
}

// A report is a message from the keeper to leasehold: a line of JSON. The first says that
// the command was started, the last that it has ended or did not start. In between there
// may be some that say that job control has stopped it.
type report struct {
	Started int    // the process id of the command, which is also that of its group
	Job     int    // the signal of job control that has stopped the command
	Failed  string // why the command did not start
	Status  int    // the exit status
	Stopped bool   // the keeper stopped the command at the deadline
}

const keepName = "keep-command"

// newKeep returns the hidden command by which leasehold starts itself as a keeper.
func newKeep() *cobra.Command {
	return &cobra.Command{
		Use:    keepName + " -- COMMAND [ARG...]",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, command []string) error {
			orders, reports := os.NewFile(3, "orders"), os.NewFile(4, "reports")
			if orders == nil || reports == nil {
				return usagef("%s is for leasehold's own use", keepName)
			}
			syscall.CloseOnExec(3)
			syscall.CloseOnExec(4)
			// The keeper must survive a signal to all processes of a service, as systemd
			// sends it: if it died, the command would die with it, without its grace.
			catch()
			// leasehold ignores SIGTTOU, and so would the command if it were not caught here.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
			k := &keep{orders: make(chan order), reports: json.NewEncoder(reports)}
			go func() {
				defer close(k.orders)
				for lines := json.NewDecoder(orders); ; {
					var o order
					if lines.Decode(&o) != nil {
						return
					}
					k.orders <- o
				}
			}()
			k.run(command)
			return nil
		},
	}
}

// A keep is the state of the keeper process. It runs the command and stops it at the
// deadline, whatever happens to leasehold, which must extend the deadline again and
// again. It is as simple as possible: it knows nothing about stores and keys.
type keep struct {
	orders     chan order // closed when leasehold has ended
	reports    *json.Encoder
	stop, kill time.Duration // see order
	stopping   bool
	suspended  bool // the keeper has reported that job control has stopped the command
}

// run runs the command until all of its group is dead.
func (k *keep) run(command []string) {
	o, ok := <-k.orders
	if !ok {
		return
	}
	k.stop, k.kill = o.Stop, o.Kill
	alarm, err := newAlarm()
	if err != nil {
		k.reports.Encode(report{Failed: err.Error(), Status: exitFailed})
		return
	}
	if clock() >= k.stop {
		k.reports.Encode(report{Stopped: true})
		return
	}

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Pdeathsig is sent when the thread that started the command ends, not the process.
	dieWithParent(cmd.SysProcAttr)
	runtime.LockOSThread()
	becomeReaper()
	if err := cmd.Start(); err != nil {
		f := notRunnable(err)
		k.reports.Encode(report{Failed: f.Error(), Status: f.status})
		return
	}
	pid := cmd.Process.Pid
	k.reports.Encode(report{Started: pid})
	alarm.set(k.stop)
	states := make(chan syscall.WaitStatus)
	go waitFor(pid, states)
	status := k.watch(pid, alarm, states)

	// The group's number can't have been reused yet: Linux and other systems assign
	// process ids in turn.
	syscall.Kill(-pid, syscall.SIGKILL)
	reapGroup(pid)
	k.reports.Encode(report{Status: statusOf(status), Stopped: k.stopping})
}

// waitFor sends each state of the command: stopped any number of times, then ended. os/exec
// knows nothing of the former.
func waitFor(pid int, states chan<- syscall.WaitStatus) {
	for {
		var w syscall.WaitStatus
		switch _, err := syscall.Wait4(pid, &w, syscall.WUNTRACED, nil); {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			panic(os.NewSyscallError("wait4", err)) // it is our child, and nobody else waits for it
		}
		states <- w
		if !w.Stopped() {
			return
		}
	}
}

// watch carries out orders and the deadline on the group pid until the command has ended.
func (k *keep) watch(pid int, alarm *alarm, states <-chan syscall.WaitStatus) syscall.WaitStatus {
	orders := k.orders
	for {
		select {
		case w := <-states:
			if !w.Stopped() {
				return w
			}
			// One report until leasehold answers: more could fill the pipe while leasehold is
			// stopped, and block the keeper.
			if !k.suspended && isJobControl(w.StopSignal()) {
				k.suspended = true
				k.reports.Encode(report{Job: int(w.StopSignal())})
			}
		case o, ok := <-orders:
			switch {
			case !ok:
				orders = nil
				syscall.Kill(-pid, syscall.SIGKILL)
			case o.Signal != 0:
				k.forward(pid, syscall.Signal(o.Signal))
			case !k.stopping:
				k.stop, k.kill = o.Stop, o.Kill
				alarm.set(k.stop)
			}
		case <-alarm.c:
			switch now := clock(); {
			case now >= k.kill:
				k.stopping = true
				syscall.Kill(-pid, syscall.SIGKILL)
			case now >= k.stop:
				k.stopping = true
				syscall.Kill(-pid, syscall.SIGTERM)
				syscall.Kill(-pid, syscall.SIGCONT) // a stopped process can't handle SIGTERM
				alarm.set(k.kill)
			}
		}
	}
}

// forward sends a signal that leasehold got: one that ends programs, stops or continues
// them to the whole group, any other to the command alone.
func (k *keep) forward(pid int, s syscall.Signal) {
	if s == syscall.SIGCONT {
		k.suspended = false
	}
	if caught(s).ends() || s == syscall.SIGCONT || isJobControl(s) {
		pid = -pid
	}
	syscall.Kill(pid, s)
}

// isJobControl reports whether a terminal sends s to stop a process.
func isJobControl(s syscall.Signal) bool {
	return s == syscall.SIGTSTP || s == syscall.SIGTTIN || s == syscall.SIGTTOU
}

func readClock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err) // there is no such clock: nothing could be promised
	}
	return time.Duration(t.Nano())
}
