package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/mongoclient"
	"github.com/leasehold-go/leasehold/internal/mongofake"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A ward is a fake server for the doctor, with a store in memory for the sessions that the doctor opens.
type ward struct {
	*mongofake.Server
	*exam
	mem *dsynctest.Memory

	mu      sync.Mutex
	answers map[string]func(cmd bson.Raw) bson.D // instead of a healthy server's
	sent    []string                             // the collections and _ids written to
}

// newWard returns a healthy server. Call it in a bubble.
func newWard(t *testing.T, uri string) *ward {
	w := &ward{mem: dsynctest.NewMemory(), answers: make(map[string]func(bson.Raw) bson.D)}
	hello := mongofake.Hello()
	w.Server = mongofake.New(func(name string, cmd bson.Raw) bson.D {
		w.mu.Lock()
		answer := w.answers[name]
		w.sent = append(w.sent, writes(name, cmd)...)
		w.mu.Unlock()
		if answer != nil {
			if reply := answer(cmd); reply != nil {
				return reply
			}
		}
		return w.healthy(name, cmd, hello)
	})
	tg := target{uri: uri, db: "app", collection: "leasehold", ttl: 30 * time.Second, timeout: 10 * time.Second, dialer: w.Server}
	w.exam = newExam(tg, w.Client(t).Database(tg.db))
	w.exam.session = func(context.Context) (*dsync.Session, error) {
		return dsync.New(w.mem, &dsync.Options{Name: "doctor", Host: "here", AlwaysListen: true, Retention: -1})
	}
	w.exam.view = func(context.Context) (driver.Store, error) { return w.mem, nil }
	return w
}

const wardURI = "mongodb://me:secret@fake:27017/app"

// role returns the reply to connectionStatus of a user with these privileges.
func role(privileges ...bson.D) bson.D {
	return mongofake.OK(bson.E{Key: "authInfo", Value: bson.D{
		{Key: "authenticatedUsers", Value: bson.A{bson.D{{Key: "user", Value: "me"}, {Key: "db", Value: "admin"}}}},
		{Key: "authenticatedUserPrivileges", Value: privileges},
	}})
}

func may(collection string, actions ...string) bson.D {
	return bson.D{{Key: "resource", Value: bson.D{{Key: "db", Value: "app"}, {Key: "collection", Value: collection}}}, {Key: "actions", Value: actions}}
}

// readWrite are the actions of that role which matter here.
func readWrite() []string {
	return []string{"find", "insert", "update", "remove", "createCollection", "convertToCapped"}
}

func cursorOf(id int64, docs ...bson.D) bson.D {
	return mongofake.OK(bson.E{Key: "cursor", Value: bson.D{{Key: "id", Value: id}, {Key: "ns", Value: "app.x"}, {Key: "firstBatch", Value: append([]bson.D{}, docs...)}}})
}

func (w *ward) healthy(name string, cmd bson.Raw, hello bson.D) bson.D {
	switch name {
	case "hello", "isMaster", "ismaster":
		return mongofake.OK(append(slices.Clone(hello), bson.E{Key: "localTime", Value: time.Now()})...)
	case "buildInfo":
		return mongofake.OK(bson.E{Key: "version", Value: "4.4.6"})
	case "connectionStatus":
		return role(may("", readWrite()...))
	case "listCollections":
		return cursorOf(0, bson.D{{Key: "name", Value: "leasehold"}}, bson.D{{Key: "name", Value: "other"}})
	case "findAndModify": // the record of the probe
		return mongofake.OK(bson.E{Key: "value", Value: bson.D{{Key: "passed", Value: true}, {Key: "now", Value: time.Now()}}})
	case "replSetGetConfig":
		return mongofake.OK(bson.E{Key: "config", Value: bson.D{{Key: "writeConcernMajorityJournalDefault", Value: true}}})
	case "find":
		return cursorOf(7, bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "to", Value: ""}})
	case "getMore":
		return mongofake.Silent
	case "insert", "update":
		return mongofake.OK(bson.E{Key: "n", Value: 1})
	case "delete":
		return mongofake.OK(bson.E{Key: "n", Value: 4})
	case "create", "killCursors", "endSessions":
		return mongofake.OK()
	}
	return mongofake.Refusal(59, "CommandNotFound")
}

// writes returns what a command writes, as "collection _id".
func writes(name string, cmd bson.Raw) (all []string) {
	add := func(ids ...string) {
		collection, _ := cmd.Lookup(name).StringValueOK()
		for _, path := range ids {
			v := cmd.Lookup(strings.Split(path, ".")...)
			if ids, ok := v.ArrayOK(); ok {
				values, _ := ids.Values()
				for _, id := range values {
					all = append(all, collection+" "+id.StringValue())
				}
				continue
			}
			all = append(all, collection+" "+v.StringValue())
		}
	}
	switch name {
	case "insert":
		add("documents.0._id")
	case "update":
		add("updates.0.q._id")
	case "delete":
		add("deletes.0.q._id.$in")
	}
	return all
}

// answer replaces a healthy server's answers to a command. A nil answer is the healthy one.
func (w *ward) answer(name string, f func(cmd bson.Raw) bson.D) { w.answers[name] = f }

// run makes all checks.
func (w *ward) run(ctx context.Context, asJSON bool) result {
	var out, bad bytes.Buffer
	a := &app{stdout: &out, stderr: &bad, frame: new(display)}
	err := failed(a.doctor(ctx, w.exam, asJSON))
	var f *failure
	if !errors.As(err, &f) {
		return result{0, out.String(), bad.String()}
	}
	return result{f.status, out.String(), f.Error()}
}

// found returns the findings by check.
func (w *ward) found(t *testing.T) (map[string]finding, result) {
	t.Helper()
	got := w.run(t.Context(), true)
	all := make(map[string]finding)
	for line := range strings.Lines(got.out) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[f.Check] = f
	}
	return all, got
}

var numbers = regexp.MustCompile(`[0-9.]+(ns|µs|ms|s)\b|("[a-z0-9_]+_ms":)[0-9.]+`)

// The output for a healthy server, as text and as JSON, with its numbers replaced by #.
func TestDoctorGolden(t *testing.T) {
	for file, asJSON := range map[string]bool{"doctor.txt": false, "doctor.jsonl": true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWard(t, wardURI)
			s := scene{w.mem, t}
			if _, err := s.Register(t.Context(), driver.Member{ID: "a", Name: "worker-a", Host: "host-a", PID: 11, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			s.acquire(claim("invoices", "a.1", driver.KindMutex, 1, 1))
			got := w.run(t.Context(), asJSON)
			if got.status != 0 || got.err != "" {
				t.Errorf("%+v, want status 0", got)
			}
			golden(t, file, numbers.ReplaceAllString(got.out, "$2#"))
		})
	}
}

// Each kind of trouble is named, with the check that finds it and with what to do.
func TestDoctorNamesWhatIsWrong(t *testing.T) {
	hello := func(fields ...bson.E) func(*ward) {
		reply := append(bson.D{}, mongofake.Hello()...)
		for _, f := range fields {
			i := slices.IndexFunc(reply, func(e bson.E) bool { return e.Key == f.Key })
			if i < 0 {
				reply = append(reply, f)
			} else if reply[i] = f; f.Value == nil {
				reply = slices.Delete(reply, i, i+1)
			}
		}
		return func(w *ward) {
			say := func(bson.Raw) bson.D {
				return mongofake.OK(append(slices.Clone(reply), bson.E{Key: "localTime", Value: time.Now()})...)
			}
			w.answer("hello", say)
		}
	}
	replies := func(name string, reply bson.D) func(*ward) {
		return func(w *ward) { w.answer(name, func(bson.Raw) bson.D { return reply }) }
	}
	refuses := func(name string, code int) func(*ward) { return replies(name, mongofake.Refusal(code, "Test")) }
	onNotices := func(cmd bson.Raw) bool {
		name, _ := cmd.Lookup("find").StringValueOK()
		return strings.Contains(name, ".notices.")
	}
	without := func(collection, action string) func(*ward) {
		return func(w *ward) {
			rights := []bson.D{}
			for _, c := range append([]string{"leasehold"}, noticeNames()...) {
				actions := readWrite()
				if c == collection {
					actions = slices.DeleteFunc(actions, func(a string) bool { return a == action })
				}
				rights = append(rights, may(c, actions...))
			}
			w.answer("connectionStatus", func(bson.Raw) bson.D { return role(rights...) })
		}
	}
	const grant = `db.getSiblingDB("admin").grantRolesToUser("me", [{role: "readWrite", db: "app"}])`
	type trouble struct {
		name   string
		uri    string // "": wardURI
		wrong  func(*ward)
		check  string
		level  level
		found  string
		do     string
		status int
	}
	troubles := []trouble{
		{"another release", "", replies("buildInfo", mongofake.OK(bson.E{Key: "version", Value: "8.0.4"})), "server", levelOK, "MongoDB 8.0.4, replica set of 1; this project's tests did not run on it", "report this output", 0},
		{"strict API", "", refuses("buildInfo", 323), "server", levelOK, "wire version 9", "report", 0},
		{"an arbiter", "", hello(bson.E{Key: "arbiters", Value: bson.A{"x:1"}}, bson.E{Key: "passives", Value: bson.A{"fake:2"}}), "server", levelWarn, "replica set of 3", "replace the arbiter", 0},
		{"no user", "", func(w *ward) {
			w.answer("connectionStatus", func(bson.Raw) bson.D { return mongofake.OK(bson.E{Key: "authInfo", Value: bson.D{}}) })
			w.answer("find", func(cmd bson.Raw) bson.D {
				if onNotices(cmd) {
					return nil
				}
				return mongofake.Refusal(13, "Unauthorized")
			})
		}, "rights", levelFail, "the connection string has none", "mongodb://USER:PASSWORD@HOST", exitDoctor},
		{"no access control", "", replies("connectionStatus", mongofake.OK(bson.E{Key: "authInfo", Value: bson.D{}})), "rights", levelOK, "the server asks for no user", "", 0},
		{"rights unknown", "", refuses("connectionStatus", 59), "rights", levelOK, "the probe tries them", "", 0},
		{"the probe is refused", "", refuses("findAndModify", 13), "probe", levelFail, "the server refuses", "grant what the check rights names", exitDoctor},
		{"nothing after the probe", "", refuses("findAndModify", 13), "notices", levelFail, "not tried", `"probe"`, exitDoctor},
		{"no journal", "", replies("update", bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 2}, {Key: "errmsg", Value: "cannot use 'j' option when a host does not have journaling enabled"}}),
			"writes", levelFail, "keeps no journal", "use a replica set", exitDoctor},
		{"no majority", "", replies("update", mongofake.OK(bson.E{Key: "n", Value: 1}, bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}})),
			"writes", levelFail, "no majority confirmed a write: ", "rs.status()", exitDoctor},
		{"majority without journal", "", replies("replSetGetConfig", mongofake.OK(bson.E{Key: "config", Value: bson.D{{Key: "writeConcernMajorityJournalDefault", Value: false}}})),
			"writes", levelWarn, "not by the journal", "writeConcernMajorityJournalDefault = true", 0},
		{"a clock", "", func(w *ward) {
			late := mongofake.Hello()
			w.answer("hello", func(bson.Raw) bson.D {
				return mongofake.OK(append(slices.Clone(late), bson.E{Key: "localTime", Value: time.Now().Add(2 * time.Second)})...)
			})
		}, "clocks", levelWarn, "host's clock is 2.00", "synchronize this host's clock with NTP", 0},
		{"no rights to listen", "", func(w *ward) {
			w.answer("find", func(cmd bson.Raw) bson.D { return mongofake.Refusal(13, "Unauthorized") })
		}, "notices", levelWarn, "waiters poll", "grant find, insert, createCollection and convertToCapped", 0},
		{"not capped", "", refuses("find", 2), "notices", levelWarn, "is not capped: waiters poll", "drop it and restart the processes", 0},
		{"strict API, notices", "", refuses("find", 323), "notices", levelWarn, "no capped collections", "use a client that is not strict", 0},
		{"a small pool", wardURI + "?maxPoolSize=2", func(*ward) {}, "pool", levelWarn, "maxPoolSize=2", "for a TTL of 30s, use maxPoolSize=36", 0},
		{"a pool of one", wardURI + "?maxPoolSize=1", func(*ward) {}, "pool", levelFail, "maxPoolSize=1", "use maxPoolSize=36", exitDoctor},
		{"time-outs", wardURI + "?connectTimeoutMS=30000&heartbeatFrequencyMS=10000&socketTimeoutMS=99&maxIdleTimeMS=0&timeoutMS=9&serverSelectionTimeoutMS=9", func(*ward) {}, "pool", levelWarn,
			"has connectTimeoutMS=30000, heartbeatFrequencyMS=10000, maxIdleTimeMS=0, socketTimeoutMS=99",
			"connectTimeoutMS=2500, heartbeatFrequencyMS=5000, maxIdleTimeMS=15000, no socketTimeoutMS (the Go driver ignores it)", 0},
		{"one member only", wardURI + "?directConnection=true", hello(bson.E{Key: "hosts", Value: bson.A{"fake:27017", "fake:2"}}), "pool", levelWarn, "directConnection=true", "replicaSet=rs", 0},
		{"a silent process", "", func(w *ward) {
			if _, err := w.mem.Register(context.Background(), driver.Member{ID: "z", Host: "h", PID: 3, TTL: time.Minute}); err != nil {
				panic(err)
			}
			time.Sleep(50 * time.Second)
		}, "records", levelWarn, "processes: 1;", "no heartbeat of z (process 3 on h) for ", 0},
		{"a lapsed hold", "", func(w *ward) {
			ctx := context.Background()
			if _, err := w.mem.Register(ctx, driver.Member{ID: "z", TTL: time.Second}); err != nil {
				panic(err)
			}
			if _, _, err := storecmd.Acquire(ctx, w.mem, claim("nightly", "z.1", driver.KindMutex, 1, 1), true, nil, time.Now().Add(time.Hour)); err != nil {
				panic(err)
			}
			time.Sleep(3 * time.Second)
		}, "records", levelWarn, "processes: 0; keys: 1, held: 0", "the next request gets the key: nightly of z ", 0},
		{"slow hand-offs", "", func(w *ward) {
			w.mem.Polling = true
			w.exam.session = func(context.Context) (*dsync.Session, error) {
				return dsync.New(w.mem, &dsync.Options{PollInterval: time.Minute, Retention: -1})
			}
		}, "latency", levelWarn, "a hand-off not measured in time, two plain", "without a notice, a waiter learns of a release from its next poll", 0},
		{"not removed", "", refuses("delete", 13), checkLeft, levelWarn, "could not delete this run's records in app.leasehold", `db.getSiblingDB("app").getCollection("leasehold").deleteMany({_id: {$in: ["k/leasehold-doctor/`, 0},
	}
	for _, action := range []string{"find", "insert", "update", "remove"} {
		troubles = append(troubles, trouble{"no " + action, "", without("leasehold", action), "rights", levelFail, "missing: " + action + " on app.leasehold", grant, exitDoctor})
	}
	for i, action := range []string{"find", "insert", "createCollection", "convertToCapped"} {
		troubles = append(troubles, trouble{"no " + action + " of notices", "", without(noticeNames()[i*21], action), "rights", levelWarn, "missing: " + action + " on app.leasehold.notices.0 to .64", grant, 0})
	}
	for _, c := range troubles {
		inBubble(t, c.name, func(t *testing.T) {
			uri := c.uri
			if uri == "" {
				uri = wardURI
			}
			w := newWard(t, uri)
			c.wrong(w)
			all, got := w.found(t)
			f := all[c.check]
			if f.Outcome != c.level || !strings.Contains(f.Found, c.found) || !strings.Contains(f.Do, c.do) || (f.Do == "") != (c.do == "") || got.status != c.status {
				t.Errorf("%s: %s: %q, do %q, status %d; want %s: %q, do %q, status %d", c.check, f.Outcome, f.Found, f.Do, got.status, c.level, c.found, c.do, c.status)
			}
			if n := strings.Count(got.out, "\n"); n != len(w.checks()) || strings.Contains(got.out+got.err, "secret") {
				t.Errorf("%d lines, want %d without a password:\n%s", n, len(w.checks()), got.out)
			}
		})
	}
}

// noticeNames returns the names of all collections of notices.
func noticeNames() (names []string) {
	for n := range mongoclient.DefaultNotices + 1 {
		names = append(names, fmt.Sprint("leasehold.notices.", n))
	}
	return names
}

// Servers whose clocks are farther apart than the margin are a failure: a fail-over can shorten a lease. A host's clock
// is only a warning.
func TestDoctorJudgesClocks(t *testing.T) {
	for _, c := range []struct {
		offset, spread time.Duration
		want           level
	}{{0, 499 * time.Millisecond, levelOK}, {0, 2 * time.Second, levelFail}, {2 * time.Second, 0, levelWarn}, {-2 * time.Second, 2 * time.Second, levelFail}} {
		f := judgeClocks(clockcheck.Result{Servers: []clockcheck.Server{{Addr: "a:1"}, {Addr: "b:1", Offset: c.offset}}, Spread: c.spread})
		if f.Outcome != c.want || (f.Do == "") != (c.want == levelOK) {
			t.Errorf("offset %v, spread %v: %+v, want %s", c.offset, c.spread, f, c.want)
		}
	}
}

// A server that does not answer gets one line, and the status of one that is out of reach. A command that is never
// answered costs its check's time, and the other checks are made. Nothing hangs.
func TestDoctorIsBounded(t *testing.T) {
	for command, check := range map[string]string{
		"hello": checkServer, "connectionStatus": "rights", "findAndModify": "probe", "update": "writes", "find": "notices", "delete": checkLeft,
	} {
		inBubble(t, command, func(t *testing.T) {
			w := newWard(t, wardURI)
			w.answer(command, func(bson.Raw) bson.D { return mongofake.Silent })
			began := time.Now()
			all, got := w.found(t)
			f := all[check]
			if want := "within 10s"; !strings.Contains(f.Found, "answer") && !strings.Contains(f.Found, "delete") || f.Outcome == levelOK {
				t.Errorf("%s: %s %q, want a failure with %q", check, f.Outcome, f.Found, want)
			}
			want, status := len(w.checks()), exitDoctor
			if check == checkServer {
				want, status = 1, exitUnreachable
			} else if check == checkLeft {
				status = 0
			}
			if len(all) != want || got.status != status {
				t.Errorf("%d findings and status %d, want %d and %d:\n%s", len(all), got.status, want, status, got.out)
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("the checks took %v though each may take 10s, and at most two of them wait for %s", took, command)
			}
		})
	}
}

// An interrupt ends the check that is running, and no other begins. What was written is removed.
func TestDoctorInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, wardURI)
		ctx, cancel := context.WithCancel(t.Context())
		updates := 0
		w.answer("update", func(bson.Raw) bson.D {
			if updates++; updates < 5 { // the measurement has begun
				return nil
			}
			cancel()
			return mongofake.Silent
		})
		began := time.Now()
		got := w.run(ctx, false)
		lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
		if got.status != exitInterrupted || len(lines) != len(w.checks())-1 || !strings.HasPrefix(lines[len(lines)-1], "ok    left     records removed: 4") {
			t.Errorf("%+v, want all checks but the interrupted one, and status %d", got, exitInterrupted)
		}
		if took := time.Since(began); took > 2*cleanUpTime {
			t.Errorf("the doctor ended %v after the interrupt", took)
		}
	})
}

// The doctor writes records of its own, and removes each of them. It leaves no session and no hold behind.
func TestDoctorRemovesWhatItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, wardURI)
		removed := make(map[string]bool)
		w.answer("delete", func(cmd bson.Raw) bson.D {
			for _, id := range writes("delete", cmd) {
				removed[id] = true
			}
			alone(t, w.mem) // the sessions have been closed
			return nil
		})
		if _, got := w.found(t); got.status != 0 {
			t.Errorf("%+v, want status 0", got)
		}
		want := []string{"leasehold k/leasehold-doctor/" + w.id, "leasehold p/doctor/" + w.id}
		sessions := 0
		for id := range removed {
			if strings.HasPrefix(id, "leasehold s/") {
				sessions++
			} else if !slices.Contains(want, id) {
				t.Errorf("removed %q, want only this run's records", id)
			}
		}
		for _, id := range want {
			if !removed[id] {
				t.Errorf("did not remove %q", id)
			}
		}
		if sessions != 2 {
			t.Errorf("removed the records of %d sessions, want 2", sessions)
		}
		for _, id := range w.sent {
			if !removed[id] {
				t.Errorf("wrote %q and did not remove it", id)
			}
		}
		states, err := w.mem.Keys(t.Context(), driver.KeyQuery{Limit: 10})
		if err != nil || len(states) != 1 || states[0].Key != "leasehold-doctor/"+w.id || len(states[0].Holders) > 0 || states[0].Waiting > 0 {
			t.Errorf("keys %+v, %v; want the doctor's, free", states, err)
		}
	})
}
