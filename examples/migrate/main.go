// Migrate is a service whose processes begin with a migration of the database: one of
// them migrates, the others wait for its result, and those that start later find it.
//
//	go run ./examples/migrate
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/migrate
//
// A Once is not for one run of a program but forever: the second time, the program only prints
// the migration's result. If the migrating process dies, a waiting one goes on where it stopped,
// when the dead process's TTL is over. So a migration must not do again what was done already.
// Here each row is inserted unless it exists, and has the token of the run.
//
// Without a server three processes are played in this one. With one, start the program
// several times, and kill the one that migrates.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
)

// plans are the rows of the new table.
var plans = []string{"free", "hobby", "team", "business", "campus", "enterprise"}

func main() {
	f := newFleet()
	pause := flag.Duration("pause", 500*time.Millisecond, "how long a row takes")
	flag.Parse()
	untilSignal(func(ctx context.Context) error {
		if f.uri == "" {
			return run(ctx, f, &memory{}, *pause, os.Stdout)
		}
		client, err := mongo.Connect(options.Client().ApplyURI(f.uri))
		if err != nil {
			return err
		}
		defer client.Disconnect(context.WithoutCancel(ctx))
		return run(ctx, f, &collection{client.Database(f.db).Collection("plans")}, *pause, os.Stdout)
	})
}

// run has each process begin with the migration.
func run(ctx context.Context, f *fleet, t table, pause time.Duration, out io.Writer) error {
	return f.run(ctx, out, func(ctx context.Context, p *process) error { return start(ctx, p, t, pause) })
}

// start begins a process of the service.
func start(ctx context.Context, p *process, t table, pause time.Duration) error {
	result, err := p.locks.Once("migration 7: plans").DoValue(ctx, func(ctx context.Context) ([]byte, error) {
		p.log.Info("migrates", "token", dsync.OnceToken(ctx))
		if err := migrate(ctx, t, pause); err != nil {
			return nil, err
		}
		return fmt.Appendf(nil, "%d plans, by %s", len(plans), p.name), nil
	})
	if err != nil {
		return err // also ErrLost: then the run did not count, and another begins
	}
	p.log.Info("starts", "migration", string(result))
	return nil
}

// migrate fills the table. ctx ends when the hold is lost, at least the session's grace
// before another can begin.
func migrate(ctx context.Context, t table, pause time.Duration) error {
	for _, plan := range plans {
		if err := t.insert(ctx, plan, dsync.OnceToken(ctx)); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
