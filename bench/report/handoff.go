package main

import (
	"context"
	"fmt"
	"strconv"
)

// handOff measures the time from a call of Unlock until another process has the key,
// relative to a raw write and its notice.
func (r *report) handOff(ctx context.Context) (rows []row, err error) {
	const name = "Hand-off between processes"
	for _, n := range r.effort.rings {
		ps, end, err := r.players(ctx, mutexes, everywhere...)
		if err != nil {
			return joined(name, rows...), err
		}
		line, err := r.ring(ctx, row{name: strconv.Itoa(n), unit: "a raw write and its notice"}, n, ps)
		end()
		if err != nil {
			return joined(name, rows...), err
		}
		rows = append(rows, line)
	}
	return joined(name, rows...), nil
}

// ring returns the line with the players' figures for n processes.
func (r *report) ring(ctx context.Context, line row, n int, ps []player) (_ row, err error) {
	u := units{}
	var cs []contender
	for _, p := range ps {
		if p.column == redis { // Redis last, alone: its waiters poll all the time, which would slow down the others
			if line, err = r.compare(ctx, line, r.effort.handOffs, u, cs...); err != nil {
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
		cs = append(cs, c)
	}
	return r.compare(ctx, line, r.effort.handOffs, u, cs...)
}
