package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// lockUnlock is a Lock and Unlock where nobody waits, by two raw writes: the medians, and
// the 99th percentiles of the same samples.
func (r *report) lockUnlock(ctx context.Context) ([]row, error) {
	var rows []row
	for _, part := range []struct {
		name   string
		system func(*measure.Target) measure.System
		op     func(context.Context, opener) (measure.Op, error)
		can    []column
	}{
		{"Lock and Unlock, uncontended", mutexes, sameKey, append([]column{mongoLock}, everywhere...)},
		{"Lock and Unlock of a key without a record", mutexes, newKeys, []column{one, three, mongoLock}},
		{"Lock and Unlock of a key that another process used last", mutexes, usedKeys, []column{one, three, mongoLock}},
		{"two raw writes, the second acknowledged by the primary alone, as Unlock's is", mutexes, nil, []column{one, three}},
	} {
		line := row{name: part.name, unit: "two raw writes", can: part.can}
		tail := row{name: part.name + ": p99", unit: "p99 of two raw writes", can: part.can}
		u := units{}
		took, err := r.uncontended(ctx, u, part.system, part.op, part.can)
		if err != nil {
			return rows, err
		}
		rows = append(rows, line.compared(median, took, u), tail.compared(p99, took, u))
	}
	return rows, nil
}

// An opener opens a process that ends with its row.
type opener func() (measure.Process, error)

// uncontended samples what op makes of the processes that it opens, or without one the same writes without the
// library, and two raw writes.
func (r *report) uncontended(ctx context.Context, u units, system func(*measure.Target) measure.System,
	op func(context.Context, opener) (measure.Op, error), can []column) (map[column]measure.Sample, error) {
	ps, end, err := r.players(ctx, system, can...)
	if err != nil {
		return nil, err
	}
	defer end()
	var opened []measure.Process
	defer func() {
		for _, p := range opened {
			p.Close()
		}
	}()
	var cs []contender
	for _, p := range ps {
		if err := measure.Excludes(ctx, p.system); err != nil {
			return nil, fmt.Errorf("%v: %w", p.column, err)
		}
		c := contender{column: p.column}
		if p.raw != nil {
			c.op, c.unit = p.raw.WriteEarly, measure.Twice(p.raw.Write)
		}
		if op == nil {
			cs = append(cs, c)
			continue
		}
		lockUnlock, err := op(ctx, func() (measure.Process, error) {
			process, err := p.system.Open(ctx)
			if err == nil {
				opened = append(opened, process)
			}
			return process, err
		})
		if err != nil {
			return nil, fmt.Errorf("%v: %w", p.column, err)
		}
		c.op = lockUnlock
		cs = append(cs, c)
	}
	return interleave(ctx, r.effort.turns, u, cs...)
}

func sameKey(ctx context.Context, open opener) (measure.Op, error) {
	p, err := open()
	if err != nil {
		return nil, err
	}
	l, err := p.Locker(ctx, "uncontended")
	if err != nil {
		return nil, err
	}
	return measure.LockUnlock(l), nil
}

func newKeys(_ context.Context, open opener) (measure.Op, error) {
	p, err := open()
	return measure.LockUnlockEach(p, "new"), err
}

func usedKeys(_ context.Context, open opener) (measure.Op, error) {
	p, err := open()
	if err != nil {
		return nil, err
	}
	other, err := open()
	return measure.LockUnlockAfter(other, p, "used"), err
}
