package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
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
			noErr(t, cmd.Start())
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

// The read-only commands write nothing, and neither does a break of a key that does not exist. The collection has a
// holder, a queue and an expired session. If the collection does not exist, these commands don't create it.
func TestReadOnlyCommandsWriteNothing(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		spy := newSpy(r)
		run := func(found bool) {
			t.Helper()
			for _, args := range [][]string{
				{"status"}, {"status", "--json"}, {"status", "he"}, {"status", "--exact", "held"},
				{"members"}, {"members", "--json"}, {"members", "held"}, {"clock", "--limit", "1h"}, {"clock", "--json", "--limit", "1h"},
				{"break", "free"},
			} {
				status, out, bad := spy.run(args...)
				want := 0
				if args[0] == "break" || !found && args[0] != "clock" {
					want = 118 // the key does not exist, and there are no processes
				}
				if status != want || want == 0 && found && (out == "" || bad != "") {
					t.Errorf("%v: exit status %d, %q, %q, want status %d", args, status, out, bad, want)
				}
				if slices.Contains(args, "--json") {
					for line := range strings.Lines(out) {
						if !json.Valid([]byte(line)) {
							t.Errorf("%v: %q is not JSON", args, line)
						}
					}
				}
				if len(spy.took("")) == 0 {
					t.Errorf("%v sent no commands, so this test shows nothing", args)
				}
				spy.wroteNothing(fmt.Sprint(args))
			}
		}
		run(false)
		if names, err := r.Client(t).Database(r.DB).ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
			t.Errorf("collections %v, %v, want none", names, err)
		}

		// Write records of three sessions and of a key. Nobody renews the sessions, whose TTL is an hour.
		store := r.store()
		for i, id := range []string{"first", "second", "expired"} {
			if _, err := store.Register(t.Context(), driver.Member{ID: id, TTL: time.Hour, Host: "here", PID: 7}); err != nil {
				t.Fatal(err)
			}
			c := driver.Claim{Key: "held", ID: id + ".1", Session: id, Kind: driver.KindElection, Weight: 1, Limit: 1}
			if _, _, err := storecmd.Acquire(t.Context(), store, c, true, nil, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(i, err)
			}
		}
		noErr(t, storecmd.Unregister(t.Context(), store, "expired"))
		before := spy.documents()
		run(true)
		if after := spy.documents(); !maps.Equal(before, after) {
			t.Errorf("the collection was\n%v\nand is now\n%v", before, after)
		}
	})
}

// The command break makes another session's holder release a key. It leaves no session of its own
// behind.
func TestBreakCommand(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		holder := r.session(r.short(patient))
		h := lock(t, holder.Mutex("key"))
		go func() {
			<-h.Lost()
			h.Release(context.Background())
		}()
		status, out, bad := newSpy(r).run("break", "key")
		if status != 0 || bad != "" || !strings.Contains(out, "released it") || !strings.Contains(out, "key: free now, 0 waiting") {
			t.Errorf("exit status %d; stdout %q, stderr %q", status, out, bad)
		}
		members, _, err := admin.New(holder).Members(t.Context())
		if err != nil || len(members) != 1 || members[0].ID != holder.ID() {
			t.Errorf("members %+v, %v, want only the holder", members, err)
		}
	})
}

// leasehold serve shows a key that another process holds, on its page and as JSON. It never writes,
// except to break a key if that is allowed.
func TestServeCommand(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		spy := newSpy(r)
		holder := exec.Command(spy.bin, "run", "--uri", r.URI, "--db", r.DB, "--ttl", patient.String(), "--connect-timeout", "1m", "fleet/key", "--", "sleep", "300")
		holder.Env = append(os.Environ(), "MONGODB_URI=")
		holder.Stderr = os.Stderr
		noErr(t, holder.Start())
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
		noErr(t, err)
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
	noErr(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("break: %s, want it forbidden", answer.Status)
	}
}
