package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// jobVariable is the environment variable that contains a child's job; only children have it.
const jobVariable = "LEASEHOLD_BENCH_CHILD"

// A child is a process of this program that opens sessions of a fleet. It reports to its parent on
// its standard output, line by line. It exits when its standard input closes, so it never outlives
// its parent.
type child struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string // closed when the child exits
}

// startChild starts a child, which is killed when ctx ends.
func startChild(ctx context.Context, j job) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self), lines: make(chan string, 1000)}
	c.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	return c, nil
}

// await waits for a line that begins with the given word, and returns the rest of that line. It
// discards all lines before that line.
func (c *child) await(ctx context.Context, word string) (string, error) {
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return "", fmt.Errorf("child %d exited before it printed %q", c.cmd.Process.Pid, word)
			}
			if rest, ok := strings.CutPrefix(line, word); ok {
				return strings.TrimSpace(rest), nil
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// tell lets the child's job continue after it has printed "idle".
func (c *child) tell() error {
	_, err := io.WriteString(c.in, "\n")
	return err
}

// kill ends the process with SIGKILL and returns the lines that await has not read.
func (c *child) kill() (rest []string) {
	c.cmd.Process.Kill()
	for line := range c.lines {
		rest = append(rest, line)
	}
	c.cmd.Wait()
	return rest
}

// If this process is a child, childMain runs the job and exits. Otherwise it does nothing.
func childMain() {
	text := os.Getenv(jobVariable)
	if text == "" {
		return
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		proceed := make(chan struct{})
		go func() {
			in := bufio.NewReader(os.Stdin)
			if _, err := in.ReadByte(); err == nil {
				close(proceed)
			}
			io.Copy(io.Discard, in)
			os.Exit(3) // the parent has exited
		}()
		err = j.run(proceed)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "report: child %d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}
