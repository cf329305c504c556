package main

import (
	"context"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/bench/internal/peer"
)

// leadership is from the call of Resign to the return of the other's Campaign, by a raw
// write.
func (r *report) leadership(ctx context.Context) ([]row, error) {
	ps, end, err := r.players(ctx, elections, one, three, etcd)
	if err != nil {
		return nil, err
	}
	defer end()
	var cs []contender
	for _, p := range ps {
		if p.column == etcd {
			p.system = &peer.Etcd{Addr: r.lab.etcd.Addr, Elections: true}
		}
		ring, err := p.ring(ctx, "leader", 2)
		if err != nil {
			return nil, err
		}
		defer ring.Close()
		c := contender{column: p.column, op: ring.HandOff}
		if p.raw != nil {
			c.unit = measure.Timed(p.raw.Write)
		}
		cs = append(cs, c)
	}
	line := row{name: "Hand-over of leadership, Resign to the other's Campaign", unit: "one raw write"}
	line, err = r.compare(ctx, line, r.effort.resigns, units{}, cs...)
	return []row{line}, err
}
