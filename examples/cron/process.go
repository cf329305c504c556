package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// This file is the same in each example, so that each can be copied out of the repository
// as it is. A program of your own needs only a part of it: it calls signal.NotifyContext
// and dsyncmongo.Connect, works, and closes the session.

// played is the number of processes that are played if there is no server.
const played = 3

// A process is one of a [fleet].
type process struct {
	name  string
	index int // from 0, among those played in this one
	locks *dsync.Session
	log   *slog.Logger
}

// A fleet is the processes of the example. With a MongoDB they are the processes that
// were started, and this is one of them. Without, three goroutines play them on a store
// in memory. Make one with [newFleet].
type fleet struct {
	uri  string        // of the MongoDB, or "" if there is none
	db   string        // the database, with a URI
	name string        // of this process, with a URI
	ttl  time.Duration // of the sessions
	json bool          // log in JSON
}

// newFleet defines the flags that all examples have. Call flag.Parse before using the
// fleet.
func newFleet() *fleet {
	f := &fleet{}
	flag.StringVar(&f.uri, "uri", os.Getenv("MONGODB_URI"),
		"connection string of a MongoDB, by default $MONGODB_URI; without it several processes are played on a store in memory")
	flag.StringVar(&f.db, "db", "leasehold_examples", "the database")
	flag.StringVar(&f.name, "name", defaultName(), "the name of this process, by default $POD_NAME")
	flag.DurationVar(&f.ttl, "ttl", 10*time.Second, "how long after its last heartbeat a process is taken for dead")
	flag.BoolVar(&f.json, "json", false, "log in JSON")
	return f
}

func defaultName() string {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// untilSignal calls f and exits with status 1 if f fails. Its context ends with SIGINT and
// with SIGTERM, which Kubernetes sends to a container that should end.
func untilSignal(f func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := f(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run has each process do its work, and waits. The end of ctx is not an error.
func (f *fleet) run(ctx context.Context, out io.Writer, work func(context.Context, *process) error) error {
	var handler slog.Handler = slog.NewTextHandler(out, nil)
	if f.json {
		handler = slog.NewJSONHandler(out, nil)
	}
	if f.uri != "" {
		p := &process{name: f.name, log: slog.New(handler).With("process", f.name)}
		return f.runProcess(ctx, p, work, func(opt *dsync.Options) (*dsync.Session, error) {
			return dsyncmongo.Connect(ctx, options.Client().ApplyURI(f.uri), f.db, &dsyncmongo.Options{Options: *opt})
		})
	}
	store := dsynctest.NewMemory()
	g, ctx := errgroup.WithContext(ctx)
	for i := range played {
		name := fmt.Sprintf("process-%d", i+1)
		p := &process{name: name, index: i, log: slog.New(handler).With("process", name)}
		g.Go(func() error {
			return f.runProcess(ctx, p, work, func(opt *dsync.Options) (*dsync.Session, error) {
				return dsync.New(store, opt)
			})
		})
	}
	return g.Wait()
}

// runProcess opens p's session, does its work, and closes the session.
func (f *fleet) runProcess(ctx context.Context, p *process, work func(context.Context, *process) error,
	open func(*dsync.Options) (*dsync.Session, error)) (err error) {
	if p.locks, err = open(&dsync.Options{TTL: f.ttl, Name: p.name, Logger: p.log}); err != nil {
		return err
	}
	err = work(ctx, p)
	if end := ctx.Err(); end != nil && (errors.Is(err, end) || errors.Is(err, context.Cause(ctx))) {
		err = nil
	}
	// Close releases everything, so that the others need not wait until the TTL is over.
	// If the server does not answer now, they have to.
	if end := p.locks.Close(context.WithoutCancel(ctx)); end != nil {
		p.log.Warn("close", "err", end)
	}
	return err
}
