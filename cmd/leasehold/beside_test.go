//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/keep"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"golang.org/x/sys/unix"
)

// The tests in this file are for B45: under leasehold, as under flock(1), a command behaves as if it had been started
// directly. So do the processes that outlive the command.

// onMemoryCommand returns a command that runs leasehold on a store in its own memory.
func onMemoryCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	noErr(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), onMemory+"=1")
	return cmd
}

// zombies returns the children of a process that have exited and have not been reaped.
func zombies(t *testing.T, parent int) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	noErr(t, err)
	for _, list := range lists {
		for _, pid := range strings.Fields(read(t, list)) {
			if dead(pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Orphaned descendants of the command are reaped when they exit, even if they have left the command's group, and even
// after the command has ended. Otherwise a command that starts daemons and runs for a year would leave thousands of
// zombies.
func TestKeeperReapsOrphans(t *testing.T) {
	dir := t.TempDir()
	gate, pids := filepath.Join(dir, "gate"), filepath.Join(dir, "pids")
	noErr(t, unix.Mkfifo(gate, 0o600))
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	script := fmt.Sprintf(`for i in 1 2 3 4 5 6 7 8; do
			(sh -c 'echo $$ >>%[1]s' &)
			(setsid sh -c 'echo $$ >>%[1]s' &)
		done
		(setsid sh -c 'echo $$ >>%[1]s; read x <%[2]s' >/dev/null 2>&1 &)
		exec sleep 1000`, pids, gate)
	k, err := startKeeper(a, []string{"sh", "-c", script}, false)
	noErr(t, err)
	k.tell(hour())
	k.pgid = (<-k.reports).Started
	defer func() { k.kill(); k.wait() }()
	alive := func() (n int) {
		for _, pid := range strings.Fields(read(t, pids)) {
			if !dead(pid) {
				n++
			}
		}
		return n
	}
	eventually(t, "all processes but the daemon have exited", func() bool { return strings.Count(read(t, pids), "\n") == 17 && alive() == 1 })
	eventually(t, "none of them is a zombie", func() bool { return len(zombies(t, k.cmd.Process.Pid)) == 0 })

	k.tell(keep.Order{Signal: int(syscall.SIGTERM)})
	if r := <-k.reports; r.Status != 128+15 {
		t.Errorf("got %+v, want the status for SIGTERM", r)
	}
	k.wait()
	if n := alive(); n != 1 {
		t.Fatalf("%d processes are alive after the command, want 1: the daemon, which has left the group", n)
	}
	if err := os.WriteFile(gate, []byte("end\n"), 0); err != nil { // lets the daemon exit
		t.Fatal(err)
	}
	eventually(t, "leasehold has reaped the daemon that it inherited", func() bool {
		reapOrphans()
		return alive() == 0 && len(zombies(t, os.Getpid())) == 0
	})
}

// The command inherits exactly the descriptors that leasehold's caller has passed, with the same numbers. make's job
// server, for example, is at 3 and 4.
func TestRunPassesDescriptors(t *testing.T) {
	dir := t.TempDir()
	const script = `
		fd=3; while test $fd -lt 300; do
			if test -e /proc/$$/fd/$fd; then printf "$fd "; readlink /proc/$$/fd/$fd; fi
			fd=$((fd+1))
		done
		for fd in $0; do cat /proc/$$/fd/$fd; done`
	all := [][]int{{}, {3, 4, 5}, {3}, {4}, {5, 9}, {3, 4, 6, 40}}
	for fd := 6; fd < 24; fd++ { // numbers below, between and above leasehold's own descriptors
		all = append(all, []int{4, fd})
	}
	for _, numbers := range all {
		var files []*os.File
		for fd := 3; len(numbers) > 0 && fd <= slices.Max(numbers); fd++ {
			if !slices.Contains(numbers, fd) {
				files = append(files, nil)
				continue
			}
			name := filepath.Join(dir, fmt.Sprint(fd))
			noErr(t, os.WriteFile(name, []byte("from "+name+"\n"), 0o600))
			f, err := os.Open(name)
			noErr(t, err)
			defer f.Close()
			files = append(files, f)
		}
		command := []string{"sh", "-c", script, strings.Trim(fmt.Sprint(numbers), "[]")}
		var has [2]string
		for i, cmd := range []*exec.Cmd{exec.Command(command[0], command[1:]...), onMemoryCommand(t, append([]string{"run", "k", "--"}, command...)...)} {
			cmd.ExtraFiles = files
			out, err := cmd.CombinedOutput()
			if has[i] = string(out); err != nil || strings.Count(has[i], "from "+dir) != len(numbers) {
				t.Errorf("%v: %q, %v", numbers, out, err)
			}
		}
		if has[0] != has[1] {
			t.Errorf("with %v the command has\n%swithout leasehold\n%s", numbers, has[1], has[0])
		}
	}
}

// leasehold does not change whether an inherited pipe is non-blocking: all processes that have the pipe share that
// flag. Processes that use the same job server, for example, have the same pipe.
func TestRunLeavesDescriptorsAsTheyAre(t *testing.T) {
	for _, nonblock := range []bool{false, true} {
		var fds [2]int
		noErr(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
		noErr(t, unix.SetNonblock(fds[0], nonblock))
		r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
		defer r.Close()
		defer w.Close()
		cmd := onMemoryCommand(t, "run", "k", "--", "sh", "-c", "grep flags /proc/$$/fdinfo/3")
		cmd.ExtraFiles = []*os.File{r}
		out, err := cmd.Output()
		if got := len(out) > 4 && out[len(out)-5] == '4'; err != nil || got != nonblock { // 04000
			t.Errorf("non-blocking %t: %q, %v", nonblock, out, err)
		}
	}
}

// If make runs leasehold, and leasehold runs another make, the inner make uses the outer one's job
// server. If it can't, it prints a warning.
func TestRunBelowMake(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(`
all: a b
a: ; +@"$(L)" run mk -- $(MAKE) sub
b: ; @true
sub: s1 s2
s1: ; @echo one
s2: ; @echo two
`), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	noErr(t, err)
	cmd := exec.Command("make", "-s", "-j2", "--no-print-directory", "L="+self)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), onMemory+"=1", "MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=")
	out, err := cmd.CombinedOutput()
	if got := string(out); err != nil || strings.Contains(got, "jobserver") || !strings.Contains(got, "one\n") || !strings.Contains(got, "two\n") {
		t.Errorf("%q, %v; want both parts and no warning about the job server", got, err)
	}
}

// The command gets systemd's sockets: LISTEN_PID is changed to the command's process ID.
func TestRunPassesSystemdSockets(t *testing.T) {
	cmd := onMemoryCommand(t)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_PIDFDID=7; exec "$0" run k -- sh -c 'echo "$LISTEN_FDS $((LISTEN_PID - $$)) ${LISTEN_PIDFDID-unset} $1"; exit 7' x "a  b"`, cmd.Path}
	out, err := cmd.Output()
	if string(out) != "1 0 unset a  b\n" || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%q, %v, want the command's own process ID in LISTEN_PID, and status 7", out, err)
	}
	cmd = onMemoryCommand(t, "run", "k", "--", "sh", "-c", `echo "$LISTEN_PID"`)
	cmd.Env = append(cmd.Env, "LISTEN_PID=1", "LISTEN_FDS=1")
	if out, err := cmd.Output(); string(out) != "1\n" {
		t.Errorf("%q, %v, want another process's LISTEN_PID unchanged", out, err)
	}
}

// Sending orders to a frozen keeper does not block. When the keeper continues, it gets the orders
// that fit into the pipe.
func TestKeeperFrozenHoldsNobodyUp(t *testing.T) {
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	k, err := startKeeper(a, []string{"sleep", "1000"}, false)
	noErr(t, err)
	defer func() { k.kill(); k.wait() }()
	k.tell(hour())
	k.pgid = (<-k.reports).Started
	k.cmd.Process.Signal(syscall.SIGSTOP)
	for range 10_000 { // more than fit into the pipe
		k.tell(hour())
	}
	k.cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "the keeper receives orders again", func() bool {
		k.tell(keep.Order{Signal: int(syscall.SIGTERM)})
		select {
		case r := <-k.reports:
			return r.Status == 128+15
		default:
			return false
		}
	})
}

// If SIGTERM is forwarded to the keeper before the order to start, the keeper starts nothing and reports the status for
// SIGTERM. Before that order it ignores SIGUSR1.
func TestKeeperEndsOnASignalBeforeTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	k, err := startKeeper(&app{stdin: strings.NewReader("")}, []string{"touch", file}, false)
	noErr(t, err)
	k.tell(keep.Order{Signal: int(syscall.SIGUSR1)})
	k.tell(keep.Order{Signal: int(syscall.SIGTERM)})
	k.tell(hour())
	if r := <-k.reports; r != (keep.Report{Status: 128 + 15}) {
		t.Errorf("got %+v, want the status for SIGTERM", r)
	}
	k.wait()
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran although SIGTERM came before the order to start")
	}
}

// If the keeper for the next term can't be started, leasehold elect says so and ends.
func TestElectWithoutAKeeper(t *testing.T) {
	store := dsynctest.NewMemory()
	out, end := start(t.Context(), store, "elect", "--ttl", "6s", "--grace", "1s", "e", "--", "sh", "-c", "echo leads; exec sleep 1000")
	eventually(t, "the first term began", func() bool { return strings.Contains(out.take(), "leads") })
	s := session(t, store)
	var got result
	withoutDescriptors(t, func() {
		go admin.New(s).Break(context.Background(), "e")
		got = <-end
	})
	if got.status != exitFailed || !strings.Contains(got.err, "the keeper process, which runs the command, could not be started: ") {
		t.Errorf("elect: %+v, want status %d and why", got, exitFailed)
	}
	free(t, store, "e")
}

// withoutDescriptors calls f while this process can open no files.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var most unix.Rlimit
	noErr(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &most))
	noErr(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: most.Max}, nil))
	defer func() { noErr(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &most, nil)) }()
	f()
}

// leasehold connects to the server while its keeper starts.
func TestConnectsWhileTheKeeperStarts(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	defer server.Close()
	noErr(t, server.(*net.TCPListener).SetDeadline(time.Now().Add(10*time.Second)))
	syscall.ForkLock.RLock() // now no process can be started
	_, end := start(t.Context(), nil, "--uri", "mongodb://"+server.Addr().String(), "--connect-timeout", "100ms", "run", "k", "--", "true")
	c, err := server.Accept()
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Errorf("%v, want a connection before the keeper has started", err)
	} else {
		c.Close()
	}
	if got := <-end; got.status != exitUnreachable {
		t.Errorf("%+v, want status %d", got, exitUnreachable)
	}
}

// A keeper that can't be started is an error at once, even if the server does not answer.
func TestRunWithoutAKeeper(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	defer silent.Close()
	began := time.Now()
	var got result
	withoutDescriptors(t, func() {
		got = command(t, nil, "--uri", "mongodb://"+silent.Addr().String(), "--connect-timeout", "20s", "run", "k", "--", "true")
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v, want an error at once", took)
	}
	if got.status != exitFailed || !strings.Contains(got.err, "the keeper process, which runs the command, could not be started: ") {
		t.Errorf("run: %+v, want status %d and why", got, exitFailed)
	}
}

// A command whose hold is lost at the moment of its start has the hold's token all the same.
func TestEnvironmentOfALostHold(t *testing.T) {
	h := holdAs(t, session(t, dsynctest.NewMemory()), "k", driver.KindMutex)
	want := fmt.Sprintf("LEASEHOLD_TOKEN=%d", h.Token())
	h.WindDown(dsync.ErrLost)
	if env := (&job{key: "k", kind: driver.KindMutex}).environment(h); env[1] != want {
		t.Errorf("the environment has %q, want %q", env, want)
	}
	_ = h.Release(t.Context())
}

// Whatever the command's exit status is, leasehold exits with it.
func TestRunExitStatuses(t *testing.T) {
	for _, status := range []int{0, 1, 2, 77, 110, 114, 125, 126, 127, 128, 130, 143, 255} {
		if got := command(t, dsynctest.NewMemory(), "run", "k", "--", "sh", "-c", "exit "+strconv.Itoa(status)); got.status != status || got.err != "" {
			t.Errorf("%+v, want %d", got, status)
		}
	}
	for _, sig := range []int{1, 2, 3, 6, 9, 15} {
		if signal.Ignored(syscall.Signal(sig)) {
			continue // the signal was already ignored before the test, as SIGHUP is under nohup(1), and a shell can't undo that
		}
		if got := command(t, dsynctest.NewMemory(), "run", "k", "--", "sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig)); got.status != 128+sig || got.err != "" {
			t.Errorf("%+v, want %d", got, 128+sig)
		}
	}
}

// If the store does not answer, and no command is running to handle signals, a second signal ends leasehold at once,
// with that signal's status.
func TestRunEndsOnTheSecondSignal(t *testing.T) {
	own := make(chan os.Signal, 1) // catches a signal that arrives too late, which would end the test
	signal.Notify(own, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(own)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"waiting", []string{"held", "--", "true"}},
		{"holding", []string{"free", "--", "sh", "-c", `trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done`}},
		{"after the command", []string{"free", "--", "sh", "-c", `echo ready; while kill -0 $0 2>/dev/null; do sleep 0.01; done`}},
	} {
		memory := dsynctest.NewMemory()
		m := session(t, memory).Mutex("held")
		m.Lock()
		var cut atomic.Bool
		faulty := dsynctest.NewFaulty(memory, func(dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{LoseRequest: cut.Load()} })
		t.Cleanup(faulty.Close)
		args := append([]string{"run", "--ttl", "1h"}, c.args...) // with so long a TTL, requests to the store time out after 5 s and are repeated
		gate := exec.Command("sleep", "1000")
		noErr(t, gate.Start())
		if c.name == "after the command" {
			args = append(args, strconv.Itoa(gate.Process.Pid))
		}
		out, end := start(t.Context(), faulty, args...)
		if c.name == "waiting" {
			eventually(t, "leasehold waits for the key", func() bool { return waiting(t, memory, "held") == 1 })
		} else {
			eventually(t, "the command runs", func() bool { return strings.Contains(out.take(), "ready") })
		}
		cut.Store(true)
		gate.Process.Kill()
		gate.Wait()
		if c.name != "after the command" {
			syscall.Kill(os.Getpid(), syscall.SIGINT)
			<-own
		}
		var got result
		for ended := false; !ended; {
			syscall.Kill(os.Getpid(), syscall.SIGTERM)
			<-own
			select {
			case got = <-end:
				ended = true
			case <-time.After(20 * time.Millisecond):
			}
		}
		if got.status != 128+15 || got.err != "" {
			t.Errorf("%s: got %+v, want the status for the second signal", c.name, got)
		}
		cut.Store(false)
		m.Unlock()
	}
}

// If the server does not answer after the command has succeeded, leasehold exits with status 0, and reports once that the
// key may not have been released; also if only the end of the session has no answer, since a fail-over can undo the release.
func TestRunSaysThatTheKeyIsNotReleased(t *testing.T) {
	for _, c := range []struct {
		ttl  string
		lost dsynctest.Method // "": all
	}{{"20s", ""}, {"6s", dsynctest.MethodUnregister}} {
		var cut atomic.Bool
		faulty := dsynctest.NewFaulty(dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: cut.Load() && (c.lost == "" || r.Method == c.lost)}
		})
		t.Cleanup(faulty.Close)
		name := filepath.Join(t.TempDir(), "go on")
		out, end := start(t.Context(), faulty, "run", "--ttl", c.ttl, "k", "--", "sh", "-c", `echo ready; while [ ! -e "$0" ]; do sleep 0.01; done`, name)
		eventually(t, "the command runs", func() bool { return strings.Contains(out.take(), "ready") })
		cut.Store(true)
		noErr(t, os.WriteFile(name, nil, 0o600))
		got := <-end
		if n := strings.Count(got.err, `"k" may not have been released`); got.status != 0 || n != 1 {
			t.Errorf("%v lost: %+v, want status 0 and one line that says that the key may not have been released", c.lost, got)
		}
	}
}
