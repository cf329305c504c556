package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// contended measures how often one key is acquired in the time that one raw write takes.
func (r *report) contended(ctx context.Context) ([]row, error) {
	const processes, goroutines = 4, 16
	name := fmt.Sprintf("One key, %d processes × %d goroutines: acquisitions (smallest share of a process by the largest)", processes, goroutines)
	const unit = "in the time of one raw write"
	handedOff, err := r.contest(ctx, row{name: name, unit: unit, can: everywhere}, mutexes, processes, goroutines)
	if err != nil {
		return nil, err
	}
	granted, err := r.contest(ctx, row{name: "the same, with `HandOffTime: -1`", unit: unit, can: []column{one, three}},
		withoutHandOff, processes, goroutines)
	return []row{handedOff, granted}, err
}

func (r *report) contest(ctx context.Context, line row, system func(*measure.Target) measure.System, processes, goroutines int) (row, error) {
	ps, end, err := r.players(ctx, system, line.can...)
	if err != nil {
		return line, err
	}
	defer end()
	u, contests := units{}, make(map[column]*measure.Contest)
	for _, p := range ps {
		if err := r.rawWrites(ctx, u, ps); err != nil {
			return line, err
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
		contests[p.column] = c
	}
	if err := r.rawWrites(ctx, u, ps); err != nil {
		return line, err
	}
	for c, contest := range contests {
		inTime := "no unit"
		if write := u.of(c).Median(); write > 0 {
			inTime = fmt.Sprintf("%.2f", contest.Rate()*write.Seconds())
		}
		line = line.put(c, fmt.Sprintf("%s (%.2f)", inTime, contest.Share), fmt.Sprintf("%.0f/s%s", contest.Rate(), by(median, u[c])))
	}
	return line, nil
}

// rawWrites adds samples of each player's raw write to u. It is called before each contest and
// after the last, because the time of a raw write drifts within seconds.
func (r *report) rawWrites(ctx context.Context, u units, ps []player) error {
	var cs []contender
	for _, p := range ps {
		if p.raw != nil {
			cs = append(cs, contender{column: p.column, op: p.raw.Write})
		}
	}
	took, _, err := interleave(ctx, r.effort.turns/8, units{}, cs...)
	for c, s := range took {
		u[c] = append(u[c], s...)
	}
	return err
}
