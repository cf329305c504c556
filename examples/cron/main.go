// Cron is a job that is due on every host of a fleet, by each host's own clock, and runs on one.
// Start it several times, and kill some:
//
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/cron
//
// Each host tries to lock at the tick. If the host that got the lock unlocked it when the job is
// done, a host whose clock is behind would find it free and run the job again. UnlockAfter keeps it
// locked for half of the period, by the server's clock, even if the process dies. So the clocks
// may be a quarter of the period apart, and a host that is more than a quarter late skips the tick.
package main

import (
	"context"
	"errors"
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
	run(ctx, locks, *every, time.Now, func(_ context.Context, tick time.Time) {
		slog.Info("runs", "tick", tick.UTC().Format(time.TimeOnly)) // the job
	})
}

// run calls job at each tick at which this host is the first, until ctx ends. now is the host's clock.
func run(ctx context.Context, locks *dsync.Session, every time.Duration, now func() time.Time,
	job func(context.Context, time.Time)) {
	mu := locks.Mutex("cron/report")
	for {
		tick := now().Truncate(every).Add(every)
		select {
		case <-time.After(tick.Sub(now())):
		case <-ctx.Done():
			return
		}
		if err := mu.TryLockContext(ctx); errors.Is(err, dsync.ErrHeld) {
			slog.Info("leaves", "tick", tick.UTC().Format(time.TimeOnly), "to", err)
			continue
		} else if err != nil {
			slog.Error("can't lock", "err", err)
			continue
		}
		began := time.Now()
		if now().Sub(tick) > every/4 { // another may have run it, so long ago that the lock is free again
			mu.Unlock()
			continue
		}
		held, cancel := mu.Context(ctx) // ends when the lock is lost
		job(held, tick)
		cancel()
		keep := max(every/2-time.Since(began), time.Millisecond)
		if err := mu.UnlockAfter(context.WithoutCancel(ctx), keep); err != nil {
			slog.Error("can't keep the lock", "err", err)
		}
	}
}
