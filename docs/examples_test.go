package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"github.com/leasehold-go/leasehold/leader"
)

// The pages in docs show this code: see TestCodeIsFromExamples.

// Functions that need a server are only compiled.
var _ = []any{pay}

// process returns a new session on store, which stands for a process of the given name.
func process(store *dsynctest.Memory, name string) *dsync.Session {
	s, err := dsync.New(store, &dsync.Options{Name: name, AlwaysListen: true})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// pay is a fenced write.
func pay(ctx context.Context, db *mongo.Database, mu *dsync.Mutex) error {
	orders := fence.New(db.Collection("orders"), nil)
	_, err := orders.UpdateOne(ctx, mu.Token(), bson.D{{Key: "_id", Value: 7}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "paid", Value: true}}}})
	if errors.Is(err, fence.ErrStale) {
		return err // this hold is over, so nothing was written
	}
	return err
}

func Example_progress() {
	locks, ctx := process(dsynctest.NewMemory(), "a"), context.Background()
	defer locks.Close(ctx)
	batches := []string{"first", "second"}
	load := func(_ context.Context, batch string) error { fmt.Println(batch); return nil }
	if err := func() error {
		return locks.Mutex("import").Do(ctx, func(ctx context.Context) error {
			for _, batch := range batches {
				if err := dsync.HoldFrom(ctx).Progress(time.Minute); err != nil {
					return err // the lock is lost
				}
				if err := load(ctx, batch); err != nil { // takes seconds, unless it hangs
					return err
				}
			}
			return nil
		})
	}(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// first
	// second
}

func Example_stopWithoutRelease() {
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "all-cron-jobs", nil)
	ctx, stop := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, stop)

	err := election.Run(ctx, func(ctx context.Context) error {
		<-ctx.Done() // SIGTERM, with signal.NotifyContext
		return election.ResignAfter(ctx, 10*time.Second)
	})
	fmt.Println(err)
	_, err = election.TryCampaign(context.Background())
	fmt.Println("held:", errors.Is(err, dsync.ErrHeld))
	// Output:
	// context canceled
	// held: true
}
