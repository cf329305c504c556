// Workers calls the URLs in its arguments. The service behind them allows the whole fleet only three calls at a time.
// Start the program several times, and kill some:
//
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/workers URL…
//
// An errgroup limits the workers in each process, and a semaphore limits the calls of all
// processes together. Waiters get slots in FIFO order. A crashed process's slots become free
// after its TTL. A worker that can't reach the server for that long loses its slot. Its call is
// cancelled before another worker gets the slot, and is repeated once the worker has a new
// slot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

func main() {
	db := flag.String("db", "leasehold_examples", "the database")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := dsyncmongo.Connect(ctx, options.Client().ApplyURI(os.Getenv("MONGODB_URI")), *db,
		&dsyncmongo.Options{Session: dsync.Options{TTL: 10 * time.Second}})
	if err != nil {
		log.Fatal(err)
	}
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(4)
	for _, url := range flag.Args() {
		workers.Go(func() error { return work(ctx, locks, 3, func(ctx context.Context) error { return get(ctx, url) }) })
	}
	err = workers.Wait()
	locks.Close(context.WithoutCancel(ctx))
	if err != nil {
		log.Fatal(err)
	}
}

// work makes a call while it holds a slot. All processes must pass the same number of slots.
func work(ctx context.Context, locks *dsync.Session, slots int64, call func(context.Context) error) error {
	service := locks.Semaphore("service", slots)
	for {
		slot, err := service.Hold(ctx, 1)
		if err != nil {
			return err
		}
		err = call(slot.Context(ctx))
		released := slot.Release(context.WithoutCancel(ctx))
		if err == nil || !errors.Is(released, dsync.ErrLost) {
			return err
		}
		slog.Warn("the slot was lost; repeating the call", "err", err)
	}
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	slog.Info("done", "job", url)
	return nil
}
