package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A Lab holds the servers for one run of the test binary, and a book of what ran on them. When
// the first test needs a server, the Lab looks for:
//
//  1. MONGODB_URI;
//  2. mongod on PATH: it starts a replica set of three and a standalone. If mongos is on PATH,
//     too, it also starts a sharded cluster;
//  3. Docker: it starts one container of the image that the environment names.
//
// It uses the first kind that it finds. If LEASEHOLD_SERVERS is "all", it uses every kind that it finds. If
// LEASEHOLD_SERVERS is a list of kinds ("mongod,docker"), it uses these, and they must be available.
type Lab struct {
	Seed uint64 // seed of all random numbers: LEASEHOLD_SEED, or 1

	mongod string // path of the program, "" if not on PATH
	mongos string
	image  Image

	start   sync.Once
	servers []*Server
	looked  []string // why other kinds of servers were not found
	err     error    // why a required server could not be started

	book book
}

// New reads the environment. It starts no servers yet.
func New() *Lab {
	l := &Lab{image: imageFromEnv(), Seed: 1}
	if s := os.Getenv("LEASEHOLD_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			l.err = fmt.Errorf("LEASEHOLD_SEED: %w", err)
		}
		l.Seed = seed
	}
	l.mongod, _ = exec.LookPath("mongod")
	l.mongos, _ = exec.LookPath("mongos")
	return l
}

// LastRun is the path of the file with the last run's table.
const LastRun = "logs/last.txt"

// Main runs the tests, stops the servers that the Lab started, and prints the table, which go test
// shows only with -v. Pass Main's result to os.Exit.
func (l *Lab) Main(m *testing.M) int {
	flag.Parse()
	if !given("test.parallel") {
		// Tests mostly wait, so run several per core. With more than six, leases of a second or two get
		// lost on a busy machine. With FerretDB in a container, three per core were too many: no
		// heartbeat got through for nine seconds.
		perCore := 6
		if l.mongod == "" && os.Getenv("MONGODB_URI") == "" {
			perCore = 2
		}
		flag.Set("test.parallel", strconv.Itoa(perCore*runtime.GOMAXPROCS(0)))
	}
	code := m.Run()
	for _, s := range l.servers {
		if s.stop != nil {
			s.stop()
		}
	}
	table := l.book.table(l)
	fmt.Println(table)
	for _, path := range []string{os.Getenv("LEASEHOLD_LOG"), LastRun} {
		if path == "" || len(l.book.suites) == 0 {
			continue
		}
		if err := l.writeLog(path, table, code); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if inCI() && !l.book.touched() {
		fmt.Fprintln(os.Stderr, "FAIL: no test in this run used a server, though CI is set")
		code = max(code, 1)
	}
	return code
}

// given(name) reports whether the command line contains the flag.
func given(name string) (yes bool) {
	flag.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}

func inCI() bool { return os.Getenv("CI") != "" }

// Servers returns the servers of this run. Without a server the test is skipped or, in CI, fails.
func (l *Lab) Servers(t testing.TB) []*Server {
	t.Helper()
	l.start.Do(func() {
		// go test can't know which servers exist, so it would reuse the cached result of another run.
		// Reading the file LastRun, which every run changes, prevents that.
		os.ReadFile(LastRun)
		l.find()
	})
	if l.err != nil {
		t.Fatal(l.err)
	}
	if len(l.servers) == 0 {
		why := "no server to test on: " + strings.Join(l.looked, "; ")
		if inCI() {
			l.book.put(t.Name(), nowhere, cell{outcome: "FAIL"})
			t.Fatal(why)
		}
		l.Skip(t, nil, why)
	}
	return l.servers
}

// Skip skips the test and records the reason in the table. If s is not nil, it skips only the part
// on s.
func (l *Lab) Skip(t testing.TB, s *Server, why string) {
	t.Helper()
	suite, name := t.Name(), nowhere
	if s != nil {
		suite, name = strings.TrimSuffix(suite, "/"+s.Name), s.Name
	}
	l.book.put(suite, name, cell{outcome: "skip", why: why})
	t.Skip(why)
}

// Each runs f as a parallel subtest on every server that meets the need. It returns before the
// subtests end, so a test should call it last.
func (l *Lab) Each(t *testing.T, need Need, f func(t *testing.T, s *Server)) {
	t.Helper()
	l.on(t, l.having(t, need), f)
}

// One is like Each, but runs f on only one of the servers; the test's name determines which. Use it for long tests that
// hardly depend on the topology, such as tests of hanging processes. If LEASEHOLD_LONG is set, One does the same as
// Each.
func (l *Lab) One(t *testing.T, need Need, f func(t *testing.T, s *Server)) {
	t.Helper()
	servers := l.having(t, need)
	if !testkit.Long() {
		mine := int(crc32.ChecksumIEEE([]byte(t.Name())) % uint32(len(servers)))
		for i, s := range servers {
			if i != mine {
				l.book.put(t.Name(), s.Name, cell{outcome: "-", why: "ran on another server; on all with LEASEHOLD_LONG"})
			}
		}
		servers = servers[mine : mine+1]
	}
	l.on(t, servers, f)
}

// having returns the servers that meet the need. If no server does, it skips the test.
func (l *Lab) having(t *testing.T, need Need) []*Server {
	t.Helper()
	var why []string
	var servers []*Server
	for _, s := range l.Servers(t) {
		if missing := need.missing(s); missing != "" {
			l.book.put(t.Name(), s.Name, cell{outcome: "-", why: missing})
			why = append(why, s.Name+": "+missing)
			continue
		}
		servers = append(servers, s)
	}
	if len(servers) == 0 {
		t.Skip(strings.Join(why, "; "))
	}
	return servers
}

func (l *Lab) on(t *testing.T, servers []*Server, f func(t *testing.T, s *Server)) {
	t.Helper()
	for _, s := range servers {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			t.Cleanup(func() {
				l.book.put(strings.TrimSuffix(t.Name(), "/"+s.Name), s.Name, cell{outcome: outcome(t), took: time.Since(begin)})
			})
			f(t, s)
		})
	}
}

func outcome(t *testing.T) string {
	switch {
	case t.Failed():
		return "FAIL"
	case t.Skipped():
		return "skip"
	}
	return "ok"
}

// Note adds a line, such as a measurement, below the table.
func (l *Lab) Note(t testing.TB, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	l.book.note(t.Name() + ": " + line)
}

// Start starts a replica set or a standalone for one test and stops it at the end of the test.
func (l *Lab) Start(t testing.TB, spec mongod.Spec) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := l.startMongod(ctx, "own", spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// StartContainer starts a container for one test and removes it at the end of the test. An isolated
// one can be killed, restarted and disconnected.
func (l *Lab) StartContainer(t testing.TB, isolated bool) (*Server, *Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, c, err := l.startDocker(ctx, isolated)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s, c
}

// find sets l.servers, l.looked and l.err.
func (l *Lab) find() {
	if l.err != nil {
		return
	}
	kinds := []string{"uri", "mongod", "docker"}
	first, must := true, false
	switch want := os.Getenv("LEASEHOLD_SERVERS"); want {
	case "", "first":
	case "all":
		first = false
	default:
		first, must = false, true
		kinds = strings.Split(want, ",")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, kind := range kinds {
		servers, err := l.findKind(ctx, strings.TrimSpace(kind))
		l.servers = append(l.servers, servers...)
		var none *notHere
		switch {
		case err == nil && first:
			return
		case err == nil:
		case errors.As(err, &none) && !must:
			l.looked = append(l.looked, none.why)
		default:
			l.err = fmt.Errorf("server %q: %w", kind, err)
			return
		}
	}
}

// notHere is the error if a kind of server is not available on this machine.
type notHere struct{ why string }

func (e *notHere) Error() string { return e.why }

func (l *Lab) findKind(ctx context.Context, kind string) ([]*Server, error) {
	switch kind {
	case "uri":
		uri := os.Getenv("MONGODB_URI")
		if uri == "" {
			return nil, &notHere{"MONGODB_URI is not set"}
		}
		s := &Server{Name: "uri", URI: uri}
		if err := s.inspect(ctx); err != nil {
			return nil, fmt.Errorf("MONGODB_URI: %w", err)
		}
		return []*Server{s}, nil

	case "mongod":
		if l.mongod == "" {
			return nil, &notHere{"no mongod on PATH"}
		}
		var servers [3]*Server
		var errs [3]error
		var all sync.WaitGroup
		all.Go(func() { servers[0], errs[0] = l.startMongod(ctx, "replset", mongod.Spec{Members: 3}) })
		all.Go(func() { servers[1], errs[1] = l.startMongod(ctx, "standalone", mongod.Spec{}) })
		if l.mongos == "" {
			l.looked = append(l.looked, "no mongos on PATH")
		} else {
			all.Go(func() { servers[2], errs[2] = l.startCluster(ctx, "sharded", mongod.ClusterSpec{}) })
		}
		all.Wait()
		return slices.DeleteFunc(servers[:], func(s *Server) bool { return s == nil }), errors.Join(errs[:]...)

	case "docker":
		s, _, err := l.startDocker(ctx, false)
		if err != nil {
			return nil, &notHere{err.Error()}
		}
		return []*Server{s}, nil
	}
	return nil, fmt.Errorf("LEASEHOLD_SERVERS: unknown kind; it must be first, all, or a list of uri, mongod and docker")
}

// startMongod starts mongods that use little memory, because many sets run at the same time.
func (l *Lab) startMongod(ctx context.Context, name string, spec mongod.Spec) (*Server, error) {
	spec.Args = append(small(), spec.Args...)
	if spec.Members > 0 {
		spec.Args = append(spec.Args, "--oplogSize", "64")
	}
	set, err := mongod.Start(ctx, l.mongod, spec)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, URI: set.URI(), set: set, stop: set.Stop}
	s.has.Binary = true
	s.has.Members = spec.Members > 1
	if err := s.inspect(ctx); err != nil {
		set.Stop()
		return nil, err
	}
	return s, nil
}

// small returns arguments that let many mongods run at the same time.
func small() []string {
	return []string{
		"--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
	}
}

func (l *Lab) startDocker(ctx context.Context, isolated bool) (*Server, *Container, error) {
	c, err := startContainer(ctx, l.image, isolated)
	if err != nil {
		return nil, nil, err
	}
	s := &Server{Name: "docker", URI: c.URI, stop: func() { c.Remove() }}
	s.has.Container = true
	if err := s.inspect(ctx); err != nil {
		c.Remove()
		return nil, nil, err
	}
	if s.FerretDB() {
		s.Name = "ferretdb"
	}
	return s, c, nil
}

// Rand returns a source of random numbers, which depends on the seed and on the arguments. The arguments identify the
// source's user, for example by a test's name and a number. The test binary's children have the same seed.
func (l *Lab) Rand(whose ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, whose...)
	return rand.New(rand.NewPCG(l.Seed, h.Sum64()))
}
