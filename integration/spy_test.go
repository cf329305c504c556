package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The variable leasehold is the command leasehold. The first test that needs the command builds it.
var leasehold binary

// A binary is a program in this repository.
type binary struct {
	once sync.Once
	dir  string
	err  error
}

// path returns the path of the program, which it builds at the first call.
func (b *binary) path(t testing.TB) string {
	t.Helper()
	lab.Servers(t) // skips the test if there is no server
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "leasehold"); b.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", b.dir, "../cmd/leasehold").CombinedOutput()
		if err != nil {
			b.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, "leasehold")
}

func (b *binary) remove() { os.RemoveAll(b.dir) }

// A spy runs leasehold through a proxy, and records the commands that leasehold sends to the
// server.
type spy struct {
	*room
	bin string
	via *proxy.Proxy

	mu   sync.Mutex
	sent []proxy.Command
}

func newSpy(r *room) *spy {
	r.t.Helper()
	s := &spy{room: r, bin: leasehold.path(r.t), via: r.proxy()}
	s.via.Rule(func(c proxy.Command) proxy.Fate {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent = append(s.sent, proxy.Command{Name: c.Name, Body: slices.Clone(c.Body)})
		return proxy.Pass
	})
	return s
}

// took returns the commands with the name that were sent since the last call of forget, or all of them if name is "".
func (s *spy) took(name string) []proxy.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []proxy.Command
	for _, c := range s.sent {
		if name == "" || c.Name == name {
			all = append(all, c)
		}
	}
	return all
}

func (s *spy) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = nil
}

// command returns leasehold with these arguments, ready to start. It is killed after two minutes.
func (s *spy) command(args ...string) *exec.Cmd {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, s.bin, append(args, "--uri", s.via.URI(), "--db", s.DB)...)
	cmd.Env = append(os.Environ(), "MONGODB_URI=")
	return cmd
}

// run runs leasehold with these arguments to its end.
func (s *spy) run(args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	var out, bad bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &bad
	cmd.Run() // ignore the error: the exit status is the result
	return cmd.ProcessState.ExitCode(), out.String(), bad.String()
}

// interrupted starts leasehold with these arguments, and interrupts it as soon as until(output) is true.
func (s *spy) interrupted(until func(out string) bool, args ...string) (state *os.ProcessState, stdout, stderr string) {
	s.t.Helper()
	var mu sync.Mutex
	var out, bad bytes.Buffer
	printed := func() string {
		mu.Lock()
		defer mu.Unlock()
		return out.String()
	}
	cmd := s.command(args...)
	cmd.Stderr = &bad
	cmd.Stdout = writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	})
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !until(printed()) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait() // ignore the error: the exit status is the result
	if !until(printed()) {
		s.t.Errorf("%v did not print the expected output within a minute; it printed\n%s%s", args, printed(), bad.String())
	}
	return cmd.ProcessState, printed(), bad.String()
}

// wroteNothing fails the test if leasehold has sent a command that can write. Then it forgets all commands.
func (s *spy) wroteNothing(what string) {
	s.t.Helper()
	for _, c := range s.took("") {
		switch c.Name {
		case "hello", "aggregate", "find", "getMore", "killCursors", "endSessions":
		default:
			s.t.Errorf("%s: the command %s was sent: %v", what, c.Name, c.Body)
		}
	}
	s.forget()
}

// documents returns all documents in the collection.
func (s *spy) documents() map[string]string {
	s.t.Helper()
	cur, err := s.raw().Find(s.t.Context(), bson.D{})
	if err != nil {
		s.t.Fatal(err)
	}
	all := make(map[string]string)
	for cur.Next(s.t.Context()) {
		id, _ := cur.Current.Lookup("_id").StringValueOK()
		all[id] = cur.Current.String()
	}
	if err := cur.Err(); err != nil {
		s.t.Fatal(err)
	}
	return all
}
