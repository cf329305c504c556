package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/peer"
)

// leadership is from the call of Resign to the return of another's Campaign, between two
// processes by a raw write, and between n, also beside an application that writes, by a
// raw write and the notice that follows it.
func (r *report) leadership(ctx context.Context) ([]row, error) {
	line, err := r.resign(ctx)
	rows := []row{line}
	for _, n := range r.effort.rings {
		if err != nil {
			return rows, err
		}
		line := row{
			name: fmt.Sprintf("Hand-over of leadership between %d processes, beside %d writes a second", n, writesBeside),
			unit: "a raw write and its notice", can: []column{one, three},
		}
		line, err = r.rings(ctx, line, elections, n, r.effort.resigns)
		rows = append(rows, line)
	}
	return rows, err
}

func (r *report) resign(ctx context.Context) (row, error) {
	line := row{name: "Hand-over of leadership, Resign to the other's Campaign", unit: "one raw write"}
	ps, end, err := r.players(ctx, elections, one, three, etcd)
	if err != nil {
		return line, err
	}
	defer end()
	var cs []contender
	for _, p := range ps {
		if p.column == etcd {
			p.system = &peer.Etcd{Addr: r.lab.etcd.Addr, Elections: true}
		}
		ring, err := p.ring(ctx, "leader", 2)
		if err != nil {
			return line, err
		}
		defer ring.Close()
		c := contender{column: p.column, op: ring.HandOff}
		if p.raw != nil {
			c.unit = p.raw.Write
		}
		cs = append(cs, c)
	}
	return r.compare(ctx, line, r.effort.resigns, units{}, cs...)
}
