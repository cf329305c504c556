package golangmigrate_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/leasehold-go/leasehold/adapters/golangmigrate"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	ttl  = 10 * time.Second
	name = "migrate/app"
)

var background = context.Background()

// newSession returns a session that is closed at the end of the test.
func newSession(t testing.TB, store driver.Store) *dsync.Session {
	t.Helper()
	s, err := dsync.New(store, &dsync.Options{TTL: ttl})
	noErr(t, err)
	t.Cleanup(func() { s.Close(background) })
	return s
}

// newDriver returns a Driver on a session of its own.
func newDriver(t testing.TB, inner database.Driver, store driver.Store, opt *golangmigrate.Options) *golangmigrate.Driver {
	t.Helper()
	d, err := golangmigrate.New(inner, newSession(t, store), name, opt)
	noErr(t, err)
	return d
}

// newMigrate returns a Migrate with the given migrations, numbered from 1.
func newMigrate(t testing.TB, d database.Driver, migrations ...string) *migrate.Migrate {
	t.Helper()
	files := fstest.MapFS{}
	for i, m := range migrations {
		files[fmt.Sprintf("%d_test.up.txt", i+1)] = &fstest.MapFile{Data: []byte(m)}
	}
	source, err := iofs.New(files, ".")
	noErr(t, err)
	m, err := migrate.NewWithInstance("iofs", source, "stub", d)
	noErr(t, err)
	return m
}

// A db is a database that processes share. It is golang-migrate's stub, but its own lock must not
// be used.
type db struct {
	t    testing.TB
	step func(call string) // if not nil, called in each step

	mu      sync.Mutex
	stub    database.Driver
	calls   []string
	running bool
	closed  bool
}

func newDB(t testing.TB) *db {
	t.Helper()
	inner, err := stub.WithInstance(nil, nil)
	noErr(t, err)
	return &db{t: t, stub: inner}
}

// do records a step, and fails the test if another step runs at the same time.
func (d *db) do(call string, f func() error) error {
	d.mu.Lock()
	d.calls = append(d.calls, call)
	if d.running {
		d.t.Errorf("%q was called while another process was at work", call)
	}
	d.running = true
	d.mu.Unlock()
	if d.step != nil {
		d.step(call)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = false
	return f()
}

func (d *db) Run(migration io.Reader) error {
	script, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	return d.do("run "+string(script), func() error { return nil })
}

func (d *db) SetVersion(version int, dirty bool) error {
	return d.do(fmt.Sprintf("set %d %t", version, dirty), func() error { return d.stub.SetVersion(version, dirty) })
}

func (d *db) Drop() error { return d.do("drop", d.stub.Drop) }

func (d *db) Version() (int, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stub.Version()
}

func (d *db) Open(string) (database.Driver, error) { return newDB(d.t), nil }

func (d *db) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

func (d *db) Lock() error {
	d.t.Error("the inner driver's own lock was used")
	return nil
}

func (d *db) Unlock() error { return d.Lock() }

// wantCalls checks which steps were taken, and in which order.
func (d *db) wantCalls(want ...string) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.calls, want) {
		d.t.Errorf("the steps were %q, want %q", d.calls, want)
	}
}

// noErr ends the test if err is not nil.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
