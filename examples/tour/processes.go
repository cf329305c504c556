//go:build mongodb

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// processes is a crew of processes on MongoDB. Each process runs this program, reports its events
// as lines on its standard output, and stops when its standard input ends.
type processes struct {
	uri     string
	workers map[string]*process
}

type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed when the process's output has ended
}

func newProcesses(uri string) (crew, error) {
	return &processes{uri: uri, workers: map[string]*process{}}, nil
}

func (c *processes) start(name string, p part, tell func(event)) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "-uri", c.uri, "-worker", name, "-part", p.name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := &process{cmd: cmd, stdin: in, ended: make(chan struct{})}
	c.workers[name] = w
	go func() {
		defer close(w.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			e := event{worker: name}
			if _, err := fmt.Sscan(lines.Text(), &e.what, &e.token); err == nil {
				tell(e)
			}
		}
	}()
	return nil
}

func (c *processes) kill(name string) error {
	w := c.workers[name]
	delete(c.workers, name)
	err := w.cmd.Process.Kill()
	<-w.ended
	w.cmd.Wait() // the error only reports that the worker was killed
	return err
}

func (c *processes) stop() error {
	for _, w := range c.workers {
		w.stdin.Close()
	}
	var errs []error
	for name, w := range c.workers {
		<-w.ended
		if err := w.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// runWorker is the main function of a worker's process.
func runWorker(uri, name string, p part) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := dsyncmongo.Connect(ctx, options.Client().ApplyURI(uri), "leasehold_tour", &dsyncmongo.Options{
		Session: dsync.Options{TTL: ttl, Host: name},
	})
	if err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	p.work(ctx, s, func(e event) { fmt.Println(e.what, e.token) })
	return s.Close(context.Background())
}
