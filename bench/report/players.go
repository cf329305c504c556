package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/bench/internal/peer"
	"github.com/leasehold-go/leasehold/dsync"
)

// A player is one column's part of a measurement.
type player struct {
	column column
	system measure.System
	raw    *measure.Raw // nil if the system is not this library
	target *measure.Target
}

// etcdRequeue is longer than the default because etcd's locks watch from a past revision, and etcd
// serves such watches only every 100 ms.
const etcdRequeue = 150 * time.Millisecond

// ring returns a ring of n processes that all want the key.
func (p player) ring(ctx context.Context, key string, n int) (*measure.Ring, error) {
	ring, err := measure.NewRing(ctx, p.system, key, n)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", p.column, err)
	}
	if p.column == etcd {
		ring.Requeue = etcdRequeue
	}
	return ring, nil
}

// players returns a player for each column in can whose server is available, and a function that
// closes the players. The function system makes this library's [measure.System] on a target.
func (r *report) players(ctx context.Context, system func(*measure.Target) measure.System, can ...column) (_ []player, end func(), err error) {
	var ps []player
	end = func() {
		for _, p := range ps {
			if p.target != nil {
				if p.raw != nil {
					p.raw.Close()
				}
				p.target.Close(context.WithoutCancel(ctx))
			}
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	for _, c := range can {
		if !r.lab.here[c] {
			continue
		}
		p := player{column: c}
		switch c {
		case one, three:
			if p.target, err = r.lab.target(c); err != nil {
				return nil, nil, err
			}
			p.system = system(p.target)
			if p.raw, err = measure.NewRaw(p.target, "raw"); err != nil {
				return nil, nil, err
			}
		case mongoLock:
			if p.target, err = r.lab.target(one); err != nil {
				return nil, nil, err
			}
			p.system = r.lab.mongoLock(p.target)
		case etcd:
			p.system = &peer.Etcd{Addr: r.lab.addrs[etcd]}
		case postgres:
			p.system = &peer.Postgres{URI: "postgres://bench@" + r.lab.addrs[postgres] + "/postgres?sslmode=disable"}
		case redis:
			p.system = &peer.Redis{Addr: r.lab.addrs[redis]}
		}
		ps = append(ps, p)
	}
	return ps, end, nil
}

func mutexes(t *measure.Target) measure.System { return measure.Mutexes(t.Sessions(dsync.Options{})) }

func withoutHandOff(t *measure.Target) measure.System {
	return measure.Mutexes(t.Sessions(dsync.Options{HandOffTime: -1}))
}

func elections(t *measure.Target) measure.System {
	return measure.Elections(t.Sessions(dsync.Options{}))
}
