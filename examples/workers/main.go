// Workers is a pool of workers, in several processes, that call a service which allows only a
// limited number of calls at a time.
//
//	go run ./examples/workers
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/workers
//
// Within a process an errgroup limits the workers; among all processes the slots of a
// semaphore do. Waiters get slots in FIFO order. The slots of a process that dies are free
// again when its session's TTL is over. A worker whose process can't reach the server for that
// long loses its slot, and is notified before another gets it: its call is ended, and made
// again with the next slot.
//
// Without a server three processes are played in this one. With one, start the program
// several times, and kill some; each has jobs of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	f := newFleet()
	size := flag.Int64("size", 3, "how many calls the service allows at a time")
	workers := flag.Int("workers", 4, "how many workers a process has")
	jobs := flag.Int("jobs", 10, "how many jobs a process has")
	service := flag.String("service", "", "URL of the service, which is called with ?job=…; without it a call takes 300ms and does nothing")
	flag.Parse()
	call := idle
	if *service != "" {
		call = func(ctx context.Context, job string) error { return get(ctx, *service, job) }
	}
	untilSignal(func(ctx context.Context) error { return run(ctx, f, *size, *workers, *jobs, os.Stdout, call) })
}

// run has each process do its jobs.
func run(ctx context.Context, f *fleet, size int64, workers, jobs int, out io.Writer,
	call func(ctx context.Context, job string) error) error {
	return f.run(ctx, out, func(ctx context.Context, p *process) error {
		w := &worker{process: p, size: size, call: call}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(workers)
		for i := range jobs {
			g.Go(func() error { return w.do(ctx, fmt.Sprintf("%s/%d", p.name, i)) })
		}
		return g.Wait()
	})
}

// idle stands in for a service.
func idle(ctx context.Context, _ string) error {
	select {
	case <-time.After(300 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// get calls the service.
func get(ctx context.Context, service, job string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, service+"?job="+url.QueryEscape(job), nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("job %s: %s", job, res.Status)
	}
	return nil
}
