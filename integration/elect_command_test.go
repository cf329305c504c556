package integration_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// Of three leasehold elect processes, one runs its command. When that process is killed, a second process runs the
// command. When the second process gets SIGTERM, the third process runs the command.
func TestElectCommand(t *testing.T) {
	t.Parallel()
	bin := leasehold.path(t)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		var mu sync.Mutex
		var out bytes.Buffer
		said := func() string {
			mu.Lock()
			defer mu.Unlock()
			return out.String()
		}
		elect := func() *exec.Cmd {
			cmd := exec.Command(bin, "elect", "--uri", r.URI, "--db", r.DB, "--ttl", patient.String(), "--connect-timeout", "1m", "e",
				"--", "sh", "-c", `trap 'echo "end $LEASEHOLD_TERM"; exit 7' TERM; echo "term $LEASEHOLD_TERM"; while :; do sleep 0.02; done`)
			cmd.Env = append(os.Environ(), "MONGODB_URI=")
			cmd.Stdout = writer(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return out.Write(p)
			})
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			return cmd
		}
		leads := func(term string) {
			t.Helper()
			eventually(t, term+" begins", func() bool { return strings.Contains(said(), term+"\n") })
		}
		a := elect()
		leads("term 1")
		b := elect()
		eventually(t, "the second waits", func() bool { return load(t, store, "e").Waiting == 1 })
		c := elect()
		eventually(t, "the third waits", func() bool { return load(t, store, "e").Waiting == 2 })

		a.Process.Kill()
		leads("term 2")
		a.Wait() // leasehold and its command share the output, so this returns only after both have exited
		b.Process.Signal(syscall.SIGTERM)
		leads("term 3")
		b.Wait()
		if got := b.ProcessState.ExitCode(); got != 7 {
			t.Errorf("after SIGTERM the second's status is %d, want its command's 7", got)
		}
		c.Process.Signal(syscall.SIGINT)
		c.Wait()
		if got, want := said(), "term 1\nterm 2\nend 2\nterm 3\n"; got != want {
			t.Errorf("the commands printed %q, want %q", got, want)
		}
		if st := load(t, store, "e"); len(st.Holders) != 0 || st.Waiting != 0 {
			t.Errorf("held by %v, %d waiting, want nobody", st.Holders, st.Waiting)
		}
	})
}
