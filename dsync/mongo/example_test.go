package mongo_test

import (
	"context"
	"fmt"
	"log"
	"time"

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
