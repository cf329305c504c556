// Package proc runs functions of a test binary in separate processes, so that a test can kill,
// freeze and thaw them. Parent and child exchange lines of JSON: orders on the child's stdin,
// events on its stdout.
package proc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// envName and envArgs are the environment variables that give a child its function's name and
// arguments. They are set only in children.
const (
	envName = "LEASEHOLD_CHILD"
	envArgs = "LEASEHOLD_CHILD_ARGS"
)

// Patience is how long a test waits for something that must happen. It is long enough for a machine ten times slower
// than the machine on which the tests were written. Only a failing test waits that long.
const Patience = 4 * time.Minute

// An Event is a report from a child.
type Event struct {
	Name  string        `json:"name"`
	Wall  time.Time     `json:"wall"` // the host's time when the event was reported
	Key   string        `json:"key,omitempty"`
	N     int           `json:"n,omitempty"`
	Token int64         `json:"token,omitempty"`
	Text  string        `json:"text,omitempty"`
	Err   string        `json:"err,omitempty"`
	Is    string        `json:"is,omitempty"` // name of the sentinel that Err wraps
	Took  time.Duration `json:"took,omitempty"`
	Lost  bool          `json:"lost,omitempty"`
}

// An Order tells a child what to do.
type Order struct {
	Do  string `json:"do"`
	Key string `json:"key,omitempty"`
}

// An Env is a child's view of its parent. Emit may be called concurrently.
type Env struct {
	args   []byte
	out    *os.File
	orders chan Order
}

// A Func is a function that a child runs. The process exits when the function returns.
type Func func(*Env)

// If this process is a child, Child runs the function that the environment names, and exits.
// Otherwise it returns.
func Child(funcs map[string]Func) {
	name := os.Getenv(envName)
	if name == "" {
		return
	}
	f := funcs[name]
	if f == nil {
		fmt.Fprintf(os.Stderr, "there is no child function %q\n", name)
		os.Exit(2)
	}
	env := &Env{args: []byte(os.Getenv(envArgs)), out: os.Stdout, orders: make(chan Order)}
	go func() {
		// Stdin ends when the parent exits.
		in := json.NewDecoder(os.Stdin)
		for {
			var o Order
			if in.Decode(&o) != nil {
				os.Exit(3)
			}
			env.orders <- o
		}
	}()
	f(env)
	os.Exit(0)
}

// Args decodes the arguments that the parent passed to [Start].
func (e *Env) Args(into any) {
	if err := json.Unmarshal(e.args, into); err != nil {
		e.Fatal(err)
	}
}

// Orders returns the parent's orders.
func (e *Env) Orders() <-chan Order { return e.orders }

// Emit reports an event after setting its Wall.
func (e *Env) Emit(ev Event) {
	ev.Wall = time.Now()
	line, err := json.Marshal(ev)
	if err != nil {
		e.Fatal(err)
	}
	e.out.Write(append(line, '\n')) // a single write, so that lines from several goroutines don't mix
}

// Fatal reports err and ends the child.
func (e *Env) Fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A Proc is a child process. Only the test's goroutine may call its methods.
type Proc struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan Event
	kept   []Event // events that Await received while it waited for others
	done   chan struct{}
}

// Start runs the child function with this name in a new process, which is killed at the end of the
// test. env is added to the process's environment.
func Start(t testing.TB, name string, args any, env ...string) *Proc {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proc{t: t, name: name, events: make(chan Event, 4096), done: make(chan struct{})}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(append(os.Environ(), envName+"="+name, envArgs+"="+string(text)), env...)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		defer close(p.events)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var ev Event
			if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
				ev = Event{Name: "garbage", Text: lines.Text()}
			}
			p.events <- ev
		}
		p.cmd.Wait()
	}()
	t.Cleanup(p.Kill)
	return p
}

// PID returns the process ID.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Tell sends an order to the child.
func (p *Proc) Tell(o Order) {
	p.t.Helper()
	line, _ := json.Marshal(o)
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatalf("%s %d: %v", p.name, p.PID(), err)
	}
}

// Events returns the child's events, except those that [Proc.Await] received. The channel closes
// when the child exits.
func (p *Proc) Events() <-chan Event { return p.events }

// Await returns the first event with this name that it has not returned yet. If none comes within
// [Patience], it fails the test and prints the child's stacks. It also fails the test if the child
// exits first. It keeps events with other names for later calls, because a child's goroutines report
// their events in any order.
func (p *Proc) Await(name string) Event {
	p.t.Helper()
	named := func(ev Event) bool { return ev.Name == name }
	if i := slices.IndexFunc(p.kept, named); i >= 0 {
		ev := p.kept[i]
		p.kept = slices.Delete(p.kept, i, i+1)
		return ev
	}
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	for {
		select {
		case ev, ok := <-p.events:
			switch {
			case !ok:
				p.t.Fatalf("%s %d exited before the event %q: %v", p.name, p.PID(), name, p.cmd.ProcessState)
			case named(ev):
				return ev
			case ev.Name == "garbage":
				p.t.Logf("%s %d printed %q", p.name, p.PID(), ev.Text)
			default:
				p.kept = append(p.kept, ev)
			}
		case <-timer.C:
			p.quit()
			p.t.Fatalf("%s %d: no event %q within %v", p.name, p.PID(), name, Patience)
		}
	}
}

// quit ends the process with SIGQUIT, so that the Go runtime prints all stacks.
func (p *Proc) quit() {
	p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second): // the process is frozen, or does not stop printing
	}
}

// Kill kills the process with SIGKILL and waits until it has exited.
func (p *Proc) Kill() {
	p.cmd.Process.Kill()
	for range p.events {
	}
	<-p.done
}

// Stop freezes the process with SIGSTOP.
func (p *Proc) Stop() { p.signal(syscall.SIGSTOP) }

// Cont continues a frozen process with SIGCONT.
func (p *Proc) Cont() { p.signal(syscall.SIGCONT) }

func (p *Proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s %d: %v: %v", p.name, p.PID(), s, err)
	}
}
