// Singletons is a service of several replicas with background jobs, each of which runs on one
// replica. On Kubernetes it is a Deployment, see singletons.yaml.
//
//	go run ./examples/singletons
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/singletons -listen :8080
//
// The jobs spread over the replicas. When a replica ends, by SIGTERM as in an update or
// when it is scaled down, its jobs end and begin on others at once; when it dies, when
// its session's TTL is over; when it can't reach the server, before others begin.
//
// With -listen it serves two probes. /readyz fails when this replica can't renew its
// leases: a rollout then shows that the new version can't reach the database. /livez fails only
// when a job goes on after its context and its grace have ended, as one that is stuck does. Then
// it may run on two replicas, and a restart ends it. An unreachable database is no reason to
// restart.
//
// Without a server three replicas are played in this process, without probes.
package main

import (
	"context"
	"flag"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/leader"
)

// jobs are the background jobs; each runs on one replica.
var jobs = []string{"expire-sessions", "send-mails", "sync-stock"}

func main() {
	f := newFleet()
	every := flag.Duration("every", 2*time.Second, "how often each job has something to do")
	listen := flag.String("listen", "", "address of the probes, such as :8080; without it there are none")
	flag.Parse()
	untilSignal(func(ctx context.Context) error {
		if *listen == "" || f.uri == "" {
			return run(ctx, f, *every, nil, os.Stdout)
		}
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		return run(ctx, f, *every, l, os.Stdout)
	})
}

// run has each replica run its share of the jobs, until ctx ends. Probes are served on
// l, if it is not nil.
func run(ctx context.Context, f *fleet, every time.Duration, l net.Listener, out io.Writer) error {
	return f.run(ctx, out, func(ctx context.Context, p *process) error {
		tasks, ctx := errgroup.WithContext(ctx)
		group, ctx, err := leader.NewGroup(ctx, p.locks, "singletons", nil)
		if err != nil {
			return err
		}
		for _, name := range jobs {
			j := &job{process: p, singleton: name, every: every}
			if _, err := group.Go(name, j.run); err != nil {
				return err
			}
		}
		tasks.Go(group.Wait)
		if l != nil {
			tasks.Go(func() error { return serve(ctx, l, probes(p.locks)) })
		}
		return tasks.Wait()
	})
}
