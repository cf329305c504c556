package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

func TestConnectSaysWhatIsWrong(t *testing.T) {
	const nobody = "mongodb://127.0.0.1:9/" // the discard port, on which nothing listens
	good := target{uri: nobody, collection: "c", ttl: time.Minute, timeout: time.Second}
	for _, c := range []struct {
		name   string
		change func(*target)
		status int
		want   string
	}{
		{"no server named", func(g *target) { g.uri = "" }, exitUsage, "MONGODB_URI"},
		{"bad scheme", func(g *target) { g.uri = "http://db" }, exitUsage, "--uri"},
		{"bad port", func(g *target) { g.uri = "mongodb://db:port" }, exitUsage, "--uri"},
		{"short TTL", func(g *target) { g.ttl = time.Millisecond }, exitUsage, "TTL is 1ms; it must be at least 1s"},
		{"negative TTL", func(g *target) { g.ttl = -time.Second }, exitUsage, "TTL is -1s"},
		{"negative time-out", func(g *target) { g.timeout = -1 }, exitUsage, "--connect-timeout"},
		{"bad database", func(g *target) { g.db = "a.b" }, exitFailed, "a.b"},
		{"bad collection", func(g *target) { g.collection = "$" }, exitFailed, "$"},
		{"unreachable", func(*target) {}, exitUnreachable, "no server answers at 127.0.0.1:9 within 1s: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &app{getenv: func(string) string { return "" }, target: good}
			c.change(&a.target)
			s, err := a.connect(context.Background(), dsync.Options{})
			if err == nil {
				s.Close(context.Background())
				t.Fatal("connected")
			}
			var f *failure
			if !errors.As(err, &f) || f.status != c.status {
				t.Errorf("%#v, want exit status %d", err, c.status)
			}
			if !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300 {
				t.Errorf("%q, want a short error that contains %q", err, c.want)
			}
		})
	}
}

// If a name can't be looked up, leasehold exits with the status for an unreachable server, because a retry may succeed.
// It does not exit with the status for a wrong command line.
func TestDNSFailureIsNoServer(t *testing.T) {
	old := net.DefaultResolver
	defer func() { net.DefaultResolver = old }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no DNS here")
	}}
	const want = "can't be looked up: lookup "
	for _, args := range [][]string{
		{"run", "k", "--", "true"}, {"once", "k", "--", "true"}, {"elect", "k", "--", "true"}, {"status"}, {"break", "k"}, {"forget", "k"}, {"members"}, {"clock"}, {"doctor"},
	} {
		args = append([]string{"--uri", "mongodb+srv://cluster.example.invalid/app"}, args...)
		got := command(t, nil, args...)
		if got.status != exitUnreachable || got.out != "" || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: %+v, want status %d and one line with %q", args, got, exitUnreachable, want)
		}
	}
	got := command(t, nil, "--uri", "mongodb://db.example.invalid/", "--connect-timeout", "100ms", "status")
	if got.status != exitUnreachable || !strings.Contains(got.err, "no server answers at db.example.invalid within 100ms: dial tcp: lookup ") {
		t.Errorf("with a host: %+v, want status %d and the reason", got, exitUnreachable)
	}
}

// Connection strings often name the database admin, because the users are stored there. leasehold
// refuses to keep locks in it.
func TestServersOwnDatabase(t *testing.T) {
	for _, args := range [][]string{
		{"--uri", "mongodb://db.example.invalid/admin", "run", "k", "--", "true"},
		{"--uri", "mongodb://db.example.invalid/admin", "status"},
		{"--uri", "mongodb://db.example.invalid/app", "--db", "local", "break", "k"},
		{"--uri", "mongodb://db.example.invalid/", "--db", "config", "members"},
		{"--uri", "mongodb://db.example.invalid/admin", "doctor"},
	} {
		got := command(t, nil, args...)
		if got.status != exitUsage || !strings.Contains(got.err, "which belongs to the server; name the database for the locks with --db") {
			t.Errorf("%q: %+v, want status %d and the reason", args, got, exitUsage)
		}
	}
	got := command(t, nil, "--uri", "mongodb://db.example.invalid/admin", "--connect-timeout", "50ms", "clock")
	if got.status != exitUnreachable {
		t.Errorf("clock: %+v, want no error: clock uses no database", got)
	}
}

// The heading of the page contains no password.
func TestTargetSaysWhere(t *testing.T) {
	a := &app{getenv: func(string) string { return "mongodb://me:secret@db1,db2:27018/app?replicaSet=rs0" }}
	a.target.collection, a.target.timeout = "locks", time.Second
	got, err := a.resolve()
	if want := "db1,db2:27018/app.locks"; err != nil || got.String() != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// If a connection string is malformed, no error contains part of its password, even if the driver
// mistakes that part for a host.
func TestErrorsHaveNoPasswords(t *testing.T) {
	old := net.DefaultResolver
	defer func() { net.DefaultResolver = old }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no DNS here")
	}}
	for _, uri := range []string{
		"mongodb://me:se%zzcret@h/", "mongodb://me:se/cret@h/", "mongodb://me:se:cret@h/", "mongodb://me:s@ecret@h/", "mongodb://me:s@ecret/x@h/", "mongodb://me:s@ecret:cret/x@h/",
		"mongodb://me:s@ecret:ecret:x/@h/", "mongodb+srv://me:s@ecret/x@h/", "mongodb://h/?tlsCertificateKeyFilePassword=secret%zz", "me:secret@h",
	} {
		for _, args := range [][]string{{"run", "k", "--", "true"}, {"status"}, {"break", "k"}, {"clock"}, {"doctor"}, {"serve"}} {
			got := command(t, nil, append([]string{"--connect-timeout", "100ms", "--uri", uri}, args...)...)
			if got.status != exitUsage || got.out != "" || strings.Contains(got.err, "cret") || strings.Contains(got.err, "%zz") || strings.Count(got.err, "\n") != 1 {
				t.Errorf("%s, %s: %+v, want one line without a piece of the password", uri, args[0], got)
			}
		}
	}
}

// Without --db, the database is the one in the connection string or, if there is none, "leasehold",
// as in dsyncmongo.Connect.
func TestDatabaseOfTheConnectionString(t *testing.T) {
	for _, c := range []struct{ uri, db, want string }{
		{"mongodb://db1", "", "leasehold"},
		{"mongodb://u:p%2F%40@db1,db2/?appName=a@b", "", "leasehold"},
		{"mongodb://u:p@db1/app2?w=majority", "", "app2"},
		{"mongodb://db1/app%322", "", "app22"},
		{"mongodb://db1/app2", "app3", "app3"},
	} {
		a := &app{getenv: func(string) string { return c.uri }, target: target{db: c.db, timeout: time.Second}}
		if got, err := a.resolve(); err != nil || got.db != c.want {
			t.Errorf("%q, --db %q: %q, %v, want %q", c.uri, c.db, got.db, err, c.want)
		}
	}
}
