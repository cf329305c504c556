package certmagic_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"

	dsynccertmagic "github.com/leasehold-go/leasehold/adapters/certmagic"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Processes share a directory that contains the certificates, and a database that contains the locks. A program opens
// its session on that database with Open of package dsync/mongo.
func Example() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	locker, err := dsynccertmagic.NewLocker(locks, nil)
	if err != nil {
		log.Fatal(err)
	}
	storage := locker.Storage(&certmagic.FileStorage{Path: os.TempDir()})
	certmagic.Default.Storage = storage // then call certmagic.HTTPS, for example

	// certmagic does this around everything that only one process may do at a time:
	if err := storage.Lock(context.Background(), "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("locked")
	if err := storage.Unlock(context.Background(), "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	// Output: locked
}

// Two programs share a database, but each has certificates and locks of its own.
func ExampleOptions() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	for _, program := range []string{"shop", "blog"} {
		locker, err := dsynccertmagic.NewLocker(locks, &dsynccertmagic.Options{Prefix: program + "/certmagic/"})
		if err != nil {
			log.Fatal(err)
		}
		if err := locker.Lock(context.Background(), "issue_cert_example.com"); err != nil {
			log.Fatal(err)
		}
		fmt.Println("locked for the", program)
	}
	// Output:
	// locked for the shop
	// locked for the blog
}
