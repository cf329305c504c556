// Command quickstart is the program of the README: one lock, and one leader.
//
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/quickstart
package main

import (
	"context"
	"log"
	"os"

	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/leader"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	ctx := context.Background()
	opt := options.Client().ApplyURI(os.Getenv("MONGODB_URI"))
	locks, err := dsyncmongo.Connect(ctx, opt, "", nil) // once per process; "": the URI's database
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	mu := locks.Mutex("invoices") // *dsync.Mutex, a sync.Locker
	mu.Lock()                     // waits until no process holds "invoices"
	log.Print("locked, with fencing token ", mu.Token())
	mu.Unlock()

	election, err := leader.New(locks, "reports", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = election.Run(ctx, func(ctx context.Context) error {
		log.Print("this process leads until ctx is cancelled")
		return nil // steps down; another process leads at once
	})
	if err != nil {
		log.Print(err)
	}
}
