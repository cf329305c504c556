package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// keys measures the goroutines of one process that lock and unlock many keys, each key once. Nobody has used the keys
// before, or another process has used each key once. The rows are the elapsed time, the server's CPU time, and the 99th
// percentile of Lock and Unlock, each relative to two raw writes of as many documents by as many goroutines, which take
// turns with this. Each cell has a figure for each number of goroutines. For new keys, other rows have the same raw writes
// in as few commands as can be, as statements side by side: see [measure.Raw.WriteTogether].
func (r *report) keys(ctx context.Context) ([]row, error) {
	var rows []row
	for _, kind := range []string{"new", "used"} {
		var locks, together keysRows
		var err error
		for _, n := range r.effort.goroutines {
			var l, t keysRows
			if l, t, err = r.keysOf(ctx, kind == "used", n); err != nil {
				break
			}
			locks, together = locks.and(l), together.and(t)
		}
		rows = append(rows, locks.named(fmt.Sprintf("%d %s keys", r.effort.keys, kind))...)
		if kind == "new" {
			rows = append(rows, together.named("raw writes together")...)
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// keysRows are rows for each number of goroutines, which is the rows' name.
type keysRows struct{ took, cpu, p99 []row }

func (k keysRows) and(o keysRows) keysRows {
	return keysRows{append(k.took, o.took...), append(k.cpu, o.cpu...), append(k.p99, o.p99...)}
}

func (k keysRows) named(name string) (rows []row) {
	rows = append(rows, joined(name+", time", k.took...)...)
	rows = append(rows, joined(name+", server's CPU", k.cpu...)...)
	return append(rows, joined(name+", p99", k.p99...)...)
}

// A keysPart is a part of a column's measurement: Lock and Unlock, or raw writes. prepare is called for each key before
// the measured call of do; it may be nil.
type keysPart struct {
	prepare, do func(ctx context.Context, key string) error

	took, cpu time.Duration
	each      measure.Sample
}

func (r *report) keysOf(ctx context.Context, used bool, goroutines int) (ofLocks, ofTogether keysRows, err error) {
	ps, end, err := r.players(ctx, mutexes, one, three, mongoLock)
	if err != nil {
		return ofLocks, ofTogether, err
	}
	defer func() { end() }()
	locks, writes, together := make(map[column]*keysPart), make(map[column]*keysPart), make(map[column]*keysPart)
	var parts []func(turn int) error
	add := func(to map[column]*keysPart, c column, part *keysPart) {
		to[c] = part
		parts = append(parts, func(turn int) error { return part.run(ctx, r.lab.pids[c], r.effort.keys/keyTurns, goroutines, turn) })
	}
	for _, p := range ps {
		if err := measure.Excludes(ctx, p.system); err != nil {
			return ofLocks, ofTogether, fmt.Errorf("%v: %w", p.column, err)
		}
		locker := func() (func(context.Context, string) error, error) {
			process, err := p.system.Open(ctx)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", p.column, err)
			}
			end = func(before func()) func() { return func() { process.Close(); before() } }(end)
			return func(ctx context.Context, key string) error {
				l, err := process.Locker(ctx, key)
				if err == nil {
					_, err = measure.LockUnlock(l)(ctx)
				}
				return err
			}, nil
		}
		part := &keysPart{}
		if part.do, err = locker(); err != nil {
			return ofLocks, ofTogether, err
		}
		if used {
			if part.prepare, err = locker(); err != nil {
				return ofLocks, ofTogether, err
			}
		}
		add(locks, p.column, part)
		if p.raw == nil {
			continue
		}
		part = &keysPart{do: func(ctx context.Context, key string) error { return p.raw.WriteEach(ctx, key, "majority", "majority") }}
		if used {
			part.prepare = func(ctx context.Context, key string) error { return p.raw.WriteEach(ctx, key, 1) }
		}
		add(writes, p.column, part)
		if !used {
			add(together, p.column, &keysPart{do: func(ctx context.Context, key string) error { return p.raw.WriteTogether(ctx, "together, "+key) }})
		}
	}
	for turn := range keyTurns + 1 {
		for _, i := range rand.Perm(len(parts)) {
			if err := parts[i](turn); err != nil {
				return ofLocks, ofTogether, err
			}
		}
	}
	return r.keysBy(locks, writes, goroutines), r.keysBy(together, writes, goroutines), nil
}

// keysBy returns the figures of the parts, relative to those of the raw writes of the same column, or of the first.
func (r *report) keysBy(parts, writes map[column]*keysPart, goroutines int) keysRows {
	line := row{name: strconv.Itoa(goroutines), unit: "two raw writes"}
	took, cpus, tail := line, line, line
	for c, part := range parts {
		unit, own := writes[c]
		if !own {
			unit = writes[one]
		}
		cpu := "not here"
		if len(r.lab.pids[c]) > 0 {
			cpu = ratio(part.cpu, unit.cpu)
		}
		took = took.put(c, ratio(part.took, unit.took), fmt.Sprintf("%.2f s / %.2f s", part.took.Seconds(), unit.took.Seconds()))
		cpus = cpus.put(c, cpu, fmt.Sprintf("%.2f s / %.2f s", part.cpu.Seconds(), unit.cpu.Seconds()))
		tail = tail.put(c, ratio(p99(part.each), p99(unit.each)), milliseconds(p99(part.each))+by(p99, unit.each))
	}
	return keysRows{[]row{took}, []row{cpus}, []row{tail}}
}

// keyTurns is the number of turns that the keys are divided among. One more turn warms up.
const keyTurns = 8

// run calls do once for each of n keys that no other turn has.
func (p *keysPart) run(ctx context.Context, pids []int, n, goroutines, turn int) error {
	if p.prepare != nil {
		if _, err := forKeys(ctx, n, 32, turn, p.prepare); err != nil {
			return err
		}
	}
	time.Sleep(50 * time.Millisecond)
	var mu sync.Mutex
	var each measure.Sample
	before, err := cpuOfAll(pids)
	if err != nil {
		return err
	}
	took, err := forKeys(ctx, n, goroutines, turn, func(ctx context.Context, key string) error {
		took, err := measure.Timed(func(ctx context.Context) error { return p.do(ctx, key) })(ctx)
		mu.Lock()
		defer mu.Unlock()
		each = append(each, took)
		return err
	})
	if err != nil {
		return err
	}
	after, err := cpuOfAll(pids)
	if turn > 0 {
		p.took, p.cpu, p.each = p.took+took, p.cpu+after-before, append(p.each, each...)
	}
	return err
}

// forKeys calls f once for each of n keys, from the given number of goroutines, and returns how long that took.
func forKeys(ctx context.Context, n, goroutines, turn int, f func(ctx context.Context, key string) error) (time.Duration, error) {
	var last atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range goroutines {
		g.Go(func() error {
			for i := last.Add(1); i <= int64(n); i = last.Add(1) {
				if err := f(ctx, fmt.Sprintf("turn %d, key %d", turn, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

// cpuOfAll returns the CPU time that the processes have used so far, together.
func cpuOfAll(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		used, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}
