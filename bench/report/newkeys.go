package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// newKeys measures the goroutines of one process locking and unlocking keys that were never used before. It reports the
// elapsed time and the server's CPU time, relative to two raw writes to each of as many new documents, by as many
// goroutines. It also measures pairs of raw writes in which only the first waits for a majority. These measurements
// take turns; each turn uses a tenth of the keys.
func (r *report) newKeys(ctx context.Context) ([]row, error) {
	const goroutines, turns = 16, 10
	name := fmt.Sprintf("%d keys never used before, %d goroutines", r.effort.newKeys, goroutines)
	lasted := row{name: name + ": Lock and Unlock of all", unit: "two raw writes of each"}
	cost := row{name: name + ": the server's CPU time per key (relative to two raw writes)", unit: "microseconds"}
	early := row{name: name + ": two raw writes, the second with `w: 1`", unit: "two raw writes of each", can: []column{one}}
	ps, end, err := r.players(ctx, mutexes, one, mongoLock)
	if err != nil {
		return nil, err
	}
	defer end()
	if len(ps) == 0 {
		return []row{lasted, early, cost}, nil
	}
	var cs []contender
	ops, writes := make(map[column]*metered), make(map[column]*metered)
	for _, p := range ps {
		if err := measure.Excludes(ctx, p.system); err != nil {
			return nil, fmt.Errorf("%v: %w", p.column, err)
		}
		process, err := p.system.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", p.column, err)
		}
		defer process.Close()
		meter := func(f func(ctx context.Context, key string) error) *metered {
			return &metered{pid: r.lab.pid, op: measure.NewKeys(r.effort.newKeys/turns, goroutines, f)}
		}
		ops[p.column] = meter(func(ctx context.Context, key string) error {
			l, err := process.Locker(ctx, key)
			if err != nil {
				return err
			}
			_, err = measure.LockUnlock(l)(ctx)
			return err
		})
		c := contender{column: p.column, op: ops[p.column].do}
		if p.raw != nil {
			writes[p.column] = meter(func(ctx context.Context, key string) error {
				return p.raw.WriteEach(ctx, key, "majority", "majority")
			})
			c.unit = writes[p.column].do
			c.early = measure.NewKeys(r.effort.newKeys/turns, goroutines, func(ctx context.Context, key string) error {
				return p.raw.WriteEach(ctx, "early "+key, "majority", 1)
			})
		}
		cs = append(cs, c)
	}
	u := units{}
	took, earlies, err := interleave(ctx, turns, u, cs...)
	if err != nil {
		return nil, err
	}
	used, usedByUnits := make(map[column]measure.Sample), units{}
	for c, m := range ops {
		used[c] = m.last(turns)
	}
	for c, m := range writes {
		usedByUnits[c] = m.last(turns)
	}
	times := func(line row, c column, s measure.Sample) row {
		a, b := total(s), total(u.of(c))
		return line.put(c, ratio(a, b), fmt.Sprintf("%.2f s / %.2f s", a.Seconds(), b.Seconds()))
	}
	for c, s := range took {
		lasted = times(lasted, c, s)
		if r.lab.pid == 0 {
			cost = cost.put(c, "not here", "the report did not start this server")
			continue
		}
		a, b := total(used[c]), total(usedByUnits.of(c))
		each := func(d time.Duration) float64 { return 1e6 * d.Seconds() / float64(r.effort.newKeys) }
		cost = cost.put(c, fmt.Sprintf("%.0f (%s)", each(a), ratio(a, b)), fmt.Sprintf("%.0f µs / %.0f µs", each(a), each(b)))
	}
	for c, s := range earlies {
		early = times(early, c, s)
	}
	return []row{lasted, early, cost}, nil
}

// A metered Op records how much CPU time a process uses during each call.
type metered struct {
	pid  int // 0: don't record
	op   measure.Op
	used measure.Sample
}

func (m *metered) do(ctx context.Context) (time.Duration, error) {
	if m.pid == 0 {
		return m.op(ctx)
	}
	before, err := cpuOf(m.pid)
	if err != nil {
		return 0, err
	}
	took, err := m.op(ctx)
	if err != nil {
		return took, err
	}
	after, err := cpuOf(m.pid)
	m.used = append(m.used, after-before)
	return took, err
}

// last returns the CPU times of the last n calls, without the warm-ups before them.
func (m *metered) last(n int) measure.Sample { return m.used[max(0, len(m.used)-n):] }

func total(s measure.Sample) (sum time.Duration) {
	for _, d := range s {
		sum += d
	}
	return sum
}
