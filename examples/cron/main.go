// Cron runs a job on only one host of a fleet, although each host schedules the job by its own clock. Start it
// several times, and kill some:
//
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/cron
//
// Each host calls Do with the tick, which is the time at which the job is due. All hosts compute
// the same tick, even if their clocks differ. One host runs the job. The others wait until it has
// succeeded; if the job fails, or its host dies, another host runs the job. A host that comes
// late finds that the tick is already done.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	db := flag.String("db", "leasehold_examples", "the database")
	every := flag.Duration("every", 4*time.Second, "how often the job is due")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := dsyncmongo.Connect(ctx, options.Client().ApplyURI(os.Getenv("MONGODB_URI")), *db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(ctx))
	run(ctx, locks, *every, time.Now, func(_ context.Context, tick time.Time) error {
		slog.Info("runs", "tick", tick.UTC().Format(time.TimeOnly)) // put the job's work here
		return nil
	})
}

// Until ctx ends, run waits for each tick and calls job, unless another host runs the job for that tick successfully.
// The argument now is a function that reads the host's clock.
func run(ctx context.Context, locks *dsync.Session, every time.Duration, now func() time.Time,
	job func(context.Context, time.Time) error) {
	report := locks.Periodic("cron/report")
	for {
		tick := now().Truncate(every).Add(every)
		select {
		case <-time.After(tick.Sub(now())):
		case <-ctx.Done():
			return
		}
		ran, err := report.Do(ctx, tick, func(ctx context.Context) error { // ctx ends if the hold is lost
			return job(ctx, tick)
		})
		if err != nil {
			slog.Error("the job failed or could not be run", "tick", tick.UTC().Format(time.TimeOnly), "ran", ran, "err", err)
		} else if !ran {
			slog.Info("leaves", "tick", tick.UTC().Format(time.TimeOnly))
		}
	}
}
