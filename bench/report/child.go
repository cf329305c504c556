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
	"time"
)

// jobVariable is the environment variable by which a process knows that it is a child.
const jobVariable = "LEASEHOLD_BENCH_CHILD"

// A job is what a child does.
type job struct {
	Do       string // a name in jobs
	Addr     string // of MongoDB, a connection string
	Database string
	Key      string
	TTL      time.Duration

	Crowd crowdJob // of "wait"

	told <-chan struct{} // closed when the child is told to go on
}

// A child is a process of this program with a job. It tells lines, and ends with this
// process, since its standard input does then.
type child struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string // closed at its end
}

// startChild starts a child. It is killed when ctx ends.
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

// await waits for the line that begins with the word, and returns what follows it;
// other lines are dropped.
func (c *child) await(ctx context.Context, word string) (string, error) {
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return "", fmt.Errorf("child %d ended before it said %q", c.cmd.Process.Pid, word)
			}
			if rest, ok := strings.CutPrefix(line, word); ok {
				return strings.TrimSpace(rest), nil
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// tell tells the child to go on.
func (c *child) tell() error {
	_, err := io.WriteString(c.in, "\n")
	return err
}

// kill ends the process with SIGKILL and returns the lines that nobody has awaited.
func (c *child) kill() (rest []string) {
	c.cmd.Process.Kill()
	for line := range c.lines {
		rest = append(rest, line)
	}
	c.cmd.Wait()
	return rest
}

// childMain does the job and exits, if this process is a child.
func childMain() {
	text := os.Getenv(jobVariable)
	if text == "" {
		return
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		told := make(chan struct{})
		j.told = told
		go func() {
			in := bufio.NewReader(os.Stdin)
			if _, err := in.ReadByte(); err == nil {
				close(told)
			}
			io.Copy(io.Discard, in)
			os.Exit(3) // the end of the parent
		}()
		err = jobs[j.Do](j)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "report: child %d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}
