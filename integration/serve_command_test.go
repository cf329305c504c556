package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// leasehold serve shows a key that another process holds, on its page and as JSON. It never writes,
// except to break a key if that is allowed.
func TestServeCommand(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		spy := newSpy(r)
		holder := exec.Command(spy.bin, "run", "--uri", r.URI, "--db", r.DB, "--ttl", patient.String(), "--connect-timeout", "1m", "fleet/key", "--", "sleep", "300")
		holder.Env = append(os.Environ(), "MONGODB_URI=")
		holder.Stderr = os.Stderr
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			holder.Process.Signal(syscall.SIGTERM)
			holder.Wait() // returns an error, because the command was killed
		})
		store := r.store()
		eventually(t, "the other process holds", func() bool { return len(load(t, store, "fleet/key").Holders) == 1 })

		asked := false
		state, _, bad := spy.interrupted(func(out string) bool {
			if at := strings.TrimSpace(out); strings.HasSuffix(out, "\n") && !asked {
				asked = true
				checkPage(t, at, holder.Process.Pid)
			}
			return asked
		}, "serve", "--listen", "localhost:0")
		if state.ExitCode() != 0 || bad != "" {
			t.Errorf("after an interrupt: exit status %d, stderr %q; want 0 and nothing", state.ExitCode(), bad)
		}
		if len(spy.took("")) == 0 {
			t.Error("serve sent no commands, so this test shows nothing")
		}
		spy.wroteNothing("serve")
		if st := load(t, store, "fleet/key"); len(st.Holders) != 1 {
			t.Errorf("the key is held by %v, want the other process", st.Holders)
		}
	})
}

// checkPage reads the page at a URL, checks that it shows the key's holder, and tries to break
// the key.
func checkPage(t *testing.T, at string, pid int) {
	t.Helper()
	get := func(url string) string {
		t.Helper()
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", url, answer.Status, err)
		}
		return string(text)
	}
	if page := get(at); !strings.Contains(page, "fleet/key") || !strings.Contains(page, fmt.Sprint(pid)) {
		t.Errorf("the page is\n%s\nwant fleet/key and process %d in it", page, pid)
	}
	if page := get(at + "key?key=fleet%2Fkey"); !strings.Contains(page, fmt.Sprint(pid)) || strings.Contains(page, `action="break"`) {
		t.Errorf("the page of the key is\n%s\nwant process %d in it, and no button to break", page, pid)
	}
	var seen struct {
		Keys []struct {
			Key     string
			Held    bool
			Holders []struct{ PID int }
		}
	}
	text := get(at + "?format=json")
	if err := json.Unmarshal([]byte(text), &seen); err != nil || len(seen.Keys) != 1 ||
		seen.Keys[0].Key != "fleet/key" || !seen.Keys[0].Held || len(seen.Keys[0].Holders) != 1 || seen.Keys[0].Holders[0].PID != pid {
		t.Errorf("%v; the JSON is\n%s\nwant fleet/key held by process %d", err, text, pid)
	}
	answer, err := http.PostForm(at+"break", url.Values{"key": {"fleet/key"}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("break: %s, want it forbidden", answer.Status)
	}
}
