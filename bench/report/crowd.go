package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// crowd measures what a release costs while many sessions wait for the key, without heartbeats and
// polls: see [measure.Crowd].
func (r *report) crowd(ctx context.Context) ([]row, error) {
	name := fmt.Sprintf("A release with %d sessions in the queue", r.effort.crowd-1)
	if !r.lab.here[one] {
		return []row{{name: name}}, nil
	}
	t, err := r.lab.target(one)
	if err != nil {
		return nil, err
	}
	defer t.Close(context.WithoutCancel(ctx))
	crowd, err := measure.NewCrowd(ctx, t.Counted(), r.effort.crowd)
	if err != nil {
		return nil, err
	}
	defer crowd.Close()
	logged, err := t.Logged(ctx)
	if err != nil {
		return nil, err
	}
	commands, notices := t.Commands(), t.Notices()
	var took measure.Sample
	for range r.effort.releases {
		d, err := crowd.Release(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	time.Sleep(time.Second) // so that commands of sessions that are woken in vain are counted, too
	commands, notices = t.Commands()-commands, t.Notices()-notices
	log, err := logged()
	if err != nil {
		return nil, err
	}
	per := func(what string, n int) row {
		return row{name: what, unit: "each release"}.
			put(one, quotient(float64(n), float64(len(took))), fmt.Sprintf("%d / %d, %s each", n, len(took), milliseconds(took.Median())))
	}
	return []row{joined(name, per("commands of all sessions", commands), per("writes", log.Entries), per("notices", notices))}, nil
}
