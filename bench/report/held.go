package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// held measures what many held locks cost, relative to one.
func (r *report) held(ctx context.Context) ([]row, error) {
	if !r.lab.here[one] {
		return []row{{name: "Held locks"}}, nil
	}
	var costs [2]measure.Cost
	for i, n := range []int{1, r.effort.held} {
		t, err := r.lab.target(one)
		if err != nil {
			return nil, err
		}
		costs[i], err = measure.HeldCost(ctx, t.Counted(), n, r.effort.heldFor)
		t.Close(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
	}
	few, many := costs[0], costs[1]
	line := func(what, format string, many, few float64) row {
		return row{name: what, unit: "one held lock's"}.
			put(one, quotient(many, few), fmt.Sprintf(format+"/s / "+format+"/s", many, few))
	}
	return []row{joined(fmt.Sprintf("%d held locks", r.effort.held),
		line("commands", "%.2f", many.Commands, few.Commands),
		line("bytes on the wire", "%.0f B", many.Bytes, few.Bytes),
		line("oplog entries", "%.2f", many.OplogEntries, few.OplogEntries),
		line("oplog bytes", "%.0f B", many.OplogBytes, few.OplogBytes),
		line("the client's CPU", "%.2f ms", 1e3*many.CPU.Seconds(), 1e3*few.CPU.Seconds()))}, nil
}

func quotient(a, b float64) string {
	if b == 0 {
		return "no unit"
	}
	return fmt.Sprintf("%.2f", a/b)
}
