package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// contended is how often one key is acquired in the time of a raw write.
func (r *report) contended(ctx context.Context) ([]row, error) {
	const processes, goroutines = 4, 16
	name := fmt.Sprintf("One key, %d processes × %d goroutines: acquisitions (smallest share of a process by the largest)", processes, goroutines)
	const unit = "in the time of one raw write"
	handedOn, err := r.contest(ctx, row{name: name, unit: unit, can: everywhere}, mutexes, processes, goroutines)
	if err != nil {
		return nil, err
	}
	granted, err := r.contest(ctx, row{name: name + ", with `HandOffTime: -1`", unit: unit, can: []column{one, three}},
		unhanded, processes, goroutines)
	return []row{handedOn, granted}, err
}

func (r *report) contest(ctx context.Context, line row, system func(*measure.Target) measure.System, processes, goroutines int) (row, error) {
	ps, end, err := r.players(ctx, system, line.can...)
	if err != nil {
		return line, err
	}
	defer end()
	u := units{}
	for _, p := range ps {
		if p.raw != nil {
			samples, err := measure.Interleave(ctx, 50, measure.Timed(p.raw.Write))
			if err != nil {
				return line, err
			}
			u[p.column] = samples[0]
		}
		c, err := measure.NewContest(ctx, p.system, processes, goroutines)
		if err != nil {
			return line, fmt.Errorf("%v: %w", p.column, err)
		}
		until := time.Now().Add(r.effort.contend)
		err = c.Run(ctx, func() bool { return time.Now().Before(until) && ctx.Err() == nil })
		c.Close()
		if err != nil {
			return line, fmt.Errorf("%v: %w", p.column, err)
		}
		inTime := "no unit"
		if write := u.of(p.column).Median(); write > 0 {
			inTime = fmt.Sprintf("%.2f", c.Rate()*write.Seconds())
		}
		line = line.put(p.column, fmt.Sprintf("%s (%.2f)", inTime, c.Share), fmt.Sprintf("%.0f/s%s", c.Rate(), by(median, u[p.column])))
	}
	return line, nil
}
