package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

func keyName(i int) string { return fmt.Sprintf("key %d", i) }

// fleetReleases is how many keys are released per second.
const fleetReleases = 20

// A fleetSize determines how many sessions a fleet has, and how many of them wait for a key. If shared is true, all
// sessions of a child process share one client. Otherwise each session has its own client, as if it were in its own
// process.
type fleetSize struct {
	sessions, waiting int
	shared            bool
	ttl               time.Duration // 0: the default
}

func (s fleetSize) String() string {
	if s.shared {
		return fmt.Sprintf("Fleet of %d on shared clients, TTL %v", s.sessions, s.ttl)
	}
	return fmt.Sprintf("Fleet of %d", s.sessions)
}

// fleet measures what many sessions cost the server while they are idle, while ten sessions wait
// for each key, and while keys are released.
func (r *report) fleet(ctx context.Context) ([]row, error) {
	if !r.lab.here[one] || len(r.lab.pids[one]) == 0 {
		line := row{name: r.effort.fleets[0].String() + ": idle"}
		if r.lab.here[one] {
			line = line.put(one, "not here", "the report did not start this server")
		}
		return []row{line}, nil
	}
	var failed error
	var rows, grants, memories []row
	for _, size := range r.effort.fleets {
		n := size.sessions
		f, err := r.fleetOf(ctx, size)
		if err != nil {
			failed = fmt.Errorf("%v: %w", size, err)
			break
		}
		load := func(what string, l load) row {
			return row{name: what, unit: "cores, ms/s, connections"}.put(one,
				fmt.Sprintf("%.2f, %.2f, %.1f", l.cores, 1000*l.cores/float64(n), float64(l.connections)/float64(n)),
				fmt.Sprintf("%.3f cores; %d connections", l.cores, l.connections))
		}
		waiting := "waiting"
		if size.waiting < n {
			waiting = fmt.Sprintf("%d waiting", size.waiting)
		}
		rows = append(rows, joined(size.String(),
			load("idle", f.idle), load(waiting, f.waiting), load(fmt.Sprintf("%d releases/s", fleetReleases), f.busy))...)
		grants = append(grants, row{name: strconv.Itoa(n), unit: "median"}.put(one, milliseconds(f.took.Median()),
			fmt.Sprintf("%d releases, p50 %s, p99 %s, max %s", len(f.took), milliseconds(f.took.Median()), milliseconds(f.took.Percentile(99)), milliseconds(f.took.Max()))))
		memories = append(memories, row{name: strconv.Itoa(n), unit: "KiB"}.put(one, fmt.Sprintf("%d and %d", f.client>>10, f.server>>10),
			fmt.Sprintf("%d and %d", f.client, f.server)))
	}
	rows = append(rows, joined("Fleets, release to grant", grants...)...)
	rows = append(rows, joined("Fleets, memory for each session, own process and server", memories...)...)
	return rows, failed
}

// A load is what the server did during one interval.
type load struct {
	cores       float64
	connections int64 // the number of the fleet's connections at the end of the interval
}

// A fleet holds the figures of one fleet.
type fleet struct {
	idle, waiting, busy load
	took                measure.Sample // the times from a release to the grant in another session
	client, server      int64          // bytes per session
}

func (r *report) fleetOf(ctx context.Context, size fleetSize) (f fleet, err error) {
	empty, err := memoryOf(r.lab.pids[one][0])
	if err != nil {
		return f, err
	}
	c, err := r.startFleet(ctx, size, r.effort.fleetCollections)
	if err != nil {
		return f, err
	}
	defer c.close(ctx)
	nothing := func(end time.Time) error {
		time.Sleep(time.Until(end))
		return nil
	}
	time.Sleep(r.effort.fleetIdle)
	if f.idle, err = r.loadOf(ctx, c, nothing); err != nil {
		return f, err
	}
	if err := c.wait(ctx, size.waiting); err != nil {
		return f, err
	}
	time.Sleep(r.effort.fleetIdle)
	full, err := memoryOf(r.lab.pids[one][0])
	if err != nil {
		return f, err
	}
	f.client, f.server = c.bytes, (full-empty)/int64(size.sessions)
	if f.waiting, err = r.loadOf(ctx, c, nothing); err != nil {
		return f, err
	}

	order := rand.Perm(len(c.held))
	begins := make(map[string]time.Time)
	if f.busy, err = r.loadOf(ctx, c, func(end time.Time) error {
		turn := time.NewTicker(time.Second / fleetReleases)
		defer turn.Stop()
		for len(order) > 0 && time.Now().Before(end) {
			<-turn.C
			h := c.held[order[0]]
			order = order[1:]
			begins[h.Key()] = time.Now()
			if err := h.Release(ctx); err != nil {
				return err
			}
		}
		time.Sleep(time.Until(end))
		return nil
	}); err != nil {
		return f, err
	}
	time.Sleep(time.Second) // let the last grants arrive
	f.took, err = c.granted(begins)
	return f, err
}

// granted ends the children. It returns, for each released key, the time from the release until the
// key was granted to a child's session.
func (c *runningFleet) granted(begins map[string]time.Time) (took measure.Sample, err error) {
	for _, p := range c.children {
		for _, line := range p.kill() {
			rest, ok := strings.CutPrefix(line, "granted key ")
			if !ok {
				continue
			}
			var number, at int64
			var well bool
			if _, err := fmt.Sscan(rest, &number, &at, &well); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			if begin, ok := begins[keyName(int(number))]; ok && well {
				took = append(took, time.Unix(0, at).Sub(begin))
			}
		}
	}
	c.children = nil
	if len(took) != len(begins) {
		err = fmt.Errorf("%d keys were released, but %d granted", len(begins), len(took))
	}
	slices.Sort(took)
	return took, err
}

// loadOf returns the server's load while f runs. It passes f the end of the interval; f must return
// soon after that time.
func (r *report) loadOf(ctx context.Context, c *runningFleet, f func(end time.Time) error) (l load, err error) {
	begin := time.Now()
	cpu, err := cpuOf(r.lab.pids[one][0])
	if err != nil {
		return l, err
	}
	if err := f(begin.Add(r.effort.fleetFor)); err != nil {
		return l, err
	}
	lasted := time.Since(begin)
	used, err := cpuOf(r.lab.pids[one][0])
	if err != nil {
		return l, err
	}
	open, err := connectionsOf(ctx, c.target)
	return load{(used - cpu).Seconds() / lasted.Seconds(), open - c.others}, err
}

// connectionsOf returns how many connections the server has.
func connectionsOf(ctx context.Context, t *measure.Target) (int64, error) {
	var status struct {
		Connections struct {
			Current int64 `bson:"current"`
		} `bson:"connections"`
	}
	err := t.DB.RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
	return status.Connections.Current, err
}
