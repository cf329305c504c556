package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// otherWrites is how many writes per second the other application makes.
const otherWrites = 300

// handOff measures the time from a call of Unlock until the next of n processes has the key,
// relative to a raw write and its notice. Then it measures the same while an application writes to
// the server.
func (r *report) handOff(ctx context.Context) ([]row, error) {
	var rows []row
	for _, n := range r.effort.rings {
		idle := row{name: fmt.Sprintf("Hand-off between %d processes", n), unit: "a raw write and its notice"}
		busy := row{name: fmt.Sprintf("%s, beside %d writes/s", idle.name, otherWrites), unit: idle.unit, can: []column{one, three}}
		for _, line := range []row{idle, busy} {
			line, err := r.rings(ctx, line, mutexes, n, r.effort.handOffs)
			rows = append(rows, line)
			if err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}

// rings measures the hand-off between n processes on all columns. But if line.can is set, it
// measures only the columns in line.can, each while an application writes to its server.
func (r *report) rings(ctx context.Context, line row, system func(*measure.Target) measure.System, n, times int) (row, error) {
	can, busy := line.can, line.can != nil
	if !busy {
		can = everywhere
	}
	ps, end, err := r.players(ctx, system, can...)
	if err != nil {
		return line, err
	}
	defer end()
	u := units{}
	var cs []contender
	for _, p := range ps {
		if p.column == redis { // Redis last, alone: its waiters poll all the time, which would slow down the others
			if line, err = r.compare(ctx, line, times, u, cs...); err != nil {
				return line, err
			}
			cs = nil
		}
		ring, err := p.ring(ctx, fmt.Sprintf("ring of %d", n), n)
		if err != nil {
			return line, err
		}
		defer ring.Close()
		c := contender{column: p.column, op: ring.HandOff}
		if p.raw != nil {
			if err := p.raw.Read(ctx, p.target); err != nil {
				return line, fmt.Errorf("%v: %w", p.column, err)
			}
			c.unit = p.raw.WriteAndNotice
		}
		if busy {
			app, err := measure.NewApplication(ctx, p.target, otherWrites)
			if err != nil {
				return line, fmt.Errorf("%v: %w", p.column, err)
			}
			// Measure one column after the other: a small machine can't run several applications at
			// a time.
			line, err = r.compare(ctx, line, times, u, c)
			if err = errors.Join(err, app.Close()); err != nil {
				return line, fmt.Errorf("%v: %w", p.column, err)
			}
			continue
		}
		cs = append(cs, c)
	}
	if len(cs) == 0 {
		return line, nil
	}
	return r.compare(ctx, line, times, u, cs...)
}
