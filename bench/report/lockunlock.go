package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// lockUnlock measures an uncontended Lock and Unlock, relative to two raw writes: the medians, and
// the 99th percentiles of the same samples. For a key that is used again and again, it also
// measures the same commands without the library.
func (r *report) lockUnlock(ctx context.Context) ([]row, error) {
	var rows []row
	add := func(name string, can []column, took map[column]measure.Sample, u units) {
		line := row{unit: "two raw writes", can: can}
		half, tail := line.compared(median, took, u), line.compared(p99, took, u)
		half.name, tail.name = "median", "p99"
		rows = append(rows, joined(name, half, tail)...)
	}
	for _, part := range []struct {
		name  string
		op    func(context.Context, opener) (measure.Op, error)
		can   []column
		early string // name of the row for the commands without the library; "": not measured
	}{
		{"Lock and Unlock, uncontended", sameKey, append([]column{mongoLock}, everywhere...),
			"two raw writes, the second with `w: 1`, as Unlock's"},
		{"Lock and Unlock of a key without a record", newKeys, []column{one, three, mongoLock}, ""},
		{"Lock and Unlock of a key that another process used last", usedKeys, []column{one, three, mongoLock}, ""},
	} {
		u := units{}
		took, early, err := r.uncontended(ctx, u, part.op, part.can, part.early != "")
		if err != nil {
			return rows, err
		}
		add(part.name, part.can, took, u)
		if part.early != "" {
			add(part.early, []column{one, three}, early, u)
		}
	}
	return rows, nil
}

// An opener opens a process, which is closed together with the row's other processes.
type opener func() (measure.Process, error)

// uncontended measures the operation that op builds, for each column in can. For this library's columns it also
// measures two raw writes. If early is true, it also sends the same two writes as Lock and Unlock, without the library,
// and measures them. It runs all of these in turn.
func (r *report) uncontended(ctx context.Context, u units, op func(context.Context, opener) (measure.Op, error), can []column, early bool) (took, earlies map[column]measure.Sample, err error) {
	ps, end, err := r.players(ctx, mutexes, can...)
	if err != nil {
		return nil, nil, err
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
			return nil, nil, fmt.Errorf("%v: %w", p.column, err)
		}
		c := contender{column: p.column}
		c.op, err = op(ctx, func() (measure.Process, error) {
			process, err := p.system.Open(ctx)
			if err == nil {
				opened = append(opened, process)
			}
			return process, err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%v: %w", p.column, err)
		}
		if p.raw != nil {
			c.unit = measure.Twice(p.raw.Write)
			if early {
				c.early = p.raw.WriteEarly
			}
		}
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
