package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// keys measures the goroutines of one process that lock and unlock many keys, each key once. Nobody has used the keys
// before, or another process has used each key once. Each cell has the elapsed time, the server's CPU time, and the
// 99th percentile of Lock and Unlock, each relative to two raw writes of as many documents by as many goroutines, which
// take turns with this.
func (r *report) keys(ctx context.Context) ([]row, error) {
	var rows []row
	for _, used := range []bool{false, true} {
		for _, n := range r.effort.goroutines {
			line, err := r.keysOf(ctx, used, n)
			if err != nil {
				return rows, err
			}
			rows = append(rows, line)
		}
	}
	return rows, nil
}

// A keysPart is a part of a column's measurement: Lock and Unlock, or raw writes. prepare is called for each key before
// the measured call of do; it may be nil.
type keysPart struct {
	prepare, do func(ctx context.Context, key string) error

	took, cpu time.Duration
	each      measure.Sample
}

func (r *report) keysOf(ctx context.Context, used bool, goroutines int) (row, error) {
	kind := "new"
	if used {
		kind = "used"
	}
	line := row{
		name: fmt.Sprintf("%d %s keys, %d goroutines: time of Lock and Unlock; server's CPU time; p99", r.effort.keys, kind, goroutines),
		unit: "two raw writes",
	}
	ps, end, err := r.players(ctx, mutexes, one, three, mongoLock)
	if err != nil {
		return line, err
	}
	defer end()
	locks, writes := make(map[column]*keysPart), make(map[column]*keysPart)
	var parts []func(turn int) error
	add := func(c column, part *keysPart) {
		parts = append(parts, func(turn int) error { return part.run(ctx, r.lab.pids[c], r.effort.keys/keyTurns, goroutines, turn) })
	}
	for _, p := range ps {
		if err := measure.Excludes(ctx, p.system); err != nil {
			return line, fmt.Errorf("%v: %w", p.column, err)
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
			return line, err
		}
		if used {
			if part.prepare, err = locker(); err != nil {
				return line, err
			}
		}
		locks[p.column] = part
		add(p.column, part)
		if p.raw == nil {
			continue
		}
		part = &keysPart{do: func(ctx context.Context, key string) error { return p.raw.WriteEach(ctx, key, "majority", "majority") }}
		if used {
			part.prepare = func(ctx context.Context, key string) error { return p.raw.WriteEach(ctx, key, 1) }
		}
		writes[p.column] = part
		add(p.column, part)
	}
	for turn := range keyTurns + 1 {
		for _, i := range rand.Perm(len(parts)) {
			if err := parts[i](turn); err != nil {
				return line, err
			}
		}
	}
	for c, part := range locks {
		unit, own := writes[c]
		if !own {
			unit = writes[one]
		}
		cpu := "not here"
		if len(r.lab.pids[c]) > 0 {
			cpu = ratio(part.cpu, unit.cpu)
		}
		line = line.put(c, fmt.Sprintf("%s; %s; %s", ratio(part.took, unit.took), cpu, ratio(part.each.Percentile(99), unit.each.Percentile(99))),
			fmt.Sprintf("%.2f s / %.2f s; %.2f s / %.2f s; %s / %s", part.took.Seconds(), unit.took.Seconds(), part.cpu.Seconds(), unit.cpu.Seconds(),
				milliseconds(part.each.Percentile(99)), milliseconds(unit.each.Percentile(99))))
	}
	return line, nil
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
