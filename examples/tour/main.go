// The tour shows one mutex being passed around by several workers, each with a
// session of its own, one of which is killed while it holds it.
//
//	go run ./examples/tour
//	go run ./examples/tour -uri mongodb://localhost:27017/?replicaSet=rs0
//
// Without -uri the workers are goroutines on a store in memory, and to be killed
// is to be cut off from it. With -uri they are processes on a real server, and
// one is killed with SIGKILL.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

const (
	key   = "the-key"
	ttl   = 2 * time.Second // short, so that the tour is
	holds = 9               // after how many holds the tour ends
	fatal = 3               // which hold is killed
)

var names = []string{"anna", "bert", "carl"}

// An event is what a worker tells: that it waits, holds or has released.
type event struct {
	worker string
	what   string // "waits", "holds" or "frees"
	token  int64
}

// A crew is the workers of a tour.
type crew interface {
	start(name string, tell func(event)) error
	kill(name string) error // while it holds, without a chance to release
	stop() error            // all that are left, in good order
}

func main() {
	uri := flag.String("uri", "", "connection string of a MongoDB; without it the tour runs in memory")
	worker := flag.String("worker", "", "run as the worker of that name (the tour does this)")
	flag.Parse()

	var err error
	switch {
	case *worker != "":
		err = runWorker(*uri, *worker)
	case *uri != "":
		err = tour(newProcesses(*uri))
	default:
		err = tour(newGoroutines())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

// tour runs the crew and prints the timeline.
func tour(c crew) error {
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("%7.3fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	column := func(name string) string {
		for i, n := range names {
			if n == name {
				return strings.Repeat(" ", 10*i)
			}
		}
		return ""
	}
	fmt.Printf("%d workers take turns on the mutex %q; its lease is %v.\n\n", len(names), key, ttl)

	events := make(chan event, 100)
	for _, name := range names {
		if err := c.start(name, func(e event) { events <- e }); err != nil {
			return err
		}
	}
	var (
		last    int64
		killed  string
		death   time.Time
		overdue = time.NewTimer(time.Minute)
	)
	defer overdue.Stop()
	for n := 0; n < holds; {
		var e event
		select {
		case e = <-events:
		case <-overdue.C:
			return fmt.Errorf("only %d of %d holds after a minute", n, holds)
		}
		if e.worker == killed {
			continue // said before it died
		}
		switch e.what {
		case "waits":
			say("%s%s waits", column(e.worker), e.worker)
		case "frees":
			say("%s%s unlocks", column(e.worker), e.worker)
		case "holds":
			n++
			after := ""
			if !death.IsZero() {
				after = fmt.Sprintf("  <- %.1fs after the kill: the lease of the dead is over", time.Since(death).Seconds())
				death = time.Time{}
			}
			say("%s%s HOLDS, token %d%s", column(e.worker), e.worker, e.token, after)
			if e.token <= last {
				return fmt.Errorf("token %d was given after %d", e.token, last)
			}
			last = e.token
			if n == fatal {
				killed, death = e.worker, time.Now()
				if err := c.kill(killed); err != nil {
					return err
				}
				say("%s%s is KILLED while it holds", column(killed), killed)
			}
		}
	}
	if err := c.stop(); err != nil {
		return err
	}
	fmt.Printf("\n%d holds, one at a time, each with a greater token; one holder died, and was followed when its lease was over.\n", holds)
	return nil
}

// work takes turns on the mutex until ctx ends.
func work(ctx context.Context, s *dsync.Session, name string, tell func(event)) {
	mu := s.Mutex(key)
	for ctx.Err() == nil {
		tell(event{worker: name, what: "waits"})
		if err := mu.LockContext(ctx); err != nil {
			return
		}
		tell(event{worker: name, what: "holds", token: mu.Token()})
		select {
		case <-time.After(300 * time.Millisecond): // the work
		case <-mu.Lost(): // the work would be stopped here
		case <-ctx.Done():
		}
		if mu.UnlockContext(ctx) == nil {
			tell(event{worker: name, what: "frees"})
		}
	}
}
