package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A holder is frozen, loses the lock, and writes all the same. Of the two writes
// only that of the present holder is applied.
func ExampleCollection() {
	ctx := context.Background()
	store := dsynctest.NewMemory() // for a program it is Open that makes the session
	db, done := oneOrder()         // and the database is its own
	defer done()
	orders := fence.New(db.Collection("orders"), nil)

	session := func() *dsync.Session {
		s, err := dsync.New(store, &dsync.Options{TTL: time.Second})
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	pay := func(by string, token int64) {
		_, err := orders.UpdateOne(ctx, token,
			bson.D{{Key: "_id", Value: 7}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "paidBy", Value: by}}}})
		switch {
		case errors.Is(err, fence.ErrStale):
			fmt.Println(by, "is too late")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(by, "paid")
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
	pay("the second", next.Token())
	next.Unlock()

	// It goes on, and knows of nothing.
	pay("the first", token)
	mu.Unlock()

	// Output:
	// the second paid
	// the first is too late
}

// oneOrder is a database with one document, and what disconnects from it.
func oneOrder() (*mongo.Database, func()) {
	var mu sync.Mutex
	var seen int64
	f := newFake(nil)
	f.script(func(c call) bson.D {
		mu.Lock()
		defer mu.Unlock()
		if c.name == "find" {
			order := bson.D{e("_id", 7), e("fence", seen)}
			return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.orders"), e("firstBatch", bson.A{order})}))
		}
		n := 0
		if token := c.cmd.Lookup("updates", "0", "u", "$max", "fence").Int64(); token >= seen {
			n, seen = 1, token
		}
		return ok(e("n", n), e("nModified", n))
	})
	client, err := mongo.Connect(f.ClientOptions())
	if err != nil {
		log.Fatal(err)
	}
	return client.Database("app"), func() {
		f.End()
		_ = client.Disconnect(context.Background())
		f.Wait()
	}
}
