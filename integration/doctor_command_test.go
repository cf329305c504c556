package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A diagnosis is a line of doctor --json.
type diagnosis struct {
	Check, Outcome, Found, Do string
	Values                    map[string]any
}

// diagnoses parses the output of doctor --json.
func diagnoses(t *testing.T, out string) map[string]diagnosis {
	t.Helper()
	all := make(map[string]diagnosis)
	for line := range strings.Lines(out) {
		var d diagnosis
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[d.Check] = d
	}
	return all
}

// doctor runs leasehold doctor with a connection string, without a proxy.
func doctor(t *testing.T, uri string, args ...string) (status int, found map[string]diagnosis, stdout string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), leasehold.path(t), append([]string{"doctor", "--json", "--connect-timeout", "5m", "--ttl", "5m", "--uri", uri}, args...)...)
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	cmd.Run() // ignore the error: the exit status is the result
	return cmd.ProcessState.ExitCode(), diagnoses(t, out.String()), out.String() + bad.String()
}

// On each server doctor finds nothing that must be done, and names the server. It writes to the library's collections
// only, and leaves what every session leaves: the record of the probe. With a pool of two it says so, and still measures.
func TestDoctorCommand(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		spy := newSpy(r)
		for range 2 { // the server has passed the probe before the second time
			status, out, bad := spy.run("doctor", "--json", "--connect-timeout", "1m", "--ttl", "5m")
			all := diagnoses(t, out)
			if status != 0 || len(all) != 10 {
				t.Fatalf("exit status %d and %d lines, want 0 and 10:\n%s%s", status, len(all), out, bad)
			}
			want := fmt.Sprintf("%s %s, %s", s.Product, s.Version, strings.SplitN(s.Topology, " of 2 shards", 2)[0])
			if got := all["server"]; got.Outcome != "ok" || !strings.HasPrefix(got.Found, want) {
				t.Errorf("server: %+v, want %s", got, want)
			}
			if got := all["notices"].Values["notified"]; got != s.Has(server.Need{Notices: true}) {
				t.Errorf("notices: %v, want %v", got, s.Has(server.Need{Notices: true}))
			}
			for _, check := range []string{"rights", "probe", "writes", "notices", "records", "left"} {
				if all[check].Outcome != "ok" {
					t.Errorf("%s: %+v, want ok", check, all[check])
				}
			}
			if n, _ := all["latency"].Values["lock_p50_ms"].(float64); n <= 0 { // a slow machine gets a warning
				t.Errorf("latency: %+v, want a measurement", all["latency"])
			}
			lab.Note(t, "%s", all["latency"].Found)
		}
		for _, c := range spy.took("") {
			switch c.Name {
			case "insert", "update", "delete", "findAndModify", "create":
				if name := c.Body.Lookup(c.Name).StringValue(); name != collection && name != noticesOf(1) {
					t.Errorf("%s wrote to the collection %s", c.Name, name)
				}
			case "hello", "isMaster", "ismaster", "buildInfo", "listCollections", "connectionStatus", "replSetGetConfig", "aggregate", "find", "getMore", "killCursors", "endSessions":
			default:
				t.Errorf("the command %s was sent: %v", c.Name, c.Body)
			}
		}
		for id := range spy.documents() {
			if !strings.HasPrefix(id, "x/probe/") {
				t.Errorf("the record %s was left", id)
			}
		}
		separator := "?"
		if strings.Contains(r.URI, "?") {
			separator = "&"
		}
		status, all, out := doctor(t, r.URI+separator+"maxPoolSize=2", "--db", r.DB)
		if d := all["pool"]; status != 0 || d.Outcome != "warn" || !strings.Contains(d.Found, "maxPoolSize=2") || !strings.Contains(d.Do, "maxPoolSize=36") {
			t.Errorf("with a pool of two: exit status %d, %+v; want a warning:\n%s", status, d, out)
		}
	})
}

// doctor names each right that is missing. Its advice helps: with the role that it names, nothing is missing.
func TestDoctorNamesMissingRights(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{Binary: true}, func(t *testing.T, s *server.Server) {
		own := withAuth(t, s)
		r := newRoom(t, own)
		db := own.Client(t).Database(r.DB)
		run := func(t *testing.T, cmd ...bson.E) {
			t.Helper()
			if err := db.RunCommand(t.Context(), bson.D(cmd)).Err(); err != nil {
				t.Fatalf("%v: %v", cmd[0], err)
			}
		}
		main, notices := []string{"find", "insert", "update", "remove"}, []string{"find", "insert", "createCollection", "convertToCapped"}
		privileges := func(lost, lostOfNotices string) bson.A {
			without := func(actions []string, lost string) []string {
				return slices.DeleteFunc(slices.Clone(actions), func(a string) bool { return a == lost })
			}
			all := bson.A{on(r.DB, collection, without(main, lost)...)}
			for address := range addresses {
				all = append(all, on(r.DB, noticesOf(address), without(notices, lostOfNotices)...))
			}
			return all
		}
		examine := func(t *testing.T, uri, outcome, found string) {
			t.Helper()
			status, all, out := doctor(t, uri, "--db", r.DB)
			if d := all["rights"]; outcome == "fail" && status != 119 || d.Outcome != outcome || !strings.Contains(d.Found, found) || strings.Contains(out, "cret") {
				t.Errorf("exit status %d, %+v; want %s, %q, and no password:\n%s", status, d, outcome, found, out)
			}
		}
		// The user is named after what it may not do. A user whose role changed would keep its rights for a while: routers
		// remember them.
		as := func(user string, privileges bson.A, outcome, found string, more ...any) {
			t.Run(user, func(t *testing.T) {
				t.Parallel()
				run(t, bson.E{Key: "createRole", Value: user}, bson.E{Key: "privileges", Value: privileges}, bson.E{Key: "roles", Value: bson.A{}})
				run(t, bson.E{Key: "createUser", Value: user}, bson.E{Key: "pwd", Value: "se-cret"}, bson.E{Key: "roles", Value: append(bson.A{user}, more...)})
				examine(t, own.URIAs(user+":se-cret@")+"&authSource="+r.DB, outcome, found)
			})
		}
		const enough = "all that are needed"
		as("nothing", privileges("", ""), "ok", enough)
		for i := range main {
			as(main[i], privileges(main[i], ""), "fail", "missing: "+main[i]+" on "+r.DB+"."+collection)
			as("notices-"+notices[i], privileges("", notices[i]), "warn", "missing: "+notices[i]+" on "+r.DB+"."+collection+".notices.0 to .64")
		}
		as("advised", privileges(main[0], notices[0]), "ok", enough, bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: r.DB}})
		t.Run("nobody", func(t *testing.T) {
			t.Parallel()
			examine(t, own.URIAs(""), "fail", "the connection string has none")
		})
	})
}

// doctor names a clock that is two seconds off.
func TestDoctorNamesAClock(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, s *server.Server) {
		env, ok := server.FakeClock(2 * time.Second)
		if !ok {
			lab.Skip(t, s, server.NoFakeClock)
		}
		own := lab.Start(t, mongod.Spec{Members: 1, Env: env})
		status, all, out := doctor(t, own.URI, "--db", "doctor")
		d := all["clocks"]
		offset, _ := d.Values["offset_ms"].(float64)
		if status != 0 || d.Outcome != "warn" || !strings.Contains(d.Do, "NTP") || offset < 1900 || offset > 2100 {
			t.Errorf("exit status %d, %+v; want a warning about two seconds:\n%s", status, d, out)
		}
	})
}

// A server that hangs gets one line, and the exit status of one that does not answer.
func TestDoctorOfAHungServer(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		spy := newSpy(r)
		spy.via.Hang()
		status, out, bad := spy.run("doctor", "--json", "--connect-timeout", "1s")
		if all := diagnoses(t, out); status != 115 || len(all) != 1 || all["server"].Outcome != "fail" || strings.Count(bad, "\n") != 1 {
			t.Errorf("exit status %d, stdout %q, stderr %q; want 115 and one line", status, out, bad)
		}
	})
}
