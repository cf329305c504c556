package bench_test

import (
	"context"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// BenchmarkLockUnlock is an uncontended Lock and Unlock: on the store in memory,
// which leaves the cost of this library, and on a server beside two raw majority
// writes.
func BenchmarkLockUnlock(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		store := dsynctest.NewMemory()
		s, err := dsync.New(store, &dsync.Options{Retention: -1})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close(context.Background())
		mu := s.Mutex("k")
		turn(mu)
		before := store.Counts()
		b.ReportAllocs()
		for b.Loop() {
			turn(mu)
		}
		d := store.Counts().Since(before)
		d.Commands[dsynctest.MethodHeartbeat] = 0
		b.ReportMetric(float64(d.Total())/float64(b.N), "commands/op")
	})
	b.Run("server", func(b *testing.B) {
		db := database(b)
		b.Run("mutex", func(b *testing.B) {
			s, err := dsyncmongo.Open(context.Background(), db, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(context.Background())
			mu := s.Mutex("k")
			turn(mu)
			for b.Loop() {
				turn(mu)
			}
		})
		b.Run("two raw majority writes", func(b *testing.B) {
			ctx := context.Background()
			inc := bson.D{
				{Key: "update", Value: "raw"},
				{Key: "updates", Value: bson.A{bson.D{
					{Key: "q", Value: bson.D{{Key: "_id", Value: 1}}},
					{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}},
					{Key: "upsert", Value: true},
				}}},
				{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
			}
			for b.Loop() {
				for range 2 {
					if err := db.RunCommand(ctx, inc).Err(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	})
}

func turn(mu *dsync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
}

// database returns a database of the server at MONGODB_URI, dropped at the end.
func database(b *testing.B) *mongo.Database {
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		b.Skip("MONGODB_URI is not set")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		b.Fatal(err)
	}
	db := client.Database("leasehold_bench")
	b.Cleanup(func() {
		db.Drop(context.Background())
		client.Disconnect(context.Background())
	})
	return db
}
