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

// ErrNotHere says that a program is not on this machine.
var ErrNotHere = errors.New("not here")

// A daemon is one process of a server.
type daemon struct {
	dir  string
	cmd  *exec.Cmd
	end  os.Signal // what ends it at once, and whatever it has started
	done chan struct{}
}

// spec says how a daemon is started.
type spec struct {
	dir  string // its own, removed at the end
	args []string
	user *account // nil: as who we are
	end  os.Signal
}

// start starts the process and waits until it answers.
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
			err = fmt.Errorf("it ended: %v", d.cmd.ProcessState)
		case <-ctx.Done():
			err = errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
			continue
		}
		text, _ := os.ReadFile(out.Name())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		err = fmt.Errorf("%s: %w\n%s", s.args[0], err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
		d.stop()
		return nil, err
	}
}

// stop ends the process, by its pid, and removes its files.
func (d *daemon) stop() {
	d.cmd.Process.Signal(d.end)
	select {
	case <-d.done:
	case <-time.After(10 * time.Second):
		d.cmd.Process.Kill()
		<-d.done
	}
	os.RemoveAll(d.dir)
}

// program returns the path of a program, or ErrNotHere.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: no %s on PATH", ErrNotHere, name)
	}
	return path, nil
}

// directory makes a temporary directory.
func directory(name string) (string, error) { return os.MkdirTemp("", "leasehold-bench-"+name+"-") }

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

// version is the version that a program tells of.
func version(path string) string {
	out, _ := exec.Command(path, "--version").Output()
	return versionNumber.FindString(string(out))
}
