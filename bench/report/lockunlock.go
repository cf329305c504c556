package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// lockUnlock is an uncontended Lock and Unlock, by two raw writes.
func (r *report) lockUnlock(ctx context.Context) ([]row, error) {
	ps, end, err := r.players(ctx, mutexes, everywhere...)
	if err != nil {
		return nil, err
	}
	defer end()
	var cs []contender
	for _, p := range ps {
		process, err := p.system.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", p.column, err)
		}
		defer process.Close()
		l, err := process.Locker(ctx, "uncontended")
		if err != nil {
			return nil, fmt.Errorf("%v: %w", p.column, err)
		}
		c := contender{column: p.column, op: measure.LockUnlock(l)}
		if p.raw != nil {
			c.unit = measure.Twice(p.raw.Write)
		}
		cs = append(cs, c)
	}
	line := row{name: "Lock and Unlock, uncontended", unit: "two raw writes"}
	line, err = r.compare(ctx, line, r.effort.turns, units{}, cs...)
	return []row{line}, err
}
