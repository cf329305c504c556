package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
)

const (
	// priceWrites and priceHandOffs are what happens beside, a second.
	priceWrites   = 300
	priceHandOffs = 20

	// pricePairs share the hand-offs.
	pricePairs = 4
)

// price is what waiting processes cost the server and the application that has it for
// something else: the server's CPU, and the application's own writes, each acknowledged
// by a majority. Beside it sessions hand off contended keys, and all sessions have the
// heartbeats that any have, also those that hold and do not wait: what those cost is what
// waiting is compared with.
func (r *report) price(ctx context.Context) ([]row, error) {
	const name = "Price of %d waiting processes (connections), %s"
	if !r.lab.here[one] || r.lab.pid == 0 {
		line := row{name: fmt.Sprintf(name, r.effort.price[0], "notices")}
		if r.lab.here[one] {
			line = line.put(one, "not here", "it is not our process")
		}
		return []row{line}, nil
	}
	holds := way{name: "that do not wait", holds: true, collections: 64}
	polls := way{name: "polling", polls: true}
	notices := func(n int) way {
		return way{name: fmt.Sprintf("notices in %d collections", n), collections: n}
	}
	listens := notices(64)
	var rows []row
	for _, n := range r.effort.price {
		ways := []way{holds, listens, polls}
		most := n == slices.Max(r.effort.price)
		switch {
		case n == 0:
			ways = ways[:1]
		case most:
			ways = append(ways, notices(1), notices(32))
		}
		for _, w := range ways {
			lasts := r.effort.priceFor
			if most && (w == holds || w == listens) {
				lasts = r.effort.pricePolled
			}
			p, err := r.priceOf(ctx, n, w, lasts)
			if err != nil {
				return rows, fmt.Errorf("%d, %s: %w", n, w.name, err)
			}
			rows = append(rows, row{name: fmt.Sprintf(name, n, w.name), unit: "cores, and the application's writes a second"}.
				put(one, fmt.Sprintf("%.2f cores, %.0f/s", p.cores, p.writes), p.String()))
		}
	}
	return rows, nil
}

// A price is the load of the server for some seconds.
type price struct {
	cores    float64 // of the server
	writes   float64 // of the application, a second
	took     measure.Sample
	handOffs measure.Sample
}

func (p price) String() string {
	return fmt.Sprintf("%.3f cores; %.1f writes/s, p50 %s, p99 %s; %d hand-offs, p50 %s, p99 %s",
		p.cores, p.writes, milliseconds(p.took.Median()), milliseconds(p.took.Percentile(99)),
		len(p.handOffs), milliseconds(p.handOffs.Median()), milliseconds(p.handOffs.Percentile(99)))
}

// priceOf measures for that long.
func (r *report) priceOf(ctx context.Context, n int, w way, lasts time.Duration) (p price, err error) {
	c, err := r.newCrowded(ctx, n, max(1, n), w)
	if err != nil {
		return p, err
	}
	defer c.close(ctx)
	app, err := measure.NewApplication(ctx, c.target, priceWrites)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, app.Close()) }()

	pairs, err := measure.Server(r.lab.uris[one], c.target.DB.Name()) // of sessions that are not in the crowd
	if err != nil {
		return p, err
	}
	defer pairs.DB.Client().Disconnect(context.WithoutCancel(ctx))
	pairs.Store = w.store()
	pairs.Store.NoNotices = w.polls // somebody has to hand off
	var rings []*measure.Ring
	defer func() {
		for _, ring := range rings {
			ring.Close()
		}
	}()
	for i := range pricePairs {
		ring, err := measure.NewRing(ctx, &measure.Mutexes{Target: pairs, Options: dsync.Options{Retention: -1}}, fmt.Sprint("pair ", i), 2)
		if err != nil {
			return p, err
		}
		rings = append(rings, ring)
	}
	time.Sleep(2 * time.Second) // what follows the opening

	app.Took()
	before, err := cpuOf(r.lab.pid)
	if err != nil {
		return p, err
	}
	begin := time.Now()
	var g errgroup.Group
	samples := make([]measure.Sample, len(rings))
	for i, ring := range rings {
		g.Go(func() (err error) {
			time.Sleep(time.Duration(i) * time.Second / priceHandOffs) // not all at the same time
			samples[i], err = paced(ctx, ring.HandOff, pricePairs*time.Second/priceHandOffs, begin.Add(lasts))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return p, err
	}
	time.Sleep(time.Until(begin.Add(lasts)))
	lasted := time.Since(begin).Seconds()
	after, err := cpuOf(r.lab.pid)
	p.took = app.Took()
	p.cores, p.writes = (after-before).Seconds()/lasted, float64(len(p.took))/lasted
	for _, s := range samples {
		p.handOffs = append(p.handOffs, s...)
	}
	return p, err
}

// paced does op once in each period until the end, as far as it keeps up.
func paced(ctx context.Context, op measure.Op, period time.Duration, end time.Time) (s measure.Sample, err error) {
	turn := time.NewTicker(period)
	defer turn.Stop()
	for {
		select {
		case <-turn.C:
		case <-time.After(time.Until(end)):
			return s, nil
		case <-ctx.Done():
			return s, ctx.Err()
		}
		took, err := op(ctx)
		if err != nil {
			return s, err
		}
		s = append(s, took)
	}
}
