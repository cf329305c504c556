//go:build linux || darwin || freebsd

package keep

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const name = "keep-command"

// Args returns the arguments, without the program's name, of a keeper that reads orders from one descriptor and writes
// reports to another. path is the file of the command, and command its arguments, with its name.
func Args(orders, reports int, path string, command []string) []string {
	return append([]string{name, strconv.Itoa(orders), strconv.Itoa(reports), path}, command...)
}

// A keeper's work is done before main: see the package comment. This is the only init of the module.
func init() {
	if len(os.Args) > 1 && run(os.Args[1:]) {
		os.Exit(0)
	}
}

// run runs this process as a keeper if the arguments say so.
func run(args []string) (isKeeper bool) {
	if len(args) < 5 || args[0] != name {
		return false
	}
	ordersAt, err := strconv.Atoi(args[1])
	reportsAt, wrong := strconv.Atoi(args[2])
	if err != nil || wrong != nil {
		return false
	}
	orders := os.NewFile(uintptr(ordersAt), "orders")
	syscall.CloseOnExec(ordersAt) // the command inherits all descriptors but these two
	syscall.CloseOnExec(reportsAt)
	// The keeper must survive signals that systemd sends to all processes of a service: if the keeper died, the command
	// would be killed at once, without its grace.
	ignored := make(chan os.Signal, 1)
	Notify(ignored, Forwarded()...)
	// leasehold ignores SIGTTOU, and its child, the keeper, inherits that. The keeper catches the signal, so
	// that the command does not ignore it, too.
	signal.Notify(ignored, syscall.SIGTTOU)
	k := &keeper{orders: make(chan Order), reports: os.NewFile(uintptr(reportsAt), "reports")}
	go func() {
		defer close(k.orders)
		Orders(orders, func(o Order) { k.orders <- o })
	}()
	k.run(args[3], args[4:])
	return true
}

// Forwarded returns the signals that leasehold forwards to the command, apart from those of job control.
func Forwarded() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
}

// Notify is like [signal.Notify], but signals that were ignored before, as under nohup(1), stay ignored.
func Notify(c chan<- os.Signal, all ...os.Signal) {
	for _, s := range all {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// Ends reports whether the signal asks programs to end. Such a signal is meant for a whole process
// group.
func Ends(s syscall.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT
}

// A keeper is the state of the keeper process.
type keeper struct {
	orders     chan Order // closed when leasehold has exited
	reports    *os.File
	stop, kill time.Duration // see Order
	stopping   bool
	suspended  bool // job control has stopped the command, and the keeper has reported that
}

func (k *keeper) report(r Report) { k.reports.Write(r.line()) }

// run runs the command and returns when its whole group is dead.
func (k *keeper) run(path string, command []string) {
	o, ok := <-k.orders
	for ; o.Signal != 0; o, ok = <-k.orders { // signals can come before the order to start
		if Ends(syscall.Signal(o.Signal)) {
			k.report(Report{Status: ExitSignal + o.Signal})
			return
		}
	}
	if !ok {
		return
	}
	k.stop, k.kill = o.Stop, o.Kill
	alarm, err := newAlarm()
	if err != nil {
		k.report(Report{Failed: err.Error(), Status: ExitFailed})
		return
	}
	if Clock() >= k.stop {
		k.report(Report{Stopped: true})
		return
	}

	attr := &syscall.ProcAttr{
		Env:   environment(os.Environ(), o.Env),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	// The kernel sends Pdeathsig when the thread that started the command ends, even if the process
	// lives on. So lock the thread.
	dieWithParent(attr.Sys)
	runtime.LockOSThread()
	BecomeReaper()
	// os.StartProcess would first start and reap a process of its own, to learn whether the kernel has pidfds.
	pid, _, err := syscall.StartProcess(path, command, attr)
	if err != nil {
		status := ExitNotRunnable
		if errors.Is(err, os.ErrNotExist) {
			status = ExitNotFound
		}
		k.report(Report{Failed: (&os.PathError{Op: "fork/exec", Path: path, Err: err}).Error(), Status: status})
		return
	}
	k.report(Report{Started: pid})
	alarm.set(k.stop)
	states := make(chan syscall.WaitStatus)
	go waitFor(pid, states)
	status := k.watch(pid, alarm, states)

	// The group's ID can't have been reused yet: Linux and other systems assign process IDs in
	// sequence.
	syscall.Kill(-pid, syscall.SIGKILL)
	ReapGroup(pid)
	k.report(Report{Status: statusOf(status), Stopped: k.stopping})
}

// environment returns the variables with the own ones, which replace others of the same name.
func environment(inherited, own []string) []string {
	var env []string
	for _, v := range inherited {
		replaced := false
		for _, o := range own {
			replaced = replaced || variable(o) == variable(v)
		}
		if !replaced {
			env = append(env, v)
		}
	}
	return append(env, own...)
}

// variable returns the name in a setting NAME=VALUE.
func variable(setting string) string {
	for i := range len(setting) {
		if setting[i] == '=' && i > 0 {
			return setting[:i]
		}
	}
	return setting
}

// statusOf returns the exit status that a shell reports for a command that has ended.
func statusOf(w syscall.WaitStatus) int {
	if w.Signaled() {
		return ExitSignal + int(w.Signal())
	}
	return w.ExitStatus()
}

// waitFor sends each change of the command's state: any number of stops, which os/exec does not report, and then the
// command's end. It also reaps the command's orphaned descendants, which the keeper inherits. Otherwise a daemon and
// its children would remain zombies.
func waitFor(pid int, states chan<- syscall.WaitStatus) {
	for {
		var w syscall.WaitStatus
		switch ended, err := syscall.Wait4(-1, &w, syscall.WUNTRACED, nil); {
		case errors.Is(err, syscall.EINTR), err == nil && ended != pid:
			continue
		case err != nil:
			panic(os.NewSyscallError("wait4", err)) // can't happen: the command is our child, and nothing else waits for it
		}
		states <- w
		if !w.Stopped() {
			return
		}
	}
}

// watch carries out orders and enforces the deadline on the process group pid until the command has
// ended.
func (k *keeper) watch(pid int, alarm *alarm, states <-chan syscall.WaitStatus) syscall.WaitStatus {
	orders := k.orders
	for {
		select {
		case w := <-states:
			if !w.Stopped() {
				return w
			}
			// Send no further report until leasehold reacts: while leasehold is stopped, reports
			// could fill the pipe and block the keeper.
			if !k.suspended && isJobControl(w.StopSignal()) {
				k.suspended = true
				k.report(Report{Job: int(w.StopSignal())})
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
			switch now := Clock(); {
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

// forward forwards a signal from leasehold. SIGINT, SIGTERM, SIGQUIT and the signals of job control go
// to the whole group, others only to the command.
func (k *keeper) forward(pid int, s syscall.Signal) {
	if s == syscall.SIGCONT {
		k.suspended = false
	}
	if Ends(s) || s == syscall.SIGCONT || isJobControl(s) {
		pid = -pid
	}
	syscall.Kill(pid, s)
}

// isJobControl reports whether a terminal sends s to stop a process.
func isJobControl(s syscall.Signal) bool {
	return s == syscall.SIGTSTP || s == syscall.SIGTTIN || s == syscall.SIGTTOU
}
