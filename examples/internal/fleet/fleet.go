// Package fleet is what the examples have in common: it gives each process its
// session and its log. A program of your own has a few lines of it, see
// [Fleet.Run]: it opens a session, works, and closes it.
package fleet

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

// played is how many processes are played where there is no server.
const played = 3

// A Fleet is the processes of an example: with a MongoDB those that were started,
// of which this is one, else three that are played by goroutines of this one, on a
// store in memory. Make one with [Flags].
type Fleet struct {
	URI  string        // of the MongoDB; "": there is none
	DB   string        // the database, with a URI
	Name string        // of this process, with a URI
	TTL  time.Duration // of the sessions
	JSON bool          // the log is for programs
}

// Flags defines the flags that all examples have. The Fleet can be used after
// [flag.Parse].
func Flags() *Fleet {
	f := &Fleet{}
	flag.StringVar(&f.URI, "uri", os.Getenv("MONGODB_URI"),
		"connection string of a MongoDB, by default $MONGODB_URI; without it several processes are played on a store in memory")
	flag.StringVar(&f.DB, "db", "leasehold_examples", "the database")
	flag.StringVar(&f.Name, "name", name(), "what this process is called, by default $POD_NAME")
	flag.DurationVar(&f.TTL, "ttl", 10*time.Second, "how long after its last heartbeat a process passes for dead")
	flag.BoolVar(&f.JSON, "json", false, "log in JSON")
	return f
}

func name() string {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// Main is the main function of an example. The context that run gets ends with
// SIGINT and with SIGTERM, which is how Kubernetes asks a container to end.
func Main(run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Run has each process do its work, and waits. That ctx ended is no error.
func (f *Fleet) Run(ctx context.Context, out io.Writer, work func(context.Context, *Process) error) error {
	var handler slog.Handler = slog.NewTextHandler(out, nil)
	if f.JSON {
		handler = slog.NewJSONHandler(out, nil)
	}
	if f.URI != "" {
		return f.process(ctx, slog.New(handler), 0, f.Name, work, func(opt *dsync.Options) (*dsync.Session, error) {
			return dsyncmongo.Connect(ctx, options.Client().ApplyURI(f.URI), f.DB, &dsyncmongo.Options{Options: *opt})
		})
	}
	store := dsynctest.NewMemory()
	g, ctx := errgroup.WithContext(ctx)
	for i := range played {
		g.Go(func() error {
			return f.process(ctx, slog.New(handler), i, fmt.Sprintf("process-%d", i+1), work, func(opt *dsync.Options) (*dsync.Session, error) {
				return dsync.New(store, opt)
			})
		})
	}
	return g.Wait()
}

// process opens a session, works, and closes it.
func (f *Fleet) process(ctx context.Context, log *slog.Logger, i int, name string,
	work func(context.Context, *Process) error, open func(*dsync.Options) (*dsync.Session, error)) error {
	log = log.With("process", name)
	locks, err := open(&dsync.Options{TTL: f.TTL, Name: name, Logger: log})
	if err != nil {
		return err
	}
	err = work(ctx, &Process{Name: name, Index: i, Locks: locks, Log: log})
	if end := ctx.Err(); end != nil && (errors.Is(err, end) || errors.Is(err, context.Cause(ctx))) {
		err = nil
	}
	// Close gives everything up, so that the others need not wait for the TTL. They will,
	// if the server does not answer now.
	if end := locks.Close(context.WithoutCancel(ctx)); end != nil {
		log.Warn("close", "err", end)
	}
	return err
}
