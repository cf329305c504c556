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

// A holder is frozen, loses the lock, and then tries to write. Only the write of the new holder is applied.
func ExampleCollection() {
	ctx := context.Background()
	store := dsynctest.NewMemory() // a program gets its session from Open
	db, done := oneOrder()         // and uses its own database
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

	// The first process resumes, and does not know that it has lost the lock.
	pay("the first", token)
	mu.Unlock()

	// Output:
	// the second paid
	// the first is too late
}

// A holder reads an order and decides what to write. RaiseToken comes first, so that no earlier holder
// can write in between.
func ExampleCollection_RaiseToken() {
	ctx := context.Background()
	db, done := oneOrder() // a program uses its own database
	defer done()
	orders := fence.New(db.Collection("orders"), &fence.Options{Field: "fence"}) // the default
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	earlier, _ := locks.Mutex("order 7").Hold(ctx)
	late := earlier.Token()
	earlier.Release(ctx)

	order7 := bson.D{{Key: "_id", Value: 7}}
	err := locks.Mutex("order 7").Do(ctx, func(ctx context.Context) error {
		_, err := orders.RaiseToken(ctx, dsync.HoldFrom(ctx).Token(), order7)
		return err // and then the program reads the order, and writes it
	})
	if err != nil {
		log.Fatal(err)
	}

	_, err = orders.RaiseToken(ctx, late, order7)
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		fmt.Printf("%s %v has seen a greater token: %t\n", stale.Collection, stale.ID, stale.Seen > stale.Token)
	}
	// Output: orders {"$numberInt":"7"} has seen a greater token: true
}

// Every write to an order, from its insert to its deletion, carries the token of its lock.
func ExampleCollection_InsertOne() {
	ctx := context.Background()
	db, done := anyOrders() // a program uses its own database
	defer done()
	orders := fence.New(db.Collection("orders"), nil)
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	order7 := bson.D{{Key: "_id", Value: 7}}
	err := locks.Mutex("order 7").Do(ctx, func(ctx context.Context) error {
		token := dsync.HoldFrom(ctx).Token()
		if _, err := orders.InsertOne(ctx, token, append(order7, bson.E{Key: "state", Value: "new"})); err != nil {
			return err
		}
		replaced, err := orders.ReplaceOne(ctx, token, order7, bson.D{{Key: "state", Value: "cancelled"}})
		if err != nil {
			return err
		}
		deleted, err := orders.DeleteOne(ctx, token, order7)
		if err != nil {
			return err
		}
		fmt.Println("replaced", replaced.MatchedCount, "and deleted", deleted.DeletedCount)
		return nil
	})
	fmt.Println(err)
	// Output:
	// replaced 1 and deleted 1
	// <nil>
}

// anyOrders returns a database in which each write finds its document, and a function that disconnects its client.
func anyOrders() (*mongo.Database, func()) {
	return database(func(call) bson.D { return ok(e("n", 1), e("nModified", 1)) })
}

// oneOrder returns a database with one document, and a function that disconnects its client.
func oneOrder() (*mongo.Database, func()) {
	var mu sync.Mutex
	var seen int64
	return database(func(c call) bson.D {
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
}

// database returns a database whose server answers commands with the given function, and a function that disconnects
// its client.
func database(answer func(call) bson.D) (*mongo.Database, func()) {
	f := newFake(nil)
	f.script(answer)
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
