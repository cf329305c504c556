package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// pipelines is the CPU time of the server for each command that updates by a pipeline. The server
// parses a pipeline, runs it, and disposes of it. It does the first and the last also where there is
// no record to run it on.
func (r *report) pipelines(ctx context.Context) ([]row, error) {
	line := row{name: "The server's CPU for a command: to parse its pipeline and dispose of it, and to run it", unit: "microseconds"}
	switch {
	case !r.lab.here[one]:
		return []row{line}, nil
	case r.lab.pid == 0:
		return []row{line.put(one, "not here", "it is not our process")}, nil
	}
	t, err := r.lab.target(one)
	if err != nil {
		return nil, err
	}
	defer t.Close(context.WithoutCancel(ctx))
	ps, err := measure.Pipelines(ctx, t)
	if err != nil {
		return nil, err
	}
	defer ps[0].Close(context.WithoutCancel(ctx))

	const turns = 10
	each := r.effort.pipelines / turns
	// [0] is without a pipeline to speak of, [1] apart from any record, [2] with one.
	used := make([][3]time.Duration, len(ps))
	for range turns {
		for i, p := range ps {
			for j, send := range []func(context.Context) error{p.Plain, p.Apart, p.Matched} {
				before, err := cpuOf(r.lab.pid)
				if err != nil {
					return nil, err
				}
				for range each {
					if err := send(ctx); err != nil {
						return nil, fmt.Errorf("%s: %w", p.Name, err)
					}
				}
				after, err := cpuOf(r.lab.pid)
				if err != nil {
					return nil, err
				}
				used[i][j] += after - before
			}
		}
	}
	var rows []row
	for i, p := range ps {
		µs := func(d time.Duration) float64 { return 1e6 * d.Seconds() / float64(turns*each) }
		plain, apart, matched := µs(used[i][0]), µs(used[i][1]), µs(used[i][2])
		rows = append(rows, row{
			name: fmt.Sprintf("The server's CPU for %s (%d bytes): to parse its pipeline and dispose of it, and to run it", p.Name, p.Bytes),
			unit: line.unit,
		}.put(one, fmt.Sprintf("%.0f, %.0f", apart-plain, matched-apart), fmt.Sprintf("%.0f µs with a plain pipeline, %.0f apart from any record, %.0f with one", plain, apart, matched)))
	}
	return rows, nil
}
