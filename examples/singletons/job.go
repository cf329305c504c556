package main

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/leader"
)

// A job is a singleton.
type job struct {
	*process
	singleton string
	every     time.Duration
}

// run does the job while this replica has it. It ends soon after ctx, within the
// session's grace: only then may another replica begin.
func (j *job) run(ctx context.Context) error {
	term, _ := leader.TermFrom(ctx)
	log := j.log.With("singleton", j.singleton, "term", term.Number)
	log.Info("begins")
	defer func() { log.Info("ends", "why", context.Cause(ctx)) }()
	tick := time.NewTicker(j.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			log.Info("works")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
