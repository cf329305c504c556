package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// memory measures the memory of held locks and of waiting goroutines in this process.
func (r *report) memory(context.Context) ([]row, error) {
	n := r.effort.inMemory
	held, err := measure.HeldMemory(n)
	if err != nil {
		return nil, err
	}
	same, err := measure.WaiterMemory(n, measure.OneKey)
	if err != nil {
		return nil, err
	}
	own, err := measure.WaiterMemory(n, measure.OwnKeys)
	if err != nil {
		return nil, err
	}
	bytes := func(name string, b float64) row {
		return row{name: name, unit: "bytes each"}.put(one, fmt.Sprintf("%.0f", b), fmt.Sprintf("%.0f B", b))
	}
	return joined(fmt.Sprintf("Memory of %d on the store in memory, stacks included", n),
		bytes("held locks", held), bytes("goroutines waiting for one key", same), bytes("for keys of their own", own)), nil
}
