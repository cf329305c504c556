package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// ErrNotHere means that there is no server to measure, usually because its program is not installed.
var ErrNotHere = errors.New("not here")

// A Server is a server that was started. Stop ends it.
type Server struct {
	Addr  string // host:port
	About string // its name and version
	*daemon
}

// A daemon is a running server process.
type daemon struct {
	dir  string
	cmd  *exec.Cmd
	end  os.Signal // the signal that ends it and its children at once
	done chan struct{}
}

// spec describes how to start a daemon.
type spec struct {
	dir  string // only for the daemon's files; Stop removes it
	args []string
	user *account // nil: this process's user
	end  os.Signal
}

// start starts a process, and returns when answers returns nil. It fails if the process exits before that, or if that
// has not happened within a minute.
func start(ctx context.Context, s spec, answers func(context.Context) error) (*daemon, error) {
	d := &daemon{dir: s.dir, end: s.end, done: make(chan struct{})}
	out, err := os.Create(filepath.Join(s.dir, "out"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	d.cmd = exec.Command(s.args[0], s.args[1:]...)
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.Dir = out, out, s.dir
	s.user.prepare(d.cmd)
	if err := d.cmd.Start(); err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	go func() {
		d.cmd.Wait()
		close(d.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := answers(try)
		cancel()
		if err == nil {
			return d, nil
		}
		select {
		case <-d.done:
			err = fmt.Errorf("it exited before it answered: %v", d.cmd.ProcessState)
		case <-ctx.Done():
			err = errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
			continue
		}
		text, _ := os.ReadFile(out.Name())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		err = fmt.Errorf("%s: %w\n%s", s.args[0], err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
		d.Stop()
		return nil, err
	}
}

// Stop ends the process and removes its files.
func (d *daemon) Stop() {
	d.cmd.Process.Signal(d.end)
	select {
	case <-d.done:
	case <-time.After(10 * time.Second):
		d.cmd.Process.Kill()
		<-d.done
	}
	os.RemoveAll(d.dir)
}

// program returns the path of an installed program, or ErrNotHere.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s is not on PATH", ErrNotHere, name)
	}
	return path, nil
}

func directory(name string) (string, error) { return os.MkdirTemp("", "leasehold-bench-"+name+"-") }

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

// version returns the version that a program prints with --version.
func version(path string) string {
	out, _ := exec.Command(path, "--version").Output()
	return versionNumber.FindString(string(out))
}
