//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A tty is a terminal in which a shell runs a script.
type tty struct {
	*os.File // the user's end
	t        *testing.T
	shell    *exec.Cmd
	out      screen
	seen     string // the output after the last match
}

// newTTY starts a shell, with job control if its flags contain -m. In its script, "$0" is leasehold
// on a store in memory.
func newTTY(t *testing.T, flags, script string) *tty {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	noErr(t, err)
	t.Cleanup(func() { user.Close() })
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0)
	}
	noErr(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	noErr(t, err)
	defer terminal.Close()
	self, err := os.Executable()
	noErr(t, err)
	y := &tty{File: user, t: t, shell: exec.Command("sh", flags, script, self)}
	y.shell.Stdin, y.shell.Stdout, y.shell.Stderr = terminal, terminal, terminal
	y.shell.Env = append(os.Environ(), onMemory+"=1")
	y.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	noErr(t, y.shell.Start())
	go io.Copy(&y.out, user) // until the shell exits
	t.Cleanup(func() {
		y.shell.Process.Kill()
		y.shell.Wait()
	})
	return y
}

// want waits until the terminal's output matches pattern, and returns the submatches. The next call
// searches only the output after the match.
func (y *tty) want(pattern string) (found []string) {
	y.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		y.seen += y.out.take()
		if at := re.FindStringSubmatchIndex(y.seen); at != nil {
			found = re.FindStringSubmatch(y.seen)
			y.seen = y.seen[at[1]:]
			return found
		}
		if time.Now().After(end) {
			y.t.Fatalf("the terminal shows %[2]q, want a match of %[1]q", pattern, y.seen)
		}
	}
}

// wantReader waits until a process reads from the terminal.
func (y *tty) wantReader(pid string) {
	y.t.Helper()
	eventually(y.t, "the command reads from the terminal", func() bool {
		_, stat, _ := strings.Cut(read(y.t, "/proc/"+pid+"/stat"), ") ")
		var state string
		var parent, group, session, terminal, foreground int
		fmt.Sscan(stat, &state, &parent, &group, &session, &terminal, &foreground)
		return state == "S" && group == foreground
	})
}

func (y *tty) enter(keys string) {
	y.t.Helper()
	if _, err := y.WriteString(keys); err != nil {
		y.t.Fatal(err)
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// state returns a process's state: S sleeping, T stopped, and so on, or X if it is dead.
func state(t *testing.T, pid string) string {
	_, after, ok := strings.Cut(read(t, "/proc/"+pid+"/stat"), ") ")
	if !ok || after[:1] == "Z" {
		return "X"
	}
	return after[:1]
}

// The command can use the terminal, whether or not the shell has job control, and the script can
// use it again afterwards.
func TestTerminal(t *testing.T) {
	for _, flags := range []string{"-c", "-mc"} {
		y := newTTY(t, flags, `
			"$0" run k -- sh -c 'echo ready; read x </dev/tty; echo "got $x"; read x; echo "got $x"'
			echo "status $?"; read y; echo "then $y"`)
		y.want("ready\r\n")
		y.enter("one\n")
		y.want("got one\r\n")
		y.enter("two\n")
		y.want("got two\r\n")
		y.want("status 0\r\n")
		y.enter("three\n")
		y.want("then three\r\n")
	}
}

// Ctrl-Z stops the command and leasehold, and the shell resumes; fg continues both. This works
// whether or not the command has read from the terminal before.
func TestTerminalSuspend(t *testing.T) {
	for _, command := range []string{
		// The script starts no process after it has printed its PID. A shell that has called vfork can't be stopped
		// until its child calls exec, and Ctrl-Z may stop the child before that.
		`trap "echo interrupted; exit 7" INT; sleep 300 & echo pid $$; wait`,
		`echo pid $$; read x; echo "got $x"; exit 7`,
		`sh -c "echo pid \$\$; exec cat"; exit 7`,
	} {
		y := newTTY(t, "-mc", `"$0" run k -- sh -c '`+command+`'; echo suspended; read x; fg; echo "status $?"`)
		pid := y.want(`pid (\d+)\r\n`)[1]
		if !strings.Contains(command, "trap") {
			y.wantReader(pid)
		}
		y.enter(ctrlZ)
		y.want("suspended\r\n")
		if got := state(t, pid); got != "T" {
			t.Errorf("%s: the command's state is %s while it is suspended, want T", command, got)
		}
		y.enter("\n")
		eventually(t, "the command goes on", func() bool { return state(t, pid) != "T" })
		switch {
		case strings.Contains(command, "trap"):
			y.enter(ctrlC)
			y.want("interrupted\r\n")
		case strings.Contains(command, "cat"):
			y.enter("hello\n")
			y.want("hello\r\nhello\r\n")
			y.enter("\x04") // the end of input
		default:
			y.enter("hello\n")
			y.want("got hello\r\n")
		}
		y.want("status 7\r\n")
	}
}

// If leasehold and its command stay suspended for longer than the lease, the command is dead by the
// time the lease ends.
func TestTerminalSuspendedTooLong(t *testing.T) {
	y := newTTY(t, "-mc", `"$0" run --ttl 2s k -- sh -c 'echo pid $$; read x'; echo suspended; read x; fg; echo "status $?"`)
	pid := y.want(`pid (\d+)\r\n`)[1]
	y.wantReader(pid)
	begin := time.Now()
	y.enter(ctrlZ)
	y.want("suspended\r\n")
	for state(t, pid) != "X" {
		if time.Since(begin) > 2*time.Second {
			t.Fatal("the command is alive after the TTL of 2s")
		}
		time.Sleep(5 * time.Millisecond)
	}
	y.enter("\n")
	y.want(`leasehold: "k" was lost, and the command was stopped: `)
	y.want("status 114\r\n")
}

// Ctrl-Z also stops leasehold while it waits for the key.
func TestTerminalSuspendInTheWait(t *testing.T) {
	y := newTTY(t, "-mc", `echo ready; "$0" run held -- true; echo suspended; read x; fg; echo "status $?"`)
	y.want("ready\r\n")
	time.Sleep(300 * time.Millisecond) // by then leasehold waits for the key
	y.enter(ctrlZ)
	y.want("suspended\r\n")
	y.enter("\n")
	time.Sleep(100 * time.Millisecond)
	y.enter(ctrlC)
	y.want("status 130\r\n")
}

// Ctrl-Z does not stop the command if there is no shell to continue it, as with ssh -t and docker
// run -it.
func TestTerminalWithoutShell(t *testing.T) {
	y := newTTY(t, "-c", `exec "$0" run k -- sh -c 'echo pid $$; read x; echo "got $x"'`)
	y.wantReader(y.want(`pid (\d+)\r\n`)[1])
	y.enter(ctrlZ)
	time.Sleep(100 * time.Millisecond)
	y.enter("hello\n")
	y.want("got hello\r\n")
}

// Signals that only leasehold ignores are not ignored by the command.
func TestTerminalSignals(t *testing.T) {
	y := newTTY(t, "-mc", `grep SigIgn /proc/self/status; "$0" run k -- grep SigIgn /proc/self/status`)
	const ignored = `SigIgn:\s*([0-9a-f]+)\r\n`
	if want, got := y.want(ignored)[1], y.want(ignored)[1]; got != want {
		t.Errorf("the command ignores signals %s, want %s", got, want)
	}
}

// A background command that needs the terminal is stopped together with its job, and gets the
// terminal after fg.
func TestTerminalBackground(t *testing.T) {
	y := newTTY(t, "-mc", `"$0" run k -- sh -c 'echo pid $$; read x; echo "got $x"; exit 7' & read x; fg; echo "status $?"`)
	pid := y.want(`pid (\d+)\r\n`)[1]
	eventually(t, "the command is stopped", func() bool { return state(t, pid) == "T" })
	time.Sleep(100 * time.Millisecond)
	if got := state(t, pid); got != "T" {
		t.Errorf("the command's state is %s, want T: the shell has the terminal", got)
	}
	y.enter("for the shell\n")
	eventually(t, "the command goes on", func() bool { return state(t, pid) != "T" })
	y.enter("hello\n")
	y.want("got hello\r\n")
	y.want("status 7\r\n")
}

// The other programs of a pipeline can use the terminal until the command needs it, and Ctrl-C
// interrupts the whole pipeline.
func TestTerminalPipeline(t *testing.T) {
	y := newTTY(t, "-mc", `"$0" run k -- sh -c 'trap "echo interrupted >/dev/tty; exit" INT; echo page; while :; do sleep 0.01; done' |
		sh -c 'trap "echo the pager, too" INT; read line; read x </dev/tty; echo "$line $x"; cat'; echo done`)
	time.Sleep(200 * time.Millisecond)
	y.enter("down\n")
	y.want("page down\r\n")
	y.enter(ctrlC)
	y.want("interrupted\r\n")
	y.want("done\r\n")
}
