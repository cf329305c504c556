// Singletons is a replicated service with background jobs. Each job runs on one replica. On Kubernetes the service is a
// Deployment: see singletons.yaml.
//
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/singletons
//
// The jobs spread over the replicas. When a replica gets SIGTERM, its jobs stop and start on other replicas at once.
// When a replica crashes, its jobs start on other replicas after its TTL. A replica that can't reach the server stops
// its jobs before they start elsewhere.
//
// The probe /readyz fails while this replica can't renew its leases. So if a new version can't reach the database, its
// rollout shows that. The probe /livez fails only if a job keeps running after its context and its grace have ended.
// Such a job may be running on another replica, too, and a restart stops it. An unreachable database does not fail
// /livez, because a restart would not help.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/leader"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	db := flag.String("db", "leasehold_examples", "the database")
	ttl := flag.Duration("ttl", 15*time.Second, "time after its last heartbeat until a crashed replica's jobs start elsewhere")
	listen := flag.String("listen", "localhost:8080", "address of the probes")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := dsyncmongo.Connect(ctx, options.Client().ApplyURI(os.Getenv("MONGODB_URI")), *db,
		&dsyncmongo.Options{Session: dsync.Options{TTL: *ttl, Name: os.Getenv("POD_NAME")}})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.ListenAndServe(*listen, probes(locks))) }()
	err = run(ctx, locks, "expire-sessions", "send-mails", "sync-stock")
	locks.Close(context.WithoutCancel(ctx))
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// run runs this replica's share of the jobs until ctx ends.
func run(ctx context.Context, locks *dsync.Session, jobs ...string) error {
	group, _, err := leader.NewGroup(ctx, locks, "singletons", nil)
	if err != nil {
		return err
	}
	for _, name := range jobs {
		if _, err := group.Go(name, func(ctx context.Context) error {
			term, _ := leader.TermFrom(ctx)
			log := slog.With("singleton", name, "term", term.Number)
			log.Info("begins")
			<-ctx.Done() // the job's work, which must end within the session's grace after ctx has ended
			log.Info("ends", "why", context.Cause(ctx))
			return ctx.Err()
		}); err != nil {
			return err
		}
	}
	return group.Wait()
}

// probes answers the probes of Kubernetes.
func probes(locks *dsync.Session) http.Handler {
	mux := http.NewServeMux()
	probe := func(fails func(error) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := locks.Healthy(); fails(err) {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		}
	}
	mux.Handle("GET /readyz", probe(func(err error) bool { return err != nil }))
	mux.Handle("GET /livez", probe(func(err error) bool { return errors.Is(err, dsync.ErrStillInUse) }))
	return mux
}
