// Migrate is a service whose processes start with a migration of the database. One process runs
// the migration, the others wait for its result, and processes that start later read that
// result. Start the program several times, and kill the process that migrates:
//
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/migrate
//
// A Once succeeds only once: when you start the program again, it only prints the result. If the migrating process
// dies, a waiting one takes over after the TTL. So a migration must skip what is already done: this one inserts a
// row, with the run's token, only if the row does not exist.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var plans = []string{"free", "hobby", "team", "business", "campus", "enterprise"} // the new rows

func main() {
	db := flag.String("db", "leasehold_examples", "the database")
	pause := flag.Duration("pause", 500*time.Millisecond, "time to spend on each row")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := dsyncmongo.Open(ctx, client.Database(*db), &dsyncmongo.Options{Session: dsync.Options{TTL: 15 * time.Second}})
	if err != nil {
		log.Fatal(err)
	}
	rows := client.Database(*db).Collection("plans")
	result, err := migrate(ctx, locks, *pause, func(ctx context.Context, plan string, token int64) error {
		_, err := rows.UpdateOne(ctx, bson.D{{Key: "_id", Value: plan}},
			bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "token", Value: token}}}}, options.UpdateOne().SetUpsert(true))
		return err
	})
	locks.Close(context.WithoutCancel(ctx))
	if err != nil {
		log.Fatal(err)
	}
	slog.Info("starts", "migration", result)
}

// migrate inserts the rows, unless an earlier run has succeeded. It returns the result of the run that succeeded. If
// the error is ErrLost, this run does not count, and another process may run the migration.
func migrate(ctx context.Context, locks *dsync.Session, pause time.Duration,
	insert func(ctx context.Context, plan string, token int64) error) (string, error) {
	result, err := locks.Once("migration 7: plans").DoValue(ctx, func(ctx context.Context) ([]byte, error) {
		token := dsync.HoldFrom(ctx).Token()
		slog.Info("migrates", "token", token)
		for _, plan := range plans {
			if err := insert(ctx, plan, token); err != nil {
				return nil, err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done(): // the hold is lost; another process can begin after the session's grace
				return nil, context.Cause(ctx)
			}
		}
		return fmt.Appendf(nil, "%d plans, with token %d", len(plans), token), nil
	})
	return string(result), err
}
