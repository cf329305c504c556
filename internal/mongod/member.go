package mongod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// A Member is one mongod or mongos process. Its methods may be called by one goroutine at
// a time.
type Member struct {
	Addr string // host:port on which the process listens

	name string // host:port of the process in the set's configuration and URI
	path string
	args []string
	env  []string
	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// Start starts the process. It may be called again after Kill.
func (m *Member) Start() error {
	out, err := os.OpenFile(filepath.Join(m.dir, "out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	m.cmd = exec.Command(m.path, m.args...)
	m.cmd.Env = append(os.Environ(), m.env...)
	m.cmd.Stdout, m.cmd.Stderr = out, out
	spawn.EndWithParent(m.cmd)
	if err := m.cmd.Start(); err != nil {
		return err
	}
	cmd, done := m.cmd, make(chan struct{})
	m.done = done
	go func() {
		cmd.Wait()
		close(done)
	}()
	return nil
}

// Kill ends the process at once, as kill -9 does, and waits until it has ended.
func (m *Member) Kill() {
	if m.cmd == nil || m.cmd.Process == nil {
		return
	}
	m.cmd.Process.Kill()
	<-m.done
}

// Replace makes the next Start run the program at path, for example another release of the server.
func (m *Member) Replace(path string) { m.path = path }

// PID returns the id of the process, which changes with each Start.
func (m *Member) PID() int { return m.cmd.Process.Pid }

// ping waits until the process answers.
func (m *Member) ping(ctx context.Context) error {
	for {
		select {
		case <-m.done:
			return fmt.Errorf("ended: %v", m.cmd.ProcessState)
		default:
		}
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := m.run(try, "", bson.D{{Key: "ping", Value: 1}}, nil)
		cancel()
		if err == nil {
			return nil
		}
		if sleepErr := sleep(ctx, 50*time.Millisecond); sleepErr != nil {
			return errors.Join(sleepErr, err)
		}
	}
}

// run runs a command on this member only.
func (m *Member) run(ctx context.Context, user string, cmd bson.D, into any) error {
	client, err := mongo.Connect(options.Client().
		ApplyURI("mongodb://" + user + m.Addr + "/?directConnection=true").
		SetServerSelectionTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	res := client.Database("admin").RunCommand(ctx, cmd)
	if into == nil {
		return res.Err()
	}
	return res.Decode(into)
}

// insist runs a command and repeats it as long as it times out. The command must be safe to repeat.
func (m *Member) insist(ctx context.Context, user string, cmd bson.D) error {
	for {
		err := m.run(ctx, user, cmd, nil)
		if err == nil || !mongo.IsTimeout(err) || sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
