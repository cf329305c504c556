package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// beating is a child that repeatedly writes a line with its token to a file. It ignores SIGTERM.
func beating(env *proc.Env) {
	var file string
	env.Args(&file)
	signal.Ignore(syscall.SIGTERM)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		env.Fatal(err)
	}
	for {
		line := fmt.Sprintf("%s %d %d\n", os.Getenv("LEASEHOLD_TOKEN"), os.Getpid(), time.Now().UnixNano())
		if _, err := f.WriteString(line); err != nil {
			env.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A beat is a line written by beating.
type beat struct {
	token int64
	pid   int
	at    time.Time
}

// An ordeal subjects the holders of one key to one fault after another.
type ordeal struct {
	*room
	t     *testing.T
	key   string
	file  string // the file to which holders write beats
	bin   string
	store driver.Store
}

const (
	ordealTTL   = 3 * time.Second
	ordealGrace = 300 * time.Millisecond
)

// A runner is a process of leasehold run whose command consists of two beating processes.
type runner struct {
	ordeal *ordeal
	via    *proxy.Proxy
	cmd    *exec.Cmd
	stdin  io.Closer // closing it ends the two beating processes
	stderr bytes.Buffer
	done   chan struct{} // closed when leasehold has exited
	err    error         // from Wait
}

// start starts a runner in its own process group.
func (o *ordeal) start() *runner {
	o.t.Helper()
	r := &runner{ordeal: o, via: o.proxy(), done: make(chan struct{})}
	self, err := os.Executable()
	if err != nil {
		o.t.Fatal(err)
	}
	r.cmd = exec.Command(o.bin, "run", "--uri", r.via.URI(), "--db", o.DB, "--connect-timeout", "1m",
		"--ttl", ordealTTL.String(), "--grace", ordealGrace.String(), o.key,
		"--", "sh", "-c", `trap "" TERM; exec 3<&0; "$0" <&3 & "$0" <&3 & wait`, self)
	r.cmd.Env = append(os.Environ(), "MONGODB_URI=", "LEASEHOLD_CHILD=beating", "LEASEHOLD_CHILD_ARGS="+strconv.Quote(o.file))
	r.cmd.Stderr = &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		o.t.Fatal(err)
	}
	// A frozen keeper keeps stderr open.
	r.cmd.WaitDelay = 30 * time.Second
	if err := r.cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		r.err = r.cmd.Wait()
	}()
	o.t.Cleanup(func() {
		r.stdin.Close()
		r.keeper(syscall.SIGCONT)
		r.cmd.Process.Kill()
		<-r.done
	})
	return r
}

// orAnother returns r, or a new runner if r has ended and no command has got a token greater than the given one.
func (r *runner) orAnother(token int64) *runner {
	r.ordeal.t.Helper()
	if closed(r.done) && r.ordeal.last() <= token {
		r.ordeal.t.Logf("leasehold is started again, because it ended: %v, %q", r.err, r.stderr.String())
		return r.ordeal.start()
	}
	return r
}

// r.keeper sends a signal to the runner's keeper, if there is one.
func (r *runner) keeper(sig syscall.Signal) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			if pid, _ := strconv.Atoi(child); pid > 0 {
				syscall.Kill(pid, sig)
			}
		}
	}
}

// beats returns all beats written so far.
func (o *ordeal) beats() (all []beat) {
	o.t.Helper()
	text, err := os.ReadFile(o.file)
	if err != nil && !os.IsNotExist(err) {
		o.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var b beat
		var ns int64
		if _, err := fmt.Sscan(line, &b.token, &b.pid, &ns); err != nil {
			o.t.Fatalf("%q: %v", line, err)
		}
		b.at = time.Unix(0, ns)
		all = append(all, b)
	}
	return all
}

// last returns the greatest token in any beat.
func (o *ordeal) last() (token int64) {
	o.t.Helper()
	for _, b := range o.beats() {
		token = max(token, b.token)
	}
	return token
}

// faults are the faults that holders suffer. By the time the next session holds the key, the former
// holder's command must be dead. Then the test calls the function that hit returned, if any.
var faults = []struct {
	name   string
	hit    func(*runner) (after func())
	status int // leasehold's exit status
}{
	{"SIGKILL", func(r *runner) func() {
		r.cmd.Process.Kill()
		return nil
	}, -1},
	{"SIGSTOP", func(r *runner) func() {
		r.cmd.Process.Signal(syscall.SIGSTOP)
		return func() { r.cmd.Process.Signal(syscall.SIGCONT) }
	}, 114},
	{"SIGSTOP of the group", func(r *runner) func() {
		syscall.Kill(-r.cmd.Process.Pid, syscall.SIGSTOP)
		return func() { syscall.Kill(-r.cmd.Process.Pid, syscall.SIGCONT) }
	}, 114},
	{"partition", func(r *runner) func() {
		r.via.Hang()
		return nil
	}, 114},
	{"connections refused", func(r *runner) func() {
		r.via.Cut()
		return nil
	}, 114},
	{"SIGKILL of the keeper", func(r *runner) func() {
		r.keeper(syscall.SIGKILL)
		return nil
	}, 110},
	{"SIGSTOP of the keeper, and a partition", func(r *runner) func() {
		r.keeper(syscall.SIGSTOP)
		r.via.Hang()
		return nil
	}, 114},
}

// Whatever happens to leasehold run, its command is dead before another session can acquire the key. This holds even if
// the command consists of several processes that ignore SIGTERM. There are 4 rounds, or 20 in a long run.
func TestRunDeadBeforeTaken(t *testing.T) {
	t.Parallel()
	ordeals, rounds := testkit.Rounds(2, 4), testkit.Rounds(2, 5)
	bin := leasehold.path(t)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		var hits, overlaps atomic.Int64
		t.Cleanup(func() { lab.Note(t, "leasehold run: %d faults, %d overlaps", hits.Load(), overlaps.Load()) })
		for i := range ordeals {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				r := newRoom(t, s)
				o := &ordeal{room: r, t: t, key: "key", file: filepath.Join(t.TempDir(), "beats"), bin: bin, store: r.store()}
				holder := o.start()
				// On a busy machine a session may lose its lease without a fault, before its command has begun or later.
				eventually(t, "the first session holds the key", func() bool {
					holder = holder.orAnother(0)
					return o.last() > 0
				})
				token := o.last()
				for round := range rounds {
					fault := faults[(i*rounds+round)%len(faults)]
					next := o.start()
					eventually(t, "the next session waits", func() bool {
						next = next.orAnother(token)
						return load(t, o.store, o.key).Waiting == 1 || o.last() > token
					})
					hit := time.Now()
					after := fault.hit(holder)
					hits.Add(1)
					eventually(t, fault.name+": the next session holds the key", func() bool {
						next = next.orAnother(token)
						return o.last() > token
					})
					if after != nil {
						time.Sleep(ordealTTL / 2) // altogether, the holder was then frozen for longer than the TTL
						after()
					}
					holder.ended(fault.name, fault.status)
					overlaps.Add(o.check(fault.name, token, hit))
					holder, token = next, o.last()
				}
				holder.cmd.Process.Kill()
				eventually(t, "the last command's processes are dead", func() bool {
					for _, b := range o.beats() {
						if !gone(b.pid) {
							return false
						}
					}
					return true
				})
				eventually(t, "the key is free", func() bool {
					// No session waits for the key, so a killed holder's claim stays until a session tries to lock
					// the key.
					m := r.session(r.short(patient)).Mutex(o.key)
					if !m.TryLock() {
						return false
					}
					m.Unlock()
					return true
				})
			})
		}
	})
}

// r.ended waits until leasehold exits, and checks its status and output. A status that reports a lost lease is always
// allowed. So are lines that report that the server does not answer, or answers again: they are for waits on a busy
// machine.
func (r *runner) ended(fault string, status int) {
	t := r.ordeal.t
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(time.Minute):
		t.Errorf("%s: leasehold did not exit", fault)
		return
	}
	if errors.Is(r.err, exec.ErrWaitDelay) {
		t.Errorf("%s: leasehold exited more than %v before its keeper and its command", fault, r.cmd.WaitDelay)
	}
	lines := strings.Count(r.stderr.String(), "\n") - strings.Count(r.stderr.String(), "; still waiting for ")
	if got := r.cmd.ProcessState.ExitCode(); got != status && got != 114 || got > 0 && lines != 1 {
		t.Errorf("%s: status %d, %q, want status %d and one line", fault, got, r.stderr.String(), status)
	}
}

// o.check fails the test if any holder's command ran after a later holder's command had begun, and
// counts how often that happened. It also fails the test if the command with the given token ran
// for more than a TTL after the fault, or is still alive.
func (o *ordeal) check(fault string, token int64, hit time.Time) (overlaps int64) {
	o.t.Helper()
	var greatest int64
	var at time.Time
	alive := 0
	for _, b := range o.beats() {
		if b.token < greatest {
			overlaps++
		}
		greatest = max(greatest, b.token)
		if b.token == token {
			at = b.at
			if !gone(b.pid) {
				alive = b.pid
			}
		}
	}
	if overlaps > 0 {
		o.t.Errorf("%s: %d beats came from holders after a later holder's command had begun", fault, overlaps)
	}
	if d := at.Sub(hit); d > ordealTTL {
		o.t.Errorf("%s: the command with token %d ran %v after the fault, want at most the TTL of %v", fault, token, d, ordealTTL)
	}
	if alive != 0 {
		o.t.Errorf("%s: process %d with token %d is alive while another session holds the key", fault, alive, token)
	}
	return overlaps
}

// gone(pid) reports whether the process with this ID is dead.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(text, []byte(") Z "))
}

// Given bad input, leasehold prints one clear line, exits with the status for that kind of
// error, and leaves nothing behind in the store.
func TestCommandBadInput(t *testing.T) {
	bin := leasehold.path(t)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		good := []string{"--uri", r.URI, "--db", r.DB}
		nobody := []string{"--uri", "mongodb://127.0.0.1:9/?directConnection=true", "--connect-timeout", "500ms"}
		stranger := []string{"--uri", "mongodb://nobody:wrong@" + r.Primary(t) + "/?directConnection=true", "--db", r.DB}
		for _, c := range []struct {
			name   string
			target []string
			args   []string
			status int
			want   string
		}{
			{"unknown command", good, []string{"rum"}, 111, `unknown command "rum"; did you mean run?`},
			{"unknown flag", good, []string{"run", "--tries", "k", "--", "true"}, 111, "leasehold run has no flag --tries; see leasehold run --help"},
			{"no dashes", good, []string{"run", "k", "true"}, 111, "there is no -- before the command"},
			{"nothing after the dashes", good, []string{"elect", "k", "--"}, 111, "there is no command after --"},
			{"short TTL", good, []string{"run", "--ttl", "1ms", "k", "--", "true"}, 111, "dsync: TTL is 1ms; it must be at least 1s"},
			{"long grace", good, []string{"run", "--ttl", "2s", "--grace", "2s", "k", "--", "true"}, 111, "--grace 2s is too long for --ttl 2s"},
			{"no such command", good, []string{"run", "k", "--", "no-such-command"}, 127, `exec: "no-such-command"`},
			{"bad connection string", []string{"--uri", "localhost:27017"}, []string{"run", "k", "--", "true"}, 111, "the connection string of --uri or MONGODB_URI can't be used"},
			{"no server named", nil, []string{"run", "k", "--", "true"}, 111, "no server is given; use --uri mongodb://…, or set MONGODB_URI"},
			{"unreachable", nobody, []string{"run", "k", "--", "true"}, 115, "no server answers at 127.0.0.1:9 within 500ms"},
			{"unreachable for elect", nobody, []string{"elect", "k", "--", "true"}, 115, "no server answers at 127.0.0.1:9 within 500ms"},
			{"wrong password", stranger, []string{"run", "k", "--", "true"}, 116, "the server refuses"},
		} {
			var out, bad bytes.Buffer
			cmd := exec.Command(bin, append(append([]string{c.args[0]}, c.target...), c.args[1:]...)...)
			cmd.Env = append(os.Environ(), "MONGODB_URI=")
			cmd.Stdout, cmd.Stderr = &out, &bad
			cmd.Run() // the status is checked below
			if got := cmd.ProcessState.ExitCode(); got != c.status || out.Len() > 0 ||
				!strings.HasPrefix(bad.String(), "leasehold: "+c.want) || strings.Count(bad.String(), "\n") != 1 {
				t.Errorf("%s: status %d, %q, %q, want status %d and one line that begins with %q", c.name, got, &out, &bad, c.status, "leasehold: "+c.want)
			}
		}
		if n, err := r.raw().CountDocuments(t.Context(), bson.D{}); n != 0 || err != nil {
			t.Errorf("%d records were left behind, %v", n, err)
		}
	})
}
