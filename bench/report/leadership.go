package main

import (
	"context"

	"github.com/leasehold-go/leasehold/bench/internal/peer"
)

// leadership measures the time from a call of Resign until another process's Campaign returns.
func (r *report) leadership(ctx context.Context) ([]row, error) {
	line := row{name: "Hand-off of leadership between 2 processes", unit: "one raw write"}
	ps, end, err := r.players(ctx, elections, one, three, etcd)
	if err != nil {
		return nil, err
	}
	defer end()
	var cs []contender
	for _, p := range ps {
		if p.column == etcd {
			p.system = &peer.Etcd{Addr: r.lab.addrs[etcd], Elections: true}
		}
		ring, err := p.ring(ctx, "leader", 2)
		if err != nil {
			return nil, err
		}
		defer ring.Close()
		c := contender{column: p.column, op: ring.HandOff}
		if p.raw != nil {
			c.unit = p.raw.Write
		}
		cs = append(cs, c)
	}
	line, err = r.compare(ctx, line, r.effort.resigns, units{}, cs...)
	return []row{line}, err
}
