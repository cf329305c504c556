// Cron is a fleet of hosts that have the same crontab: a job is due on every host at
// every tick, by the host's own clock, and runs on one.
//
//	go run ./examples/cron
//	MONGODB_URI=mongodb://localhost:27017 go run ./examples/cron -offset 300ms
//
// Each host tries to lock at the tick; a host that finds the lock held leaves the job to its
// holder. An Unlock when the job is done would not be enough: the job takes a moment, and the
// clocks of the hosts are farther apart than that, so the next host would come later, find the
// lock free, and run the job again. UnlockAfter keeps it locked for half of the period since
// the job began, by the server's clock, also when the process that ran the job ends or dies.
//
// So the clocks may be a quarter of the period apart, and a host that comes more than
// another quarter late, because it was busy or asleep, leaves the tick out. A lock can't run a
// job again after its host has died: at each tick the job runs at most once.
//
// Without a server three hosts are played in this process. With one, start the program
// several times, and kill some.
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"time"
)

func main() {
	f := newFleet()
	every := flag.Duration("every", 4*time.Second, "how often the job is due")
	takes := flag.Duration("takes", 50*time.Millisecond, "how long the job takes")
	offset := flag.Duration("offset", 500*time.Millisecond,
		"how far this host's clock is ahead; without a server the second host's is right, and the third's as far behind")
	flag.Parse()
	untilSignal(func(ctx context.Context) error {
		return run(ctx, f, *every, *offset, os.Stdout, func(ctx context.Context, tick time.Time) error {
			select {
			case <-time.After(*takes): // the job
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
}

// run has the job run at each tick, until ctx ends.
func run(ctx context.Context, f *fleet, every, offset time.Duration, out io.Writer,
	job func(ctx context.Context, tick time.Time) error) error {
	return f.run(ctx, out, func(ctx context.Context, p *process) error {
		h := &host{process: p, every: every, offset: time.Duration(1-p.index) * offset, job: job}
		return h.run(ctx)
	})
}
