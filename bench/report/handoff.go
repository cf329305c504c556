package main

import (
	"context"
	"fmt"
)

// handOff is from the call of Unlock to the next of n processes having the key, by a
// raw write and its event, and by one in a collection that as many clients watch: each
// event passes every stream's filter, whoever it is for.
func (r *report) handOff(ctx context.Context) ([]row, error) {
	var rows []row
	for _, n := range r.effort.rings {
		lines, err := r.rings(ctx, n)
		rows = append(rows, lines...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func (r *report) rings(ctx context.Context, n int) ([]row, error) {
	line := row{name: fmt.Sprintf("Hand-off between %d processes", n), unit: "a raw write and its event"}
	crowded := row{name: line.name, unit: fmt.Sprintf("the same where %d clients watch", n), can: []column{one, three}}
	ps, end, err := r.players(ctx, mutexes, everywhere...)
	if err != nil {
		return nil, err
	}
	defer end()
	u := units{}
	var cs, watched []contender
	for _, p := range ps {
		if p.column == redis { // asks all the time: not beside the others
			if line, err = r.compare(ctx, line, r.effort.handOffs, u, cs...); err != nil {
				return nil, err
			}
			cs = nil
		}
		ring, err := p.ring(ctx, fmt.Sprintf("ring of %d", n), n)
		if err != nil {
			return nil, err
		}
		defer ring.Close()
		c := contender{column: p.column, op: ring.HandOff}
		if p.raw != nil {
			if err := p.raw.Read(ctx, p.target); err != nil {
				return nil, fmt.Errorf("%v: %w", p.column, err)
			}
			c.unit = p.raw.WriteAndEvent
			watched = append(watched, c)
		}
		cs = append(cs, c)
	}
	if line, err = r.compare(ctx, line, r.effort.handOffs, u, cs...); err != nil {
		return nil, err
	}
	for _, p := range ps {
		if p.raw != nil {
			if err := p.raw.Watch(ctx, p.target, n-1); err != nil {
				return []row{line}, fmt.Errorf("%v: %w", p.column, err)
			}
		}
	}
	crowded, err = r.compare(ctx, crowded, r.effort.handOffs, units{}, watched...)
	return []row{line, crowded}, err
}
