//go:build linux || darwin || freebsd

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const keepName = "keep-command"

// newKeep returns the command that leasehold runs itself as to run a command.
func newKeep() *cobra.Command {
	return &cobra.Command{
		Use:    keepName + " -- COMMAND [ARG...]",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, command []string) error {
			orders, reports := os.NewFile(3, "orders"), os.NewFile(4, "reports")
			if orders == nil || reports == nil {
				return usagef("%s is what leasehold runs itself as", keepName)
			}
			syscall.CloseOnExec(3)
			syscall.CloseOnExec(4)
			// Who sends a signal to all processes of a service, as systemd does, means the
			// command: the keeper must not die of it, and the command with it.
			catch()
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

// A keep is the keeper, as it sees itself: a process that runs a command and stops
// it in time, whatever becomes of leasehold, which must tell it that there is more
// time again and again. It is the simplest thing that can do that: it knows of no
// store and of no key.
type keep struct {
	orders     chan order // closed at the end of leasehold
	reports    *json.Encoder
	stop, kill time.Duration // see order
	stopping   bool
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
	// The signal comes when the thread ends that started the command.
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
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	k.watch(pid, alarm, ended)

	// No process can have got the number of the group yet: Linux and others give
	// them out in turn.
	syscall.Kill(-pid, syscall.SIGKILL)
	reapGroup(pid)
	k.reports.Encode(report{Status: statusOf(cmd.ProcessState), Stopped: k.stopping})
}

// watch does what is to be done to the group pid until the command has ended.
func (k *keep) watch(pid int, alarm *alarm, ended <-chan struct{}) {
	orders := k.orders
	for {
		select {
		case <-ended:
			return
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
				syscall.Kill(-pid, syscall.SIGCONT) // who is stopped can't end
				alarm.set(k.kill)
			}
		}
	}
}

// forward sends on a signal that leasehold got.
func (k *keep) forward(pid int, s syscall.Signal) {
	if caught(s).ends() {
		pid = -pid
	}
	syscall.Kill(pid, s)
}
