package integration_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// A logLine is a line logged by a program in examples/. Fields that are not in the line are
// zero.
type logLine struct {
	Time    time.Time
	Msg     string
	Process string `json:"-"` // the process that logged it

	Tick      string // of cron
	Migration string // of migrate
	Singleton string // of singletons
	Term      int64
	Token     int64
}

// An example is a running program from examples/.
type example struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the program exits
	err  error         // returned by Wait; valid once done is closed

	mu  sync.Mutex
	log []logLine
}

// buildExamples builds the programs in examples/ into a directory.
func buildExamples(t testing.TB) (folder string) {
	t.Helper()
	lab.Servers(t) // skips the test if there is no server
	folder = t.TempDir()
	build := exec.Command("go", "build", "-o", folder, "./examples/...")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return folder
}

// runExample starts the program on the room's database, and kills it at the end of the test.
func (r *room) runExample(path, name string, args ...string) *example {
	r.t.Helper()
	cmd := exec.Command(path, append([]string{"-db", r.DB}, args...)...)
	cmd.Env = append(os.Environ(), "MONGODB_URI="+r.URI)
	return startExample(r.t, name, cmd)
}

func startExample(t testing.TB, name string, cmd *exec.Cmd) *example {
	t.Helper()
	p := &example{t: t, name: name, cmd: cmd, done: make(chan struct{})}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	spawn.EndWithParent(cmd)
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var l logLine
			if json.Unmarshal(lines.Bytes(), &l) == nil { // the last line of a killed process may be incomplete
				l.Process = name
				p.mu.Lock()
				p.log = append(p.log, l)
				p.mu.Unlock()
			}
		}
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s logged:", name)
			for _, l := range p.lines() {
				t.Logf("%+v", l)
			}
			t.Logf("and on stderr:\n%s", &stderr)
		}
	})
	return p
}

// lines returns the lines logged so far.
func (p *example) lines() []logLine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// Of the lines that the program has logged so far, p.said returns those with the message msg.
func (p *example) said(msg string) []logLine {
	return slices.DeleteFunc(p.lines(), func(l logLine) bool { return l.Msg != msg })
}

// Of the lines that the programs have logged so far, saidAll returns those with the message msg.
func saidAll(ps []*example, msg string) (all []logLine) {
	for _, p := range ps {
		all = append(all, p.said(msg)...)
	}
	return all
}

// kill kills the program with SIGKILL and waits until it exits.
func (p *example) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

func (p *example) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v: %v", p.name, s, err)
	}
}

// p.ended waits until the program exits, and returns Wait's error. It fails the test if the program
// does not exit within d.
func (p *example) ended(d time.Duration) error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(d):
		p.t.Fatalf("%s did not exit within %v", p.name, d)
		return nil
	}
}
