package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratemongodb "github.com/golang-migrate/migrate/v4/database/mongodb"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	mongov1 "go.mongodb.org/mongo-driver/mongo"
	optionsv1 "go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasehold-go/leasehold/adapters/golangmigrate"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// migrations are in the format of golang-migrate's MongoDB driver: commands in extended JSON. The
// insert fails if it is run twice.
var migrations = fstest.MapFS{
	"1_collection.up.json": {Data: []byte(`[{"create": "migrated"}]`)},
	"2_document.up.json":   {Data: []byte(`[{"insert": "migrated", "documents": [{"_id": 1}]}]`)},
}

// B19: a process that holds golang-migrate's own lock is killed. After that, no process can ever get the lock, or open
// a driver with Locking.Enabled. With adapters/golangmigrate the lock becomes free when the TTL has run out, and one of
// three waiting sessions runs the migrations.
func TestGolangMigrate(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(3 * time.Second)
		killed := func(how string) {
			a := r.args(opt)
			a.How = how
			p := proc.Start(t, "migrating", a)
			p.Await("locked")
			p.Kill()
		}

		killed("own")
		time.Sleep(2 * opt.TTL)
		if _, err := migrateDriver(t.Context(), r.URI, r.DB, true); !errors.Is(err, database.ErrLocked) {
			t.Errorf("a driver with golang-migrate's own lock, whose process was killed: %v, want ErrLocked", err)
		}

		killed("")
		start := time.Now()
		var mu sync.Mutex
		results := map[error]int{}
		var wg sync.WaitGroup
		for range 3 {
			inner, err := migrateDriver(t.Context(), r.URI, r.DB, false)
			noErr(t, err)
			d, err := golangmigrate.New(inner, r.session(r.short(patient)), "migrate", &golangmigrate.Options{Wait: time.Minute})
			noErr(t, err)
			source, err := iofs.New(migrations, ".")
			noErr(t, err)
			m, err := migrate.NewWithInstance("iofs", source, "mongodb", d)
			noErr(t, err)
			m.LockTimeout = 2 * time.Minute
			wg.Go(func() {
				err := m.Up()
				mu.Lock()
				defer mu.Unlock()
				results[err]++
			})
			defer m.Close()
		}
		wg.Wait()
		if results[nil] != 1 || results[migrate.ErrNoChange] != 2 {
			t.Errorf("Up returned %v, want nil once and ErrNoChange twice", results)
		}
		lab.Note(t, "three calls of Up have returned %v after the holder was killed, TTL %v", time.Since(start).Round(time.Millisecond), opt.TTL)
		if n, err := r.Client(t).Database(r.DB).Collection("migrated").CountDocuments(t.Context(), bson.D{}); n != 1 || err != nil {
			t.Errorf("%d documents, %v, want 1", n, err)
		}
	})
}

// migrating is a child that acquires golang-migrate's own lock, or a session's lock, and waits to be killed.
func migrating(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	d, err := migrateDriver(context.Background(), a.URI, a.DB, a.How == "own")
	if err != nil {
		env.Fatal(err)
	}
	if a.How != "own" {
		if d, err = golangmigrate.New(d, a.session(env, nil), "migrate", nil); err != nil {
			env.Fatal(err)
		}
	}
	if err := d.Lock(); err != nil {
		env.Fatal(err)
	}
	env.Emit(proc.Event{Name: "locked"})
	select {}
}

// migrateDriver returns golang-migrate's driver for MongoDB, with or without its own lock. It uses
// a new client, which Close disconnects.
func migrateDriver(ctx context.Context, uri, db string, locking bool) (database.Driver, error) {
	client, err := mongov1.Connect(ctx, optionsv1.Client().ApplyURI(uri))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	d, err := migratemongodb.WithInstance(client, &migratemongodb.Config{
		DatabaseName: db,
		Locking:      migratemongodb.Locking{Enabled: locking, Timeout: 2, Interval: 1},
	})
	if err != nil {
		_ = client.Disconnect(ctx)
		return nil, err
	}
	return d, nil
}
