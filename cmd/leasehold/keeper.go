//go:build linux || darwin || freebsd

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper is leasehold's handle on the process that runs the command: see [keep].
type keeper struct {
	cmd     *exec.Cmd
	orders  *os.File
	reports chan report // closed when the keeper has exited
	pgid    int         // the command's process group; 0: not known
	waited  bool        // wait has returned
}

// startKeeper starts a keeper, which starts the command when it gets its first deadline. If jobControl
// is true, the command can use the controlling terminal.
func startKeeper(a *app, command []string, jobControl bool) (*keeper, error) {
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
	files, at, closeFiles, err := besideInherited(ordersOut, reportsIn)
	if err != nil {
		orders.Close()
		reports.Close()
		return nil, err
	}
	defer closeFiles()
	k.cmd.Args = append([]string{"leasehold", keepName, strconv.Itoa(at[0]), strconv.Itoa(at[1])}, forSockets(command)...)
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
func (k *keeper) tell(o order) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err) // can't happen: an order has only numbers and strings
	}
	c, err := k.orders.SyscallConn()
	if err != nil {
		return // closed
	}
	// Writes to the pipe don't block, and a line is written either whole or not at all, because it is shorter than
	// PIPE_BUF: the longest, with the environment, has a key of at most 512 bytes.
	c.Write(func(fd uintptr) bool {
		for {
			if _, err := unix.Write(int(fd), append(line, '\n')); !errors.Is(err, unix.EINTR) {
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
		reapGroup(k.pgid)
	}
	k.waited = true
}

// end ends the keeper, unless wait has returned.
func (k *keeper) end() {
	if !k.waited {
		k.kill()
		k.wait()
	}
}

// statusOf returns the exit status that a shell reports for a command that has ended.
func statusOf(w syscall.WaitStatus) int {
	if w.Signaled() {
		return exitSignal + int(w.Signal())
	}
	return w.ExitStatus()
}

// An order is a message from leasehold to the keeper: a line of JSON. The first order that has Stop
// and Kill makes the keeper start the command, and Env is added to the command's environment.
type order struct {
	// The command's group gets SIGTERM at the time Stop and SIGKILL at the time Kill, both by
	// [clock]. An order with a Signal does not change them.
	Stop, Kill time.Duration

	// Signal is a signal to forward to the command; 0: none.
	Signal int

	Env []string `json:",omitempty"`
}

// A report is a message from the keeper to leasehold: a line of JSON. The first report says that
// the command was started. The last report says that the command has ended, or that it could not be
// started. Any report between them says that job control has stopped the command.
type report struct {
	Started int    // the ID of the command's process and of its group
	Job     int    // the job control signal that stopped the command
	Failed  string // why the command did not start
	Status  int    // the exit status
	Stopped bool   // the keeper stopped the command at the deadline, or got the deadline too late to start it
}

const keepName = "keep-command"

// keepMain runs leasehold as a keeper if the arguments say so. It does not need the commands, whose construction takes
// longer than the start of a small program.
func keepMain(args []string) (isKeeper bool) {
	if len(args) < 4 || args[0] != keepName {
		return false
	}
	ordersAt, err := strconv.Atoi(args[1])
	reportsAt, wrong := strconv.Atoi(args[2])
	if err != nil || wrong != nil {
		return false
	}
	orders, reports := os.NewFile(uintptr(ordersAt), "orders"), os.NewFile(uintptr(reportsAt), "reports")
	syscall.CloseOnExec(ordersAt) // the command inherits all descriptors but these two
	syscall.CloseOnExec(reportsAt)
	// The keeper must survive signals that systemd sends to all processes of a service: if
	// the keeper died, the command would be killed at once, without its grace.
	catch()
	// leasehold ignores SIGTTOU, and its child, the keeper, inherits that. The keeper catches the signal, so
	// that the command does not ignore it, too.
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
	k.run(args[3:])
	return true
}

// A keep is the state of the keeper process. The keeper runs the command, and stops it at a deadline, whatever happens
// to leasehold. As long as the hold lasts, leasehold extends the deadline again and again. To stay simple, the keeper
// knows nothing about stores and keys.
type keep struct {
	orders     chan order // closed when leasehold has exited
	reports    *json.Encoder
	stop, kill time.Duration // see order
	stopping   bool
	suspended  bool // job control has stopped the command, and the keeper has reported that
}

// run runs the command and returns when its whole group is dead.
func (k *keep) run(command []string) {
	o, ok := <-k.orders
	for ; o.Signal != 0; o, ok = <-k.orders { // signals can come before the order to start
		if caught(o.Signal).ends() {
			k.reports.Encode(report{Status: exitSignal + o.Signal})
			return
		}
	}
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
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The kernel sends Pdeathsig when the thread that started the command ends, even if the process
	// lives on. So lock the thread.
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

	// The group's ID can't have been reused yet: Linux and other systems assign process IDs in
	// sequence.
	syscall.Kill(-pid, syscall.SIGKILL)
	reapGroup(pid)
	k.reports.Encode(report{Status: statusOf(status), Stopped: k.stopping})
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
func (k *keep) watch(pid int, alarm *alarm, states <-chan syscall.WaitStatus) syscall.WaitStatus {
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

// forward forwards a signal from leasehold. SIGINT, SIGTERM, SIGQUIT and the signals of job control go
// to the whole group, others only to the command.
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
		panic(err) // without this clock no deadline can be enforced
	}
	return time.Duration(t.Nano())
}
