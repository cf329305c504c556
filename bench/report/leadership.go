package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/peer"
)

// leadership measures the time from a call of Resign until another process's Campaign returns. With
// two processes, the unit is a raw write. With more processes, an application writes meanwhile, and
// the unit is a raw write and its notice.
func (r *report) leadership(ctx context.Context) ([]row, error) {
	line, err := r.resign(ctx)
	rows := []row{line}
	for _, n := range r.effort.rings {
		if err != nil {
			return rows, err
		}
		line := row{
			name: fmt.Sprintf("Hand-off of leadership between %d processes, beside %d writes/s", n, otherWrites),
			unit: "a raw write and its notice", can: []column{one, three},
		}
		line, err = r.rings(ctx, line, elections, n, r.effort.resigns)
		rows = append(rows, line)
	}
	return rows, err
}

func (r *report) resign(ctx context.Context) (row, error) {
	line := row{name: "Hand-off of leadership between 2 processes", unit: "one raw write"}
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
