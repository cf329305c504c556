package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A holder is frozen, loses the lock, and then tries to run its transaction. Only the transaction of the new holder
// is committed, with all its writes.
func ExampleGuard() {
	ctx := context.Background()
	store := dsynctest.NewMemory() // a program gets its session from Open
	db, done := emptyDatabase()    // and uses its own database
	defer done()
	guard := fence.NewGuard(db.Collection("guards"))

	session := func() *dsync.Session {
		s, err := dsync.New(store, &dsync.Options{TTL: time.Second})
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	ship := func(by string, token int64) {
		err := guard.Transact(ctx, "order 7", token, func(ctx context.Context) error {
			if _, err := db.Collection("parcels").InsertOne(ctx, bson.D{{Key: "by", Value: by}}); err != nil {
				return err
			}
			_, err := db.Collection("invoices").InsertOne(ctx, bson.D{{Key: "by", Value: by}})
			return err
		})
		switch {
		case errors.Is(err, fence.ErrStale):
			fmt.Println(by, "is too late")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(by, "shipped")
		}
	}

	first := session()
	defer first.Close(ctx)
	mu := first.Mutex("order 7")
	mu.Lock()
	token := mu.Token()

	// Here the first process is frozen for a minute, which is longer than its lease.
	store.Skew(time.Minute)
	second := session()
	defer second.Close(ctx)
	next := second.Mutex("order 7")
	next.Lock()
	ship("the second", next.Token())
	next.Unlock()

	// The first process resumes, and does not know that it has lost the lock.
	ship("the first", token)
	mu.Unlock()

	// Output:
	// the second shipped
	// the first is too late
}

// emptyDatabase returns a database, and a function that disconnects its client.
func emptyDatabase() (*mongo.Database, func()) {
	return database(new(guards).answer)
}
