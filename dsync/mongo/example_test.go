package mongo_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The examples need a server, so they are compiled here and not run.

func ExampleOpen() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()

	locks, err := dsyncmongo.Open(ctx, client.Database("app"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locks.Close(ctx) }()

	mu := locks.Mutex("invoices")
	mu.Lock()
	defer mu.Unlock()
	fmt.Println("no other process sends invoices now")
}

// This program uses its own client. A PrimaryWatch lets its waiters follow a fail-over at once, and a ClockCheck
// makes Open fail on a host whose clock is off.
func ExamplePrimaryWatch() {
	ctx := context.Background()
	watch := new(dsyncmongo.PrimaryWatch)
	opt := options.Client().ApplyURI("mongodb://localhost:27017").SetServerMonitor(watch.ServerMonitor(nil))
	client, err := mongo.Connect(opt)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()

	locks, err := dsyncmongo.Open(ctx, client.Database("app"), &dsyncmongo.Options{
		PrimaryWatch: watch,
		ClockCheck:   &clockcheck.Options{Servers: opt},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locks.Close(ctx) }()
}

// These options suit thousands of processes. Most of them lock once a day and can wait; some hand a lock to each
// other all the time.
func ExampleOptions() {
	ctx := context.Background()
	opt := dsyncmongo.Options{NoticeCollections: 256}
	if os.Getenv("ROLE") == "nightly" {
		opt.PollOnly = true // uses no connection for listening
		opt.Session.PollInterval = 10 * time.Second
	}
	locks, err := dsyncmongo.Connect(ctx, options.Client().ApplyURI("mongodb://localhost:27017"), "app", &opt)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locks.Close(ctx) }()
}

func ExampleConnect() {
	ctx := context.Background()
	locks, err := dsyncmongo.Connect(ctx,
		options.Client().ApplyURI("mongodb://localhost:27017"), "app",
		&dsyncmongo.Options{
			Collection: "locks",
			Session:    dsync.Options{TTL: 10 * time.Second, App: "billing 1.4"},
		})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locks.Close(ctx) }()

	err = locks.Mutex("invoices").Do(ctx, func(ctx context.Context) error {
		fmt.Println("no other process sends invoices now")
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
