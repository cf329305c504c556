package golangmigrate_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/leasehold-go/leasehold/adapters/golangmigrate"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A program migrates its database when it starts. It opens its session with Open of package
// dsync/mongo, has its migrations in an embed.FS, and makes the inner driver with
// mongodb.WithInstance.
func Example() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	inner, err := stub.WithInstance(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	driver, err := golangmigrate.New(inner, locks, "migrate/app", nil)
	if err != nil {
		log.Fatal(err)
	}
	source, err := iofs.New(fstest.MapFS{
		"1_users.up.json":  {Data: []byte(`[{"create": "users"}]`)},
		"2_orders.up.json": {Data: []byte(`[{"create": "orders"}]`)},
	}, ".")
	if err != nil {
		log.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "stub", driver)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Up(); err != nil && err != migrate.ErrNoChange {
		log.Fatal(err)
	}
	fmt.Println(m.Version())
	// Output: 2 false <nil>
}

// A migration takes minutes. The other processes wait for it, so Wait and the LockTimeout of migrate must be longer
// than their defaults.
func ExampleOptions() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	inner, err := stub.WithInstance(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	driver, err := golangmigrate.New(inner, locks, "migrate/app", &golangmigrate.Options{Wait: 10 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	source, err := iofs.New(fstest.MapFS{"1_users.up.json": {Data: []byte(`[{"create": "users"}]`)}}, ".")
	if err != nil {
		log.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "stub", driver)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.LockTimeout = 10*time.Minute + 10*time.Second
	if err := m.Up(); err != nil && err != migrate.ErrNoChange {
		log.Fatal(err)
	}
	fmt.Println(m.Version())
	// Output: 1 false <nil>
}
