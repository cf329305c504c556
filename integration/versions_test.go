package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The proxy works. Otherwise other tests could pass without testing anything.
func TestProxy(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		p := r.proxy()
		// Switch off retries: with them, the driver would hide a lost command.
		coll := server.Connect(t, p.URI(), options.Client().SetRetryWrites(false)).Database(r.DB).Collection("c")
		insert := func(id string, d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id}})
			return err
		}
		there := func(id string) bool {
			err := s.Client(t).Database(r.DB).Collection("c").FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Err()
			return err == nil
		}
		inserts := func(c proxy.Command) bool { return c.Name == "insert" && c.On(r.DB, "c") }

		if err := insert("plain", 10*time.Second); err != nil {
			t.Fatalf("through an idle proxy: %v", err)
		}

		for _, c := range []struct {
			name    string
			fate    proxy.Fate
			applied bool // whether the insert took effect although the client got an error
		}{
			{"lose reply", proxy.LoseReply, true},
			{"cut reply", proxy.CutReply, true},
			{"lose request", proxy.LoseRequest, false},
			{"shed request", proxy.ShedRequest, false},
			{"shed reply", proxy.ShedReply, true},
		} {
			hit := p.Once(c.fate, inserts)
			err := insert(c.name, 500*time.Millisecond)
			if err == nil {
				t.Errorf("%s: the insert succeeded", c.name)
			}
			if !closed(hit) {
				t.Errorf("%s: the rule saw no insert", c.name)
			}
			if c.fate == proxy.CutReply && !mongo.IsNetworkError(err) {
				t.Errorf("%s: %v, want a network error", c.name, err)
			}
			if got := there(c.name); got != c.applied {
				t.Errorf("%s: applied = %v, want %v", c.name, got, c.applied)
			}
		}

		p.Once(proxy.LateRequest, inserts)
		if err := insert("late", 300*time.Millisecond); err == nil {
			t.Error("late request: the insert succeeded")
		}
		if there("late") {
			t.Error("late request: the insert was applied before Heal")
		}
		p.Heal()
		eventually(t, "a late request arrives after Heal", func() bool { return there("late") })

		p.Hang()
		if err := insert("hung", 300*time.Millisecond); err == nil {
			t.Error("hung: the insert succeeded")
		}
		p.Heal()
		if err := insert("healed", 20*time.Second); err != nil {
			t.Errorf("after a hang: %v", err)
		}

		p.Cut()
		if err := insert("cut", 300*time.Millisecond); err == nil {
			t.Error("cut: the insert succeeded")
		}
		p.Heal()
		if err := insert("connected", 20*time.Second); err != nil {
			t.Errorf("after a cut: %v", err)
		}
	})
}

// next builds the command leasehold as a future version: the version numbers of its record format and of its probe are
// greater by one. It returns the program's path.
func next(t *testing.T) string {
	t.Helper()
	lab.Servers(t) // skips the test if there is no server
	dir, replace := t.TempDir(), make(map[string]string)
	for file, name := range map[string]string{"shapes.go": "formatVersion", "probe_record.go": "probeVersion"} {
		path, err := filepath.Abs(filepath.Join("../dsync/mongo", file))
		noErr(t, err)
		text, err := os.ReadFile(path)
		noErr(t, err)
		m := regexp.MustCompile(name + ` = (\d+)`).FindSubmatchIndex(text)
		if m == nil {
			t.Fatalf("%s has no %s", file, name)
		}
		version, _ := strconv.Atoi(string(text[m[2]:m[3]]))
		changed := string(text[:m[2]]) + strconv.Itoa(version+1) + string(text[m[3]:])
		replace[path] = filepath.Join(dir, file)
		noErr(t, os.WriteFile(replace[path], []byte(changed), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	noErr(t, err)
	file := filepath.Join(dir, "overlay.json")
	noErr(t, os.WriteFile(file, overlay, 0o600))
	if out, err := exec.Command("go", "build", "-overlay", file, "-o", dir, "../cmd/leasehold").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "leasehold")
}

// When a new version with another record format is rolled out, the new version uses the records that this version
// wrote. This version refuses records in the new format and does not change them. If this version holds a key whose
// record is converted to the new format, the key becomes free when the holder's session is closed.
func TestNextVersion(t *testing.T) {
	t.Parallel()
	bin := next(t)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		record := func(key string) bson.Raw {
			t.Helper()
			raw, err := r.raw().FindOne(t.Context(), bson.D{{Key: "_id", Value: "k/" + key}}).Raw()
			noErr(t, err)
			return raw
		}
		command := func(key string) (cmd *exec.Cmd, out *bytes.Buffer) {
			out = new(bytes.Buffer)
			cmd = exec.Command(bin, "run", "--uri", r.URI, "--db", r.DB, key, "--", "true")
			cmd.Stdout, cmd.Stderr = out, out
			return cmd, out
		}
		refused := func(err error) {
			t.Helper()
			if !errors.Is(err, dsync.ErrRefused) || !strings.Contains(err.Error(), "upgrade this library") {
				t.Errorf("%v, want ErrRefused and the advice to upgrade this library", err)
			}
		}
		session := r.session(r.short(patient))
		shared, mine := session.Mutex("shared"), session.Mutex("mine")
		h := lock(t, shared)
		token := h.Token()
		release(t, h)
		held := lock(t, session.Mutex("held"))

		cmd, out := command("shared")
		if err := cmd.Run(); err != nil {
			t.Fatalf("the next version: %v\n%s", err, out)
		}
		before := record("shared")
		if last := before.Lookup("t").AsInt64(); last <= token {
			t.Errorf("token %d came after %d, want a greater one", last, token)
		}
		refused(shared.LockContext(t.Context()))
		_, err := shared.TryHold(t.Context())
		refused(err)
		refused(admin.New(session).Forget(t.Context(), "shared"))
		if after := record("shared"); !bytes.Equal(before, after) {
			t.Errorf("this version has changed %v into %v", before, after)
		}
		release(t, lock(t, mine)) // the session still works with other keys

		cmd, out = command("held")
		noErr(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		defer cmd.Process.Kill()
		eventually(t, "the next version waits", func() bool {
			queue, ok := record("held").Lookup("q").ArrayOK()
			return ok && len(queue) > 5 // an empty array has 5 bytes
		})
		refused(held.Release(t.Context()))
		select {
		case err := <-ended:
			t.Errorf("the next version acquired the key, although this version could not release it: %v\n%s", err, out)
		case <-time.After(wakeUp):
		}
		if err := session.Close(t.Context()); err != nil {
			t.Logf("Close: %v", err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the next version: %v\n%s", err, out)
			}
		case <-time.After(2 * patient):
			t.Error("the next version is still waiting")
		}

		n, err := r.raw().CountDocuments(t.Context(), append(probeRecords(), bson.E{Key: "passed", Value: true}))
		if want := int64(2); err != nil || n != want && !s.FerretDB() {
			t.Errorf("%d records of passed probes, %v, want one of each version", n, err)
		}
		mon := newMonitor(r.DB)
		r.session(r.short(patient), mon.client())
		if sent := mon.commands(nil); len(sent) != 2 && !s.FerretDB() {
			t.Errorf("Open sent %d commands after the next version's, want 2: %v", len(sent), sent)
		}
	})
}
