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

// A logLine is what a program of examples/ logs. Fields that the line does
// not have are zero.
type logLine struct {
	Time    time.Time
	Msg     string
	Process string `json:"-"` // that logged it

	Tick      string // of cron
	Migration string // of migrate
	Singleton string // of singletons
	Term      int64
	Token     int64
}

// An example is a program of examples/ as a process of its own.
type example struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
	err  error         // of that, once done is closed

	mu  sync.Mutex
	log []logLine
}

// buildExamples builds the programs of examples/ into a folder.
func buildExamples(t testing.TB) (folder string) {
	t.Helper()
	lab.Servers(t) // without one the test is skipped here
	folder = t.TempDir()
	build := exec.Command("go", "build", "-o", folder, "./examples/...")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return folder
}

// runExample starts the program in the room. It is killed at the end of the test.
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
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var l logLine
			if json.Unmarshal(lines.Bytes(), &l) == nil { // the last line of one that was killed may be half a line
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

// lines are what it has logged so far.
func (p *example) lines() []logLine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// said returns what it has logged so far with the message.
func (p *example) said(msg string) []logLine {
	return slices.DeleteFunc(p.lines(), func(l logLine) bool { return l.Msg != msg })
}

// saidAll is [example.said] of all.
func saidAll(ps []*example, msg string) (all []logLine) {
	for _, p := range ps {
		all = append(all, p.said(msg)...)
	}
	return all
}

// kill ends it with SIGKILL, and waits for its end.
func (p *example) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// signal sends it a signal.
func (p *example) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v: %v", p.name, s, err)
	}
}

// ended waits for its end and returns its error.
func (p *example) ended(d time.Duration) error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(d):
		p.t.Fatalf("%s has not ended within %v", p.name, d)
		return nil
	}
}
